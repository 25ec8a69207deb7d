# SPDX-License-Identifier: Apache-2.0
"""What ``Q`` is: a value with a factorised form. Knows torch and files, no engine."""

from __future__ import annotations

from vllm_eagle3_quarot.rotation.rotation import Kind, Rotation
from vllm_eagle3_quarot.rotation.transform import Plan

__all__ = ["Kind", "Plan", "Rotation"]
