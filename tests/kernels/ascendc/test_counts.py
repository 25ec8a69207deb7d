# SPDX-License-Identifier: Apache-2.0
"""The kernel's instruction, barrier and bank-conflict counts per row stay what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import snapshot


@pytest.fixture(scope="module")
def measured(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    return snapshot.measure(driver, tmp_path_factory.mktemp("counts"))


def test_counts_per_row(measured: dict[str, dict[str, int]]) -> None:
    """A difference is a change of cost; intended ones are pinned by harness/snapshot.py."""
    assert measured == json.loads(snapshot.FIXTURE.read_text())


@pytest.mark.parametrize("hidden", (2048, 4096, 8192))
def test_a_power_of_two_has_no_bank_conflicts(
    measured: dict[str, dict[str, int]], hidden: int
) -> None:
    counts = measured[f"unrotate {hidden}=1x(1x{hidden}) bf16"]
    assert counts["read_conflicts"] == counts["write_conflicts"] == 0


@pytest.mark.parametrize("hidden", (2048, 4096, 8192))
def test_a_power_of_two_costs_log2_passes(measured: dict[str, dict[str, int]], hidden: int) -> None:
    """One repeat of 64 elements per stage and operand pair: log2(H) passes of H / 64, all of them
    additions or subtractions, and one pass of multiplications."""
    counts = measured[f"unrotate {hidden}=1x(1x{hidden}) bf16"]
    passes = hidden.bit_length() - 1
    assert counts["Add repeats"] + counts["Sub repeats"] == passes * hidden // 64
    assert counts["Mul repeats"] == hidden // 64
    # One barrier per pass: cast, two transposes, the stages, the multiplication.
    assert counts["barriers"] == passes + 4
    assert counts["bytes_in"] == counts["bytes_out"] == 2 * hidden
