# SPDX-License-Identifier: Apache-2.0
"""Python imports this in every child process: the fake CANN comes up before torch_npu does."""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class _BeforeTorchNpu(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch_npu":
            sys.meta_path.remove(self)
            from tests.ascend.device.start import FOLDER_VARIABLE, activate_runtime

            activate_runtime(Path(os.environ[FOLDER_VARIABLE]))
        return None


if os.environ.get("EAGLE3_QUAROT_FAKE_CANN"):
    sys.meta_path.insert(0, _BeforeTorchNpu())
