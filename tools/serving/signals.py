# SPDX-License-Identifier: Apache-2.0
"""How a program that has servers ends."""

from vllm_eagle3_quarot.serving.signals import unwinding_on_termination

__all__ = ["unwinding_on_termination"]
