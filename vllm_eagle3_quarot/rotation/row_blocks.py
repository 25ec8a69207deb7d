# SPDX-License-Identifier: Apache-2.0
"""Large matrices are worked through some rows at a time, so that loading needs little memory."""

from __future__ import annotations

from collections.abc import Iterator

#: Elements handled at once: 4 MiB in fp32, of which a formula holds a few at one time. At any
#: hidden size that is little beside Q itself.
ELEMENTS_AT_ONCE = 2**20


def row_blocks(count: int, width: int) -> Iterator[tuple[int, int]]:
    """First row and end of each block of a matrix of ``count`` rows of ``width`` elements."""
    rows = max(1, ELEMENTS_AT_ONCE // width)
    for start in range(0, count, rows):
        yield start, min(start + rows, count)
