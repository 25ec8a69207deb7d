# SPDX-License-Identifier: Apache-2.0
"""Right values in the wrong place: strides, repeats, offsets, items."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    KERNEL,
    STAGES,
    Mutation,
)

MUTATIONS = [
    Mutation(
        "transpose stride kept for a single repeat",
        STAGES,
        "repeats == 1 ? 0 : dst_stride",
        "dst_stride",
        "uninitialised",
    ),
    Mutation(
        "transpose destination stride too small",
        STAGES,
        "row_.Half() / kUnitElements, 2, kUnit)",
        "row_.Half() / kUnitElements, 1, kUnit)",
        "overlap",
    ),
    Mutation(
        "transpose source stride too small",
        STAGES,
        "row_.Half() / kUnitElements, 2, kUnit)",
        "row_.Half() / kUnitElements, 2, kUnit - 1)",
        "numerics",
    ),
    Mutation(
        "difference written over the sum",
        STAGES,
        "AscendC::Sub(b[upper + kBlock],",
        "AscendC::Sub(b[upper],",
        "race write-after-write",
    ),
    Mutation(
        "misaligned block operand",
        STAGES,
        "AscendC::Sub(b[kBlock], a,",
        "AscendC::Sub(b[kBlock / 2], a,",
        "alignment",
    ),
    Mutation(
        "one repeat too many",
        STAGES,
        "static_cast<uint8_t>(quarter / kRepeat)",
        "static_cast<uint8_t>(quarter / kRepeat + 1)",
        "race write-after-write",
    ),
    Mutation(
        "destination block stride zero",
        STAGES,
        "spread(2, 1, 1, 16, 8, 8)",
        "spread(0, 1, 1, 16, 8, 8)",
        "stride",
    ),
    Mutation(
        "destination repeat stride too small",
        STAGES,
        "spread(2, 1, 1, 16, 8, 8)",
        "spread(2, 1, 1, 8, 8, 8)",
        "overlap",
    ),
    Mutation(
        "tiles in reverse order",
        STAGES,
        "return (p % positions_) * tiles_ + p / positions_;",
        "return (p % positions_) * tiles_ + tiles_ - 1 - p / positions_;",
        "uninitialised",
    ),
    Mutation(
        "input not loaded",
        KERNEL,
        "    AscendC::DataCopy(in, source[row * args_.strides[slice] + OffsetOf(item)], span_);\n",
        "",
        "uninitialised",
    ),
    Mutation(
        "global source offset shifted",
        KERNEL,
        "args_.strides[slice] + OffsetOf(item)]",
        "args_.strides[slice] + OffsetOf(item) + 16]",
        "global bounds",
    ),
    Mutation(
        "global output offset shifted",
        KERNEL,
        "args_.plan.hidden + OffsetOf(item)], out",
        "args_.plan.hidden + OffsetOf(item) + 16], out",
        "global",
    ),
    Mutation(
        "length not a multiple of 32 bytes",
        KERNEL,
        "OffsetOf(item)], out, span_);",
        "OffsetOf(item)], out, span_ - 1);",
        "DataCopy",
    ),
    Mutation(
        "next load of the wrong item", KERNEL, "load_item_ += cores_;", "load_item_ += 1;", "queue"
    ),
    Mutation(
        "slices of a token written to one place",
        KERNEL,
        "(TokenOf(item)) * args_.slices + SliceOf(item);",
        "(TokenOf(item)) * args_.slices;",
        "global race",
    ),
    Mutation(
        "loads start with another core's item",
        KERNEL,
        "load_item_ = first_item_;",
        "load_item_ = 0;",
        "queue",
    ),
    Mutation(
        "32-bit ids read as 64-bit",
        KERNEL,
        "args_.id_bytes == 8 ? ids_.GetValue(TokenOf(item))",
        "true ? ids_.GetValue(TokenOf(item))",
        "global bounds",
    ),
    Mutation(
        "last id of the shard not excluded",
        KERNEL,
        "id < args_.vocab_end;",
        "id <= args_.vocab_end;",
        "global bounds",
    ),
]
