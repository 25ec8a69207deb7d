# SPDX-License-Identifier: Apache-2.0
"""Right values, lost time: only the pinned counts show it."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    BARRIER,
    STAGES,
    WEIGHTS,
    Mutation,
)

MUTATIONS = [
    Mutation(
        "weights in the bank groups of the row",
        WEIGHTS,
        "kWeightOffset = kSkew;",
        "kWeightOffset = 0;",
        "snapshot",
    ),
    Mutation(
        "lane rows without padding",
        STAGES,
        "kLanePadding = 2 * kBlock;",
        "kLanePadding = 0;",
        "snapshot",
    ),
    Mutation(
        "barrier that nothing needs",
        STAGES,
        "    Swap(a, b);\n    BlockStages(a, b);\n",
        "    Swap(a, b);\n" + BARRIER + "    BlockStages(a, b);\n",
        "snapshot",
    ),
]
