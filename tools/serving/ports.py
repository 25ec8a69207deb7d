# SPDX-License-Identifier: Apache-2.0
"""The port that a server listens on."""

from vllm_eagle3_quarot.serving.ports import claim_port

__all__ = ["claim_port"]
