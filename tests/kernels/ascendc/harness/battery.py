# SPDX-License-Identifier: Apache-2.0
"""A short set of launches that reaches every line of the kernels: what a mutant is run against."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tests.kernels.ascendc.harness import reference
from tests.kernels.ascendc.harness.cases import (
    exact_slices,
    gaussian,
    rotation_for,
    separate,
    slices_of_one,
)
from tests.kernels.ascendc.harness.launch import Launch, Source

Check = Callable[[reference.Array], None]


@lru_cache(maxsize=1)
def battery() -> list[tuple[Launch, Check]]:
    """Launches with the check of their output. Cores have three or more items each, so that both
    buffers of a queue come round again."""
    rng = np.random.default_rng(21)
    cases: list[tuple[Launch, Check]] = []

    def add(launched: Launch, exact: reference.Array, dtype: str) -> None:
        def check(output: reference.Array) -> None:
            reference.accept(output.reshape(exact.shape), exact, dtype)

        cases.append((launched, check))

    # (structure, dtype, tokens, slices, cores): one repeat, one tile, short tiles, factors, the
    # largest row with one and with two buffers.
    for structure, dtype, tokens, slices, cores in [
        ((256, 256, 1), "bf16", 2, 3, 2),
        ((2048, 2048, 1), "bf16", 4, 2, 2),
        ((1024, 32, 1), "f16", 5, 1, 1),
        ((768, 768, 12), "bf16", 5, 1, 1),
        ((3072, 512, 4), "bf16", 3, 1, 1),
        ((8192, 8192, 1), "bf16", 1, 3, 1),
        ((8192, 8192, 1), "f32", 1, 3, 1),
    ]:
        rotation = rotation_for(structure)
        x = gaussian(rng, (tokens, slices * rotation.hidden))
        add(
            slices_of_one(rotation, x, dtype, slices, cores=cores, seed=len(cases)),
            exact_slices(rotation, x, dtype),
            dtype,
        )

    rotation = rotation_for((2048, 2048, 1))
    states = [gaussian(rng, (3, rotation.hidden)) * 2.0**i for i in range(3)]
    gamma = (1.0 + rng.random((3, rotation.hidden))).astype(np.float32)
    natural = exact_slices(rotation, np.concatenate(states, -1), "bf16").reshape(3, 3, -1)
    gamma = reference.decode(reference.encode(gamma, "bf16"), "bf16")
    for norm, exact in [
        ("slice", reference.rms_normalise(natural, gamma, 1e-6)),
        ("concat", reference.rms_normalise(natural.reshape(3, -1), gamma.reshape(-1), 1e-6)),
    ]:
        add(
            separate(
                rotation,
                states,
                "bf16",
                (0, 16, 1),
                norm=norm,
                channel=gamma,
                channel_is_float=norm == "concat",
                cores=1,
            ),
            exact,
            "bf16",
        )

    table = gaussian(rng, (6, rotation.hidden))
    ids = np.array([12, 5, 10, 16, 15, 11, 9], dtype=np.int32)
    inside = (ids >= 10) & (ids < 16)
    found = exact_slices(rotation, table, "bf16")[np.where(inside, ids - 10, 0)]
    lookup = Launch(
        rotation,
        "bf16",
        len(ids),
        [Source("table", 0, rotation.hidden)],
        {"table": reference.encode(table, "bf16")},
        ids=ids,
        vocab=(10, 16),
        cores=2,
    )
    add(lookup, np.where(inside[:, None], found, 0.0), "bf16")

    rotation = rotation_for((768, 768, 12))
    x = gaussian(rng, (4, rotation.hidden))
    reciprocal = (1.0 / rng.uniform(0.5, 2.0, rotation.hidden)).astype(np.float32)
    stored = reference.decode(reference.encode(x, "bf16"), "bf16")
    add(
        slices_of_one(rotation, x, "bf16", 1, direction="rotate", channel=reciprocal, cores=1),
        reference.rotate(stored * reciprocal, rotation),
        "bf16",
    )
    add(
        slices_of_one(rotation, x, "bf16", 1, direction="rotate", cores=2),
        reference.rotate(stored, rotation),
        "bf16",
    )
    return cases


def check_all(outputs: list[reference.Array]) -> None:
    """Checks the outputs of a run of the whole battery."""
    for (_, check), output in zip(battery(), outputs, strict=True):
        check(output)
