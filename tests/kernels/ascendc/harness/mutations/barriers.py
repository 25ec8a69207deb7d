# SPDX-License-Identifier: Apache-2.0
"""Missing barriers between instructions of the vector pipe.

A barrier mutant computes the right numbers on a host: without the race model it would survive.
"""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    BARRIER,
    FACTOR,
    KERNEL,
    NORM,
    STAGES,
    WEIGHTS,
    Mutation,
)

MUTATIONS = [
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
        "no barrier after the cast",
        KERNEL,
        "in[input_row_.Half()], input_row_.Half());\n" + BARRIER,
        "in[input_row_.Half()], input_row_.Half());\n",
        "race read-after-write",
    ),
    Mutation(
        "no barrier after widening the channel vector",
        WEIGHTS,
        "      Widen(row_b[upper], row_a[half], half);\n      AscendC::PipeBarrier<PIPE_V>();\n",
        "      Widen(row_b[upper], row_a[half], half);\n",
        "race read-after-write",
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
        "no barrier after the zeros",
        KERNEL,
        "static_cast<int32_t>(span_ + kSkew));\n" + BARRIER,
        "static_cast<int32_t>(span_ + kSkew));\n",
        "race read-after-write",
    ),
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
]
