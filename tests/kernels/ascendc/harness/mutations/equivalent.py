# SPDX-License-Identifier: Apache-2.0
"""Rewrites that change nothing a device could show."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations.mutation import (
    BARRIER,
    KERNEL,
    WEIGHTS,
    Mutation,
)

#: Each with its reason. The test asserts that they survive, so that a new reason for failing is
#: noticed.
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
