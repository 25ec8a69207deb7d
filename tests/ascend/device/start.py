# SPDX-License-Identifier: Apache-2.0
"""Starts the fake device in this process: runtime, torch_npu, operators computed by the CPU.

:func:`start` comes before anything imports vLLM. vLLM inspects draft classes in child processes;
they get the runtime as well (``child_processes/sitecustomize.py``), but compute nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kernels.npu_runtime.fake_cann import libraries
from tests.kernels.npu_runtime.fake_cann.activate import FakeCann, activate

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

#: Where a child process finds the fake CANN's libraries.
FOLDER_VARIABLE = "EAGLE3_QUAROT_FAKE_CANN"
PACKAGES = ("torch_npu", "vllm_ascend")

_registered: list[object] = []


def activate_runtime(folder: Path) -> FakeCann:
    """Load the runtime; afterwards torch_npu and vllm-ascend can be imported."""
    # Last on the path: a real CANN's module would win.
    sys.path.append(str(HERE / "python_path"))
    return activate(folder)


def start(folder: Path) -> FakeCann:
    """Start the device for this process, and the runtime for its children.

    The libraries are built for the installed torch_npu and vllm-ascend when ``folder`` lacks them
    (seconds).
    """
    if not (folder / libraries.MAIN_LIBRARY).exists():
        libraries.build(folder, PACKAGES)
    os.environ[FOLDER_VARIABLE] = str(folder)
    python_path = [str(HERE / "child_processes"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, python_path))
    runtime = activate_runtime(folder)
    import torch_npu  # noqa: F401

    from tests.ascend.device.aten import compute_aten_on_host
    from tests.ascend.device.custom import compute_custom_on_host

    _registered.append(compute_aten_on_host())
    # The extension registers vllm-ascend's own operators, which are then replaced like torch_npu's.
    import vllm_ascend.vllm_ascend_C  # noqa: F401

    _registered.extend(compute_custom_on_host())
    return runtime
