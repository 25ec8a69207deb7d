# SPDX-License-Identifier: Apache-2.0
"""Seeded defects of the kernels, by what they touch."""

from __future__ import annotations

from tests.kernels.ascendc.harness.mutations import (
    addressing,
    arithmetic,
    barriers,
    cost,
    queues,
    sizes,
)
from tests.kernels.ascendc.harness.mutations.equivalent import EQUIVALENT
from tests.kernels.ascendc.harness.mutations.mutation import Mutation

__all__ = ["EQUIVALENT", "MUTATIONS", "Mutation"]

MUTATIONS = [
    *barriers.MUTATIONS,
    *queues.MUTATIONS,
    *arithmetic.MUTATIONS,
    *addressing.MUTATIONS,
    *sizes.MUTATIONS,
    *cost.MUTATIONS,
]
