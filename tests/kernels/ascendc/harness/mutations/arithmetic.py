# SPDX-License-Identifier: Apache-2.0
"""Wrong values: signs, stages, weights, roundings."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    CASTS,
    FACTOR,
    KERNEL,
    NORM,
    STAGES,
    WEIGHTS,
    Mutation,
)

MUTATIONS = [
    Mutation(
        "sum and difference swapped in a lane stage",
        STAGES,
        "AscendC::Sub(b[(2 * lane + 1) * pitch_], lower, upper, count)",
        "AscendC::Sub(b[(2 * lane + 1) * pitch_], upper, lower, count)",
        "numerics",
    ),
    Mutation(
        "sum and difference swapped in a block stage",
        STAGES,
        "AscendC::Sub(b[kBlock], a, a[upper], mask, repeats, spread)",
        "AscendC::Sub(b[kBlock], a[upper], a, mask, repeats, spread)",
        "numerics",
    ),
    Mutation(
        "one block stage missing",
        STAGES,
        "stage < stages_; ++stage",
        "stage + 1 < stages_; ++stage",
        "numerics",
    ),
    Mutation(
        "mask of half a repeat",
        STAGES,
        "const uint64_t mask = kRepeat;",
        "const uint64_t mask = kRepeat / 2;",
        "numerics",
    ),
    Mutation(
        "factor transposed",
        FACTOR,
        "codes_[group * factor_ + i]",
        "codes_[i % (factor_ / kGroup) * factor_ + group]",
        "numerics",
    ),
    Mutation(
        "sign of a pattern ignored",
        FACTOR,
        "const bool negative = code >= kNegative;",
        "const bool negative = false;",
        "numerics",
    ),
    Mutation(
        "weights of the first slice for all",
        KERNEL,
        "if (channel != loaded) LoadWeights",
        "if (false) LoadWeights",
        "numerics",
    ),
    Mutation(
        "sign vector shifted",
        WEIGHTS,
        "scale_[in_block], count)",
        "scale_[block_ - in_block - count], count)",
        "numerics",
    ),
    Mutation(
        "rotation scaled after instead of before",
        KERNEL,
        "if (args_.direction == Direction::kRotate) {",
        "if (false) {",
        "numerics",
    ),
    Mutation(
        "rounding mode that bf16 lacks",
        CASTS,
        "AscendC::RoundMode::CAST_RINT",
        "AscendC::RoundMode::CAST_NONE",
        "Cast",
    ),
    Mutation(
        "rounding mode of a narrowing cast on a widening one",
        CASTS,
        "Cast(dst, src, AscendC::RoundMode::CAST_NONE, count)",
        "Cast(dst, src, AscendC::RoundMode::CAST_RINT, count)",
        "Cast",
    ),
    Mutation(
        "mean over a slice instead of the concatenation",
        NORM,
        "args.norm == Norm::kConcat ? args.slices * row.length : row.length",
        "row.length",
        "numerics",
    ),
    Mutation(
        "squares of the upper half left out",
        NORM,
        "AscendC::Add(sums[upper], sums[upper], x[upper], half);",
        "",
        "numerics",
    ),
]
