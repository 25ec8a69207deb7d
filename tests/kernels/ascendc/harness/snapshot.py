# SPDX-License-Identifier: Apache-2.0
"""Instruction, repeat, barrier and bank-conflict counts per row: the only performance signal here.

Regenerate the fixture after an intended change, and look at the difference:

    python -m tests.kernels.ascendc.harness.snapshot
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.kernels.ascendc.harness import build
from tests.kernels.ascendc.harness.cases import name_of, rotation_for, slices_of_one
from tests.kernels.ascendc.harness.launch import Launch, run
from tests.kernels.ascendc.harness.reference import Array

FIXTURE = build.HERE / "counts_per_row.json"

#: (structure, dtype, op). One core does ROWS and then 2 * ROWS rows; the difference is free of
#: what happens once per core.
CASES: list[tuple[tuple[int, int, int], str, str]] = [
    ((2048, 2048, 1), "bf16", "unrotate"),
    ((4096, 4096, 1), "bf16", "unrotate"),
    ((4096, 4096, 1), "f32", "unrotate"),
    ((4096, 256, 1), "bf16", "unrotate"),
    ((5120, 1024, 1), "bf16", "unrotate"),
    ((6144, 6144, 12), "bf16", "unrotate"),
    ((7168, 7168, 28), "bf16", "unrotate"),
    ((7168, 1024, 1), "bf16", "unrotate"),
    ((8192, 8192, 1), "bf16", "unrotate"),
    ((4096, 4096, 1), "bf16", "rotate"),
    ((4096, 4096, 1), "bf16", "norm per slice"),
    ((4096, 4096, 1), "bf16", "norm over 3"),
]
ROWS = 3


def _launch(structure: tuple[int, int, int], dtype: str, op: str, tokens: int) -> Launch:
    rotation = rotation_for(structure)
    slices = 3 if op == "norm over 3" else 1
    x: Array = np.ones((tokens, slices * rotation.hidden))
    options: dict[str, Any] = {}
    if op == "rotate":
        options = {"direction": "rotate"}
    elif op == "norm per slice":
        options = {"norm": "slice", "channel": np.ones(rotation.hidden)}
    elif op == "norm over 3":
        options = {"norm": "concat", "channel": np.ones((3, rotation.hidden))}
    return slices_of_one(rotation, x, dtype, slices, cores=1, **options)


def _flatten(counts: dict[str, Any]) -> dict[str, int]:
    flat = {key: value for key, value in counts.items() if key != "instructions"}
    for name, (instructions, repeats) in counts["instructions"].items():
        flat[f"{name} instructions"] = instructions
        flat[f"{name} repeats"] = repeats
    return flat


def measure(driver: Path, folder: Path) -> dict[str, dict[str, int]]:
    """Counts per row for every case, by a readable name."""
    launches = [_launch(*case, tokens) for case in CASES for tokens in (ROWS, 2 * ROWS)]
    counts = [_flatten(entry["counts"]) for entry in run(driver, folder, *launches).statistics]
    table: dict[str, dict[str, int]] = {}
    for i, (structure, dtype, op) in enumerate(CASES):
        few, many = counts[2 * i], counts[2 * i + 1]
        rows = ROWS * (3 if op == "norm over 3" else 1)
        per_row: dict[str, int] = {}
        for key in sorted(many):
            extra = many[key] - few.get(key, 0)
            assert extra % rows == 0, f"{key} of {name_of(structure)} is not the same for every row"
            per_row[key] = extra // rows
        table[f"{op} {name_of(structure)} {dtype}"] = per_row
    return table


def main() -> None:
    """Rewrites the fixture."""
    with tempfile.TemporaryDirectory() as folder:
        table = measure(build.executable(), Path(folder))
    FIXTURE.write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main()
