# SPDX-License-Identifier: Apache-2.0
"""Queues and events: what one pipe hands to another, too early, too late or not at all."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    BARRIER,
    KERNEL,
    NORM,
    WEIGHTS,
    Mutation,
)

MUTATIONS = [
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
        "scalar read before the vector unit is done",
        NORM,
        "    AscendC::SetFlag<AscendC::HardEvent::V_S>(ready);\n"
        "    AscendC::WaitFlag<AscendC::HardEvent::V_S>(ready);\n",
        "    (void)ready;\n",
        "race read-after-write",
    ),
]
