# SPDX-License-Identifier: Apache-2.0
"""Everything that is registered with vLLM, in one place."""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.architectures import wrap_eagle3_architectures
from vllm_eagle3_quarot.integrations.cpu import register_cpu_host
from vllm_eagle3_quarot.integrations.original_loaders import keep_original_loaders


def register_with_vllm() -> None:
    """Wrap the Eagle3 architectures of the registry and, on the CPU platform, complete the host."""
    wrap_eagle3_architectures()
    keep_original_loaders()
    register_cpu_host()
