# SPDX-License-Identifier: Apache-2.0
"""Areas of the Unified Buffer and tables of the host: too small, too large, read past the end."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    FACTOR,
    NORM,
    SKEW,
    WEIGHTS,
    Mutation,
)

MUTATIONS = [
    Mutation(
        "factor scratch too small",
        FACTOR,
        "return 12 * pow2 + kSkew;",
        "return 11 * pow2 + kSkew;",
        "bounds",
    ),
    Mutation(
        "factor codes read past their end",
        FACTOR,
        "i < count; ++i) codes_",
        "i < count + 1; ++i) codes_",
        "global bounds",
    ),
    Mutation(
        "UB over budget",
        WEIGHTS,
        "InitBuffer(area_, (layout.length",
        "InitBuffer(area_, 2 * (layout.length",
        "UB budget",
    ),
    Mutation(
        "row area without its padding",
        SKEW,
        "constexpr uint32_t kRowPadding = 128;",
        "constexpr uint32_t kRowPadding = 0;",
        "compile",
    ),
    Mutation(
        "weights area without their offset",
        WEIGHTS,
        "InitBuffer(area_, (layout.length + kRowPadding)",
        "InitBuffer(area_, layout.length",
        "bounds",
    ),
    Mutation(
        "workspace of the reduction too small",
        NORM,
        "const uint32_t partial_sums = length / 2 / kRepeat;",
        "const uint32_t partial_sums = length / 4 / kRepeat;",
        "ReduceSum",
    ),
]
