# SPDX-License-Identifier: Apache-2.0
"""Seeded defects of the kernels: each is one small rewrite and the check that must catch it.

``caught_by`` is a word of the emulator's message ("EMULATOR <rule>"), or ``numerics`` for a
defect whose run completes with wrong values, or ``snapshot`` for one that only costs time. A
barrier mutant computes the right numbers on a host: without the race model it would survive.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BARRIER = "    AscendC::PipeBarrier<PIPE_V>();\n"


@dataclass(frozen=True)
class Mutation:
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


STAGES = "hadamard_stages.h"
FACTOR = "small_factor.h"
KERNEL = "row_kernel.h"
NORM = "row_norm.h"
WEIGHTS = "row_weights.h"
CASTS = "row_casts.h"
SKEW = "skewed_row.h"

MUTATIONS = [
    # The transform.
    Mutation(
        "no barrier after the first transpose",
        STAGES,
        "    ToLanes(b, a);\n" + BARRIER,
        "    ToLanes(b, a);\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier between lane stages",
        STAGES,
        "lower, upper, count);\n      }\n      AscendC::PipeBarrier<PIPE_V>();\n",
        "lower, upper, count);\n      }\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier after the second transpose",
        STAGES,
        "    FromLanes(b, a);\n" + BARRIER,
        "    FromLanes(b, a);\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier between block stages",
        STAGES,
        "a[upper + quarter], mask, repeats, spread);\n      AscendC::PipeBarrier<PIPE_V>();\n",
        "a[upper + quarter], mask, repeats, spread);\n",
        "race read-after-write",
    ),
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
        "mask of half a repeat",
        STAGES,
        "const uint64_t mask = kRepeat;",
        "const uint64_t mask = kRepeat / 2;",
        "numerics",
    ),
    Mutation(
        "tiles in reverse order",
        STAGES,
        "return (p % positions_) * tiles_ + p / positions_;",
        "return (p % positions_) * tiles_ + tiles_ - 1 - p / positions_;",
        "uninitialised",
    ),
    # The small factor.
    Mutation(
        "no barrier before the patterns",
        FACTOR,
        "      AscendC::Sub(U(scratch, 2 * i + 1), low, high, count);\n    }\n" + BARRIER,
        "      AscendC::Sub(U(scratch, 2 * i + 1), low, high, count);\n    }\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier after the patterns",
        FACTOR,
        "left, right, count);\n      }\n    }\n" + BARRIER,
        "left, right, count);\n      }\n    }\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier after the factor",
        FACTOR,
        "        Accumulate(y, scratch, block, group);\n      }\n    }\n" + BARRIER,
        "        Accumulate(y, scratch, block, group);\n      }\n    }\n",
        "race read-after-write",
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
    # Queues, DMA and events.
    Mutation(
        "no barrier after the cast",
        KERNEL,
        "in[input_row_.Half()], input_row_.Half());\n" + BARRIER,
        "in[input_row_.Half()], input_row_.Half());\n",
        "race read-after-write",
    ),
    Mutation(
        "input freed before its use",
        KERNEL,
        "    if (args_.buffers > 1) IssueLoad();\n",
        "    in_queue_.FreeTensor(in);\n    if (args_.buffers > 1) IssueLoad();\n",
        "race read-after-write",
    ),
    Mutation(
        "input freed before the cast",
        KERNEL,
        "    Widen(row, in, input_row_.Half());\n"
        "    Widen(row[input_row_.Upper()], in[input_row_.Half()], input_row_.Half());\n"
        + BARRIER
        + "    in_queue_.FreeTensor(in);\n",
        "    in_queue_.FreeTensor(in);\n    Widen(row, in, input_row_.Half());\n"
        "    Widen(row[input_row_.Upper()], in[input_row_.Half()], input_row_.Half());\n" + BARRIER,
        "race write-after-read",
    ),
    Mutation("input never freed", KERNEL, "    in_queue_.FreeTensor(in);\n", "", "queue"),
    Mutation(
        "input not loaded",
        KERNEL,
        "    AscendC::DataCopy(in, source[row * args_.strides[slice] + OffsetOf(item)], span_);\n",
        "",
        "uninitialised",
    ),
    Mutation("input not enqueued", KERNEL, "    in_queue_.EnQue(in);\n", "", "queue"),
    Mutation("output never freed", KERNEL, "    out_queue_.FreeTensor(out);\n", "", "queue"),
    Mutation(
        "output freed twice",
        KERNEL,
        "    out_queue_.FreeTensor(out);\n",
        "    out_queue_.FreeTensor(out);\n    out_queue_.FreeTensor(out);\n",
        "queue",
    ),
    Mutation(
        "output copied out before DeQue",
        KERNEL,
        "    out_queue_.EnQue(out);\n    out = out_queue_.template DeQue<T>();\n",
        "",
        "race read-after-write",
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
        "weights used before they arrive",
        WEIGHTS,
        "    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded);\n"
        "    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded);\n",
        "    (void)loaded;\n",
        "race read-after-write",
    ),
    Mutation(
        "SetFlag without WaitFlag",
        WEIGHTS,
        "    AscendC::WaitFlag<AscendC::HardEvent::MTE2_V>(loaded);\n",
        "",
        "race read-after-write",
    ),
    Mutation(
        "WaitFlag without SetFlag",
        WEIGHTS,
        "    AscendC::SetFlag<AscendC::HardEvent::MTE2_V>(loaded);\n",
        "",
        "WaitFlag",
    ),
    Mutation(
        "weights reloaded while in use",
        KERNEL,
        "LoadWeights(channel, true)",
        "LoadWeights(channel, false)",
        "race write-after-read",
    ),
    Mutation(
        "weights of the first slice for all",
        KERNEL,
        "if (channel != loaded) LoadWeights",
        "if (false) LoadWeights",
        "numerics",
    ),
    Mutation(
        "no barrier after widening the channel vector",
        WEIGHTS,
        "      Widen(row_b[upper], row_a[half], half);\n      AscendC::PipeBarrier<PIPE_V>();\n",
        "      Widen(row_b[upper], row_a[half], half);\n",
        "race read-after-write",
    ),
    Mutation(
        "32-bit ids read as 64-bit",
        KERNEL,
        "args_.id_bytes == 8 ? ids_.GetValue(TokenOf(item))",
        "true ? ids_.GetValue(TokenOf(item))",
        "global bounds",
    ),
    Mutation(
        "sign vector shifted",
        WEIGHTS,
        "scale_[in_block], count)",
        "scale_[block_ - in_block - count], count)",
        "numerics",
    ),
    Mutation(
        "no barrier after the final multiply",
        KERNEL,
        "      weights_.Apply(b, a);\n      AscendC::PipeBarrier<PIPE_V>();\n",
        "      weights_.Apply(b, a);\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier after the first multiply of a rotation",
        KERNEL,
        "      weights_.Apply(a, a);\n      AscendC::PipeBarrier<PIPE_V>();\n",
        "      weights_.Apply(a, a);\n",
        "race read-after-write",
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
        "last id of the shard not excluded",
        KERNEL,
        "id < args_.vocab_end;",
        "id <= args_.vocab_end;",
        "global bounds",
    ),
    Mutation(
        "no barrier after the zeros",
        KERNEL,
        "static_cast<int32_t>(span_ + kSkew));\n" + BARRIER,
        "static_cast<int32_t>(span_ + kSkew));\n",
        "race read-after-write",
    ),
    # The norm.
    Mutation(
        "no barrier after the squares",
        NORM,
        "AscendC::Mul(sums[upper], x[upper], x[upper], half);\n" + BARRIER,
        "AscendC::Mul(sums[upper], x[upper], x[upper], half);\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier before the reduction",
        NORM,
        "AscendC::Duplicate(one, 1.0f, 1);\n" + BARRIER,
        "AscendC::Duplicate(one, 1.0f, 1);\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier before the square root",
        NORM,
        "AscendC::Adds(value, value, epsilon_, 1);\n" + BARRIER,
        "AscendC::Adds(value, value, epsilon_, 1);\n",
        "race read-after-write",
    ),
    Mutation(
        "scalar read before the vector unit is done",
        NORM,
        "    AscendC::SetFlag<AscendC::HardEvent::V_S>(ready);\n"
        "    AscendC::WaitFlag<AscendC::HardEvent::V_S>(ready);\n",
        "    (void)ready;\n",
        "race read-after-write",
    ),
    Mutation(
        "workspace of the reduction too small",
        NORM,
        "const uint32_t partial_sums = length / 2 / kRepeat;",
        "const uint32_t partial_sums = length / 4 / kRepeat;",
        "ReduceSum",
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
    # Right values, wrong place for the bank groups.
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

#: Rewrites that change nothing a device could show, with the reason: the test asserts that they
#: survive, so that a new reason for failing is noticed.
EQUIVALENT = [
    (
        Mutation(
            "barrier before the output is enqueued",
            KERNEL,
            "    out_queue_.EnQue(out);\n",
            BARRIER + "    out_queue_.EnQue(out);\n",
            "",
        ),
        "EnQue's V_MTE3 event already waits for the casts",
    ),
    (
        Mutation(
            "barrier after the weights are made",
            WEIGHTS,
            "    Multiply(weights, weights, row_b);\n",
            "    Multiply(weights, weights, row_b);\n" + BARRIER,
            "",
        ),
        "the barriers of the transform order that product before its first use",
    ),
]
