# SPDX-License-Identifier: Apache-2.0
"""Every op through torch, torch_npu and the launcher into the kernel: which bits come back.

Each result must be bit for bit that of the emulator's own driver, which runs the same kernel with
arguments made by other code, and right by the fp64 rule of the kernel tests (``reference.accept``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.ascendc.harness import launch, reference
from tests.kernels.ascendc.harness.cases import (
    exact_slices,
    gaussian,
    name_of,
    rotation_for,
    separate,
    slices_of_one,
)
from tests.kernels.ascendc.harness.reference import Array, Rotation
from tests.kernels.npu_runtime.on_npu.launches import Launches
from tests.kernels.npu_runtime.on_npu.tensors import (
    DTYPES,
    on_npu,
    padded_on_npu,
    plan_on_npu,
    stored,
)

OPS = torch.ops.eagle3_quarot
STRUCTURES = [(256, 256, 1), (3072, 3072, 12)]
TOKENS = (1, 17)
SLICES = (1, 3)
EPSILON = 1e-5


@dataclass
class Case:
    """One op call and what it must give.

    Attributes:
        call: makes the call on the NPU and returns its output.
        same: the launch of the emulator's driver with the same bits.
        exact: fp64 result ``[rows, channels]``, rows as the accuracy rule divides the output.
    """

    call: Callable[[], Any]
    same: launch.Launch
    exact: Array


def unrotate(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    x = states(rotation, tokens, slices)
    bits = reference.encode(x, dtype)
    return Case(
        lambda: OPS.unrotate(on_npu(bits), *plan_on_npu(rotation)),
        slices_of_one(rotation, x, dtype, slices),
        exact_slices(rotation, x, dtype),
    )


def unrotate_padded(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    """Rows that are further apart than they are wide, at an odd distance."""
    x = states(rotation, tokens, slices)
    bits = reference.encode(x, dtype)
    return Case(
        lambda: OPS.unrotate(padded_on_npu(bits, 7), *plan_on_npu(rotation)),
        slices_of_one(rotation, x, dtype, slices),
        exact_slices(rotation, x, dtype),
    )


def unrotate_in_place(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    x = states(rotation, tokens, slices)
    bits = reference.encode(x, dtype)

    def call() -> torch.Tensor:
        tensor = on_npu(bits)
        OPS.unrotate_(tensor, *plan_on_npu(rotation))
        return tensor

    same = slices_of_one(rotation, x, dtype, slices)
    return Case(call, same, exact_slices(rotation, x, dtype))


def unrotate_concat(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    parts = [states(rotation, tokens, 1) * 3.0**i for i in range(slices)]
    padding = [(0, 8, 7)[i] for i in range(slices)]

    def call() -> Any:
        aux = [
            padded_on_npu(reference.encode(part, dtype), pad)
            for part, pad in zip(parts, padding, strict=True)
        ]
        return OPS.unrotate_concat(aux, *plan_on_npu(rotation))

    same = separate(rotation, parts, dtype, padding)
    return Case(call, same, exact_slices(rotation, np.concatenate(parts, axis=-1), dtype))


def norm_per_slice(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    parts = [states(rotation, tokens, 1) * 3.0**i for i in range(slices)]
    gamma = scales(rotation, slices)

    def call() -> Any:
        aux = [on_npu(reference.encode(part, dtype)) for part in parts]
        return OPS.unrotate_norm(aux, *plan_on_npu(rotation), [on_npu(g) for g in gamma], EPSILON)

    same = separate(
        rotation, parts, dtype, [0] * slices, norm="slice", epsilon=EPSILON, channel=gamma
    )
    natural = exact_slices(rotation, np.concatenate(parts, axis=-1), dtype)
    exact = reference.rms_normalise(
        natural.reshape(tokens, slices, rotation.hidden), gamma, EPSILON
    )
    return Case(call, same, exact.reshape(-1, rotation.hidden))


def norm_over_all(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    x = states(rotation, tokens, slices)
    gamma = scales(rotation, slices)

    def call() -> Any:
        parts = list(on_npu(reference.encode(x, dtype)).split(rotation.hidden, dim=1))
        weights = [on_npu(gamma.reshape(-1))]
        return OPS.unrotate_norm(parts, *plan_on_npu(rotation), weights, EPSILON)

    same = slices_of_one(rotation, x, dtype, slices, norm="concat", epsilon=EPSILON, channel=gamma)
    natural = exact_slices(rotation, x, dtype).reshape(tokens, -1)
    return Case(call, same, reference.rms_normalise(natural, gamma.reshape(-1), EPSILON))


def embedding(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    """A shard of ids 100 ... 119, asked for ids inside and outside, in both index types."""
    start, end = 100, 120
    table = states(rotation, end - start, 1)
    index_type = np.int32 if slices == 1 else np.int64
    ids: Array = np.random.default_rng(tokens).integers(95, 125, tokens).astype(index_type)
    ids[0] = end - 1
    bits = reference.encode(table, dtype)
    same = launch.Launch(
        rotation,
        dtype,
        tokens,
        [launch.Source("table", 0, rotation.hidden)],
        {"table": bits},
        ids=ids,
        vocab=(start, end),
    )
    inside = np.logical_and(np.greater_equal(ids, start), np.less(ids, end))
    rows = exact_slices(rotation, table, dtype)[np.where(inside, ids - start, 0)]
    return Case(
        lambda: OPS.embedding_unrotate(
            on_npu(ids), on_npu(bits), *plan_on_npu(rotation), start, end
        ),
        same,
        np.where(inside[:, None], rows, 0.0),
    )


def rotate(rotation: Rotation, dtype: str, tokens: int, slices: int) -> Case:
    """Forward; with three slices also the multiplier of the shared head."""
    x = states(rotation, tokens, slices)
    bits = reference.encode(x, dtype)
    multiplier = scales(rotation, 1)[0] if slices > 1 else None
    values = reference.decode(bits, dtype).reshape(-1, rotation.hidden)

    def call() -> Any:
        given = None if multiplier is None else on_npu(multiplier)
        return OPS.rotate(on_npu(bits), *plan_on_npu(rotation), given)

    same = slices_of_one(rotation, x, dtype, slices, direction="rotate", channel=multiplier)
    scaled = values if multiplier is None else values * multiplier.astype(np.float64)
    return Case(call, same, reference.rotate(scaled, rotation))


def states(rotation: Rotation, tokens: int, slices: int) -> Array:
    return gaussian(np.random.default_rng([tokens, slices]), (tokens, slices * rotation.hidden))


def scales(rotation: Rotation, slices: int) -> Array:
    rng = np.random.default_rng(5)
    return (1.0 + 0.5 * rng.standard_normal((slices, rotation.hidden))).astype(np.float32)


CASES = (
    unrotate,
    unrotate_padded,
    unrotate_in_place,
    unrotate_concat,
    norm_per_slice,
    norm_over_all,
    embedding,
    rotate,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("structure", STRUCTURES, ids=name_of)
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_bits(
    launches: Launches,
    driver: Path,
    tmp_path: Path,
    make: Callable[[Rotation, str, int, int], Case],
    structure: tuple[int, int, int],
    dtype: str,
) -> None:
    rotation = rotation_for(structure)
    cases = [make(rotation, dtype, tokens, slices) for tokens in TOKENS for slices in SLICES]
    directly = launch.run(driver, tmp_path, *(case.same for case in cases)).outputs
    for case, want in zip(cases, directly, strict=True):
        made = launches.during(case.call)
        assert made.count == 1
        assert made.result.device.type == "npu" and made.result.dtype == DTYPES[dtype]
        got = stored(made.result)
        np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), want.view(f"u{got.itemsize}"))
        reference.accept(got.reshape(case.exact.shape), case.exact, dtype)
