# SPDX-License-Identifier: Apache-2.0
"""A host builds a model with the model's dtype and device as torch's defaults for new tensors.

What we compute from files at that moment is fp32 on the CPU, whatever model is being built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def fp32_on_the_cpu() -> Iterator[None]:
    """Make fp32 and the CPU torch's defaults for a while."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
