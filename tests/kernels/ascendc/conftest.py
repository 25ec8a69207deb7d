# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the emulated AscendC kernels, and the `exhaustive` marker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import build, launch
from tests.kernels.ascendc.harness.compilation import CompileError

HERE = Path(__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "exhaustive: the full grid; deselected unless asked for with -m exhaustive"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "exhaustive" in (config.getoption("-m") or ""):
        return
    slow = [
        item
        for item in items
        if HERE in item.path.parents and item.get_closest_marker("exhaustive")
    ]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def compiler() -> str:
    path = shutil.which("g++")
    if path is None:
        pytest.skip("g++ is not installed; the emulated kernels are compiled from source")
    return path


@pytest.fixture(scope="session")
def driver(compiler: str) -> Path:
    """The kernels compiled unmodified against the emulator, with ASan and UBSan."""
    try:
        return build.executable()
    except CompileError as error:
        pytest.fail(f"the kernels do not compile:\n{error}", pytrace=False)


@pytest.fixture
def run_kernel(driver: Path, tmp_path: Path) -> launch.RunKernel:
    return lambda *launches: launch.run(driver, tmp_path, *launches)
