# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.variant_rows import (  # noqa: F401  # hooks and a fixture of pytest
    pytest_generate_tests,
    pytest_terminal_summary,
    variant_row,
)
from vllm_eagle3_quarot.serving.signals import unwinding_on_termination

PRELOADED = {name: os.environ[name] for name in ("LD_PRELOAD",) if name in os.environ}
"""What the caller wants to be loaded first, before any test ran."""

E2E = Path(__file__).parent / "e2e"

E2E_TIMEOUT_S = 1800
"""A test may have to wait for three servers of its fixtures, on a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything under tests/e2e, so that no file there can forget to."""
    for item in items:
        if E2E in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    """Random inputs are the same in every run, whatever ran before."""
    torch.manual_seed(20261129)


@pytest.fixture(autouse=True)
def _environment_stays() -> Iterator[None]:
    """vLLM's CPU platform sets LD_PRELOAD in this process; a later test starts programs."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
    # A module's fixture may have set it before this one looked.
    os.environ.pop("LD_PRELOAD", None)
    os.environ.update(PRELOADED)


@pytest.fixture(scope="session", autouse=True)
def _termination_unwinds() -> Iterator[None]:
    """A terminated test run still stops the servers of its fixtures."""
    with unwinding_on_termination():
        yield
