# SPDX-License-Identifier: Apache-2.0
"""The other uses of the row kernel: norms, embedding lookup, forward rotation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.ascendc.harness import reference
from tests.kernels.ascendc.harness.cases import (
    exact_slices,
    gaussian,
    name_of,
    rotation_for,
    rows,
    separate,
    slices_of_one,
)
from tests.kernels.ascendc.harness.launch import Launch, RunKernel, Source

DTYPES = ("bf16", "f16", "f32")
STRUCTURES = [(2048, 2048, 1), (768, 768, 12), (2560, 512, 1), (1792, 1792, 28)]
EPSILON = 1e-5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slices", (1, 2, 3))
@pytest.mark.parametrize("structure", STRUCTURES, ids=name_of)
def test_norm_per_slice(
    run_kernel: RunKernel, structure: tuple[int, int, int], slices: int, dtype: str
) -> None:
    """`fc_norm`: every hidden state has its own rms and its own gamma, in natural order."""
    rotation = rotation_for(structure)
    rng = np.random.default_rng(11)
    x = gaussian(rng, (7, slices * rotation.hidden))
    x[:, : rotation.hidden] *= 30.0  # the slices' rms differ
    gamma = (1.0 + 0.5 * rng.standard_normal((slices, rotation.hidden))).astype(np.float32)
    launched = slices_of_one(
        rotation,
        x,
        dtype,
        slices,
        norm="slice",
        epsilon=EPSILON,
        channel=gamma,
        cores=3,
    )
    natural = exact_slices(rotation, x, dtype).reshape(7, slices, rotation.hidden)
    exact = reference.rms_normalise(natural, gamma, EPSILON).reshape(-1, rotation.hidden)
    reference.accept(rows(run_kernel(launched).outputs[0], rotation), exact, dtype)


@pytest.mark.parametrize("dtype", ("bf16", "f16"))
def test_gamma_in_the_type_of_the_rows(run_kernel: RunKernel, dtype: str) -> None:
    """A checkpoint's norm weights are 16-bit; the kernel widens them, once per slice."""
    rotation = rotation_for((1792, 1792, 28))
    rng = np.random.default_rng(16)
    x = gaussian(rng, (4, 2 * rotation.hidden))
    gamma = reference.encode(1.0 + 0.5 * rng.standard_normal((2, rotation.hidden)), dtype)
    stored = reference.decode(gamma, dtype)
    launched = slices_of_one(
        rotation,
        x,
        dtype,
        2,
        norm="slice",
        epsilon=EPSILON,
        channel=stored,
        channel_is_float=False,
        cores=2,
    )
    natural = exact_slices(rotation, x, dtype).reshape(4, 2, rotation.hidden)
    exact = reference.rms_normalise(natural, stored, EPSILON).reshape(-1, rotation.hidden)
    reference.accept(rows(run_kernel(launched).outputs[0], rotation), exact, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slices", (1, 3, 5))
@pytest.mark.parametrize("structure", STRUCTURES, ids=name_of)
def test_norm_over_the_concatenation(
    run_kernel: RunKernel, structure: tuple[int, int, int], slices: int, dtype: str
) -> None:
    """`norm_before_fc`: one rms over A * H, from separate padded tensors."""
    rotation = rotation_for(structure)
    rng = np.random.default_rng(12)
    states = [gaussian(rng, (5, rotation.hidden)) * 3.0**i for i in range(slices)]
    gamma = (1.0 + 0.5 * rng.standard_normal((slices, rotation.hidden))).astype(np.float32)
    launched = separate(
        rotation,
        states,
        dtype,
        [16 * i for i in range(slices)],
        norm="concat",
        epsilon=EPSILON,
        channel=gamma,
        cores=4,
    )
    natural = exact_slices(rotation, np.concatenate(states, axis=-1), dtype)
    exact = reference.rms_normalise(natural.reshape(5, -1), gamma.reshape(-1), EPSILON)
    output = run_kernel(launched).outputs[0]
    # The bound is relative to the row the arithmetic worked on, which is the whole concatenation.
    reference.accept(output, exact, dtype)


def test_zero_rows_are_normalised_to_zero(run_kernel: RunKernel) -> None:
    """Epsilon keeps 1/rms finite, so a row of zeros stays one."""
    rotation = rotation_for((2048, 2048, 1))
    gamma = np.ones((2, rotation.hidden), dtype=np.float32)
    for norm in ("slice", "concat"):
        launched = slices_of_one(
            rotation,
            np.zeros((2, 2 * rotation.hidden)),
            "bf16",
            2,
            norm=norm,
            epsilon=EPSILON,
            channel=gamma,
            cores=2,
        )
        values = reference.decode(run_kernel(launched).outputs[0], "bf16")
        np.testing.assert_array_equal(values, np.zeros_like(values))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("structure", STRUCTURES, ids=name_of)
def test_embedding_lookup(
    run_kernel: RunKernel, structure: tuple[int, int, int], dtype: str
) -> None:
    """A shard of a vocabulary: ids before, in and after it, repeated, its first and last row."""
    rotation = rotation_for(structure)
    start, end = 100, 140
    table = gaussian(np.random.default_rng(13), (end - start, rotation.hidden))
    ids = np.array([100, 139, 7, 120, 140, 120, 99, 139, -1, 111, 2**40, 101, 102])
    inside = (ids >= start) & (ids < end)
    stored = reference.encode(table, dtype)
    natural = exact_slices(rotation, table, dtype)
    exact = np.where(inside[:, None], natural[np.where(inside, ids - start, 0)], 0.0)
    for cores in (1, 3, 48):
        launched = Launch(
            rotation,
            dtype,
            len(ids),
            [Source("table", 0, rotation.hidden)],
            {"table": stored},
            ids=ids,
            vocab=(start, end),
            cores=cores,
            seed=cores,
        )
        reference.accept(run_kernel(launched).outputs[0], exact, dtype)


def test_embedding_lookup_with_32_bit_ids(run_kernel: RunKernel) -> None:
    rotation = rotation_for((512, 512, 1))
    table = gaussian(np.random.default_rng(17), (5, 512))
    ids = np.array([4, -1, 0, 2, 5], dtype=np.int32)
    launched = Launch(
        rotation,
        "bf16",
        5,
        [Source("table", 0, 512)],
        {"table": reference.encode(table, "bf16")},
        ids=ids,
        vocab=(0, 5),
        cores=2,
    )
    natural = exact_slices(rotation, table, "bf16")
    exact = np.where(((ids >= 0) & (ids < 5))[:, None], natural[np.clip(ids, 0, 4)], 0.0)
    reference.accept(run_kernel(launched).outputs[0], exact, "bf16")


def test_embedding_without_a_hit(run_kernel: RunKernel) -> None:
    """A shard that owns none of the ids writes zeros and reads nothing."""
    rotation = rotation_for((512, 512, 1))
    launched = Launch(
        rotation,
        "bf16",
        4,
        [Source("table", 0, 512)],
        {"table": np.zeros((3, 512), np.uint16)},
        ids=np.array([50, 51, 52, 53]),
        vocab=(0, 3),
        cores=2,
    )
    output = run_kernel(launched).outputs[0]
    np.testing.assert_array_equal(output, np.zeros_like(output))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_divisor", (False, True), ids=("plain", "divided"))
@pytest.mark.parametrize("structure", [*STRUCTURES, (5120, 1024, 1), (6144, 3072, 12)], ids=name_of)
def test_rotate(
    run_kernel: RunKernel, structure: tuple[int, int, int], with_divisor: bool, dtype: str
) -> None:
    """The forward direction, and x / g before it for the shared head."""
    rotation = rotation_for(structure)
    rng = np.random.default_rng(14)
    x = gaussian(rng, (13, rotation.hidden))
    reciprocal = (1.0 / rng.uniform(0.5, 4.0, rotation.hidden)).astype(np.float32)
    launched = slices_of_one(
        rotation,
        x,
        dtype,
        1,
        direction="rotate",
        channel=reciprocal if with_divisor else None,
        cores=5,
    )
    stored = reference.decode(reference.encode(x, dtype), dtype)
    exact = reference.rotate(stored * (reciprocal if with_divisor else 1.0), rotation)
    reference.accept(run_kernel(launched).outputs[0], exact, dtype)


@pytest.mark.parametrize("structure", [(2048, 2048, 1), (1280, 1280, 20)], ids=name_of)
def test_rotate_then_unrotate_is_the_identity(
    run_kernel: RunKernel, structure: tuple[int, int, int]
) -> None:
    """In fp32, up to the rounding of two transforms."""
    rotation = rotation_for(structure)
    x = np.random.default_rng(15).standard_normal((4, rotation.hidden))
    there = run_kernel(slices_of_one(rotation, x, "f32", 1, direction="rotate")).outputs[0]
    back = run_kernel(slices_of_one(rotation, there, "f32", 1)).outputs[0]
    # Two roundings of about log2(H) additions each, on values of size one.
    np.testing.assert_allclose(back, x, atol=2e-5)
