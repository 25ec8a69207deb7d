# SPDX-License-Identifier: Apache-2.0
"""One seeded defect: a small rewrite of a kernel source, and the check that must catch it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BARRIER = "    AscendC::PipeBarrier<PIPE_V>();\n"

#: Kernel sources.
STAGES = "hadamard_stages.h"
FACTOR = "small_factor.h"
KERNEL = "row_kernel.h"
NORM = "row_norm.h"
WEIGHTS = "row_weights.h"
CASTS = "row_casts.h"
SKEW = "skewed_row.h"


@dataclass(frozen=True)
class Mutation:
    """Replaces ``old``, which ``file`` has once, by ``new``.

    ``caught_by`` is a word of the emulator's message ("EMULATOR <rule>"), or ``numerics`` for a
    defect whose run completes with wrong values, ``compile`` for one that does not compile, or
    ``snapshot`` for one that only costs time.
    """

    name: str
    file: str
    old: str
    new: str
    caught_by: str

    def apply(self, sources: Path, target: Path) -> None:
        """Writes the mutated copy of the kernel sources to ``target``."""
        target.mkdir(parents=True, exist_ok=True)
        for path in sources.iterdir():
            text = path.read_text()
            if path.name == self.file:
                # A rewrite that no longer fits the source would test nothing.
                if text.count(self.old) != 1:
                    places = text.count(self.old)
                    raise AssertionError(f"'{self.name}' matches {places} places of {self.file}")
                text = text.replace(self.old, self.new)
            (target / path.name).write_text(text)
