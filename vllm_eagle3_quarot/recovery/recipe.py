# SPDX-License-Identifier: Apache-2.0
"""The recipe that newer versions of msModelSlim leave in a checkpoint: the block size, if any."""

from __future__ import annotations

import re
from pathlib import Path

PATTERN = "*_best_practice.yaml"
MAX_BYTES = 2**20

#: The key as the tool writes it; a whole YAML parser would be a dependency for one number.
_BLOCK_SIZE = re.compile(r"^\s*block_size:\s*(-?\d{1,6})\s*$", re.MULTILINE)


def recipe_block_sizes(folder: Path) -> list[int | None]:
    """Block sizes named in recipes of the checkpoint; None stands for the whole hidden size."""
    found: list[int | None] = []
    for path in sorted(folder.glob(PATTERN)):
        try:
            with path.open("rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", errors="replace")
        except OSError:
            continue  # a hint only: without it all blocks are tried
        for match in _BLOCK_SIZE.finditer(text):
            block = int(match.group(1))
            found.append(block if block > 0 else None)
    return list(dict.fromkeys(found))
