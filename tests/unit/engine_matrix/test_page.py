# SPDX-License-Identifier: Apache-2.0
"""The committed results and the pages that show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs import engine_matrix
from tools.engine_matrix.releases import ENGINE_RELEASES
from tools.engine_matrix.results import read_results


@pytest.mark.parametrize("path", list(engine_matrix.pages()), ids=lambda path: path.parent.name)
def test_a_page_is_current(path: Path) -> None:
    """Write it anew with ``python -m tools.docs.engine_matrix``."""
    assert path.read_text(encoding="utf-8") == engine_matrix.pages()[path]


def test_no_release_failed() -> None:
    """After a change of the table: ``make test-matrix``."""
    results = read_results()
    refusals = {release.version: release.refusal for release in ENGINE_RELEASES}
    assert all(result.refusal == refusals[result.versions["vllm"]] for result in results)
    assert all(result.passed for result in results)
    assert all(result.greedy_equal for result in results if result.refusal is None)
