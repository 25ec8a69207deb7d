# SPDX-License-Identifier: Apache-2.0
"""The native CPU kernels, built once and loaded for every test here."""

from __future__ import annotations

import pytest

from vllm_eagle3_quarot import ops


@pytest.fixture(scope="session", autouse=True)
def native() -> ops.Backend:
    """These tests are about the compiled kernels, so a machine without a compiler fails them."""
    backend = ops.load_native()
    assert backend.kernel is not None, f"no native kernels: {backend}"
    return backend
