# SPDX-License-Identifier: Apache-2.0
"""Which operators of this package run: asked of torch's dispatcher, whoever calls them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from vllm_eagle3_quarot.ops.schemas import NAMESPACE


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == NAMESPACE:
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def operators_of_ours() -> Iterator[list[str]]:
    """Collect the names of this package's operators that run inside, in order."""
    recorder = _Recorder()
    with recorder:
        yield recorder.names
