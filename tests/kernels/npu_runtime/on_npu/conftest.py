# SPDX-License-Identifier: Apache-2.0
"""torch_npu over the fake CANN, with the product's library loaded."""

from __future__ import annotations

import os

# Before anything imports torch, which would import torch_npu, which would miss CANN.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import build as emulator_build
from tests.kernels.npu_runtime.fake_cann import libraries
from tests.kernels.npu_runtime.fake_cann.activate import FakeCann, activate
from tests.kernels.npu_runtime.on_npu.launches import Launches


@pytest.fixture(scope="session")
def fake_cann(tmp_path_factory: pytest.TempPathFactory) -> FakeCann:
    """The activated runtime; torch_npu is imported."""
    folder = tmp_path_factory.mktemp("fake_cann")
    libraries.build(folder)
    loaded = activate(folder)
    import torch_npu  # noqa: F401

    return loaded


@pytest.fixture(scope="session")
def launches(fake_cann: FakeCann) -> Launches:
    """The product's NPU library is loaded; tells which launches reached the kernel."""
    import torch

    from tests.kernels.npu_runtime import library
    from vllm_eagle3_quarot.ops import schemas

    schemas.register_ops()
    path = library.build()
    torch.ops.load_library(str(path))
    return Launches(path)


@pytest.fixture(scope="session")
def driver() -> Path:
    """The emulator's own driver: the same kernel, launched without torch."""
    return emulator_build.executable()


@pytest.fixture(scope="session")
def task_queue() -> bool:
    """Whether torch_npu launches from a thread of its own."""
    return os.environ.get("TASK_QUEUE_ENABLE", "1") != "0"


@pytest.fixture
def on_host(launches: Launches, task_queue: bool) -> Iterator[None]:
    """Built-in operators are there, computed by the CPU."""
    if task_queue:
        pytest.skip("operators computed by the CPU do not wait for torch_npu's launch thread")
    from tests.kernels.npu_runtime.on_npu.host_operators import host_operators

    with host_operators():
        yield
