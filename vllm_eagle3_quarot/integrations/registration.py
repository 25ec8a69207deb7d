# SPDX-License-Identifier: Apache-2.0
"""Everything that is registered with vLLM, in one place."""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.architectures import wrap_eagle3_architectures
from vllm_eagle3_quarot.integrations.cpu import register_cpu_host


def register_with_vllm() -> None:
    """Wrap the Eagle3 architectures of the registry and, on the CPU platform, complete the host."""
    wrap_eagle3_architectures()
    register_cpu_host()
