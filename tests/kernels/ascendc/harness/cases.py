# SPDX-License-Identifier: Apache-2.0
"""Rotations and inputs of the kernel tests, and the exact result of each launch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.kernels.ascendc.harness.launch import Launch, Source
from tests.kernels.ascendc.harness.reference import (
    Array,
    Rotation,
    decode,
    encode,
    make_rotation,
    rotate,
    unrotate,
)

# (hidden, block, factor): every shape of the schedule. One tile, many tiles, tiles shorter than a
# transpose unit, tiles that need both ways of walking it, each factor, repeated factored blocks.
SMALL = [
    (256, 256, 1),  # the shortest span
    (512, 512, 1),
    (768, 768, 12),
    (1024, 16, 1),  # a unit of a transpose spans eight tiles
    (1024, 32, 1),
    (1280, 1280, 20),
    (1536, 1536, 12),
    (1792, 1792, 28),
    (2304, 2304, 36),
    (2048, 64, 1),
    (2048, 128, 1),
    (3072, 512, 4),  # six blocks of 4 x 128
]
LARGE = [
    (2048, 2048, 1),
    (2560, 512, 1),
    (4096, 4096, 1),
    (4096, 256, 1),
    (5120, 1024, 1),
    (6144, 6144, 12),
    (6144, 3072, 12),
    (7168, 7168, 28),
    (7168, 1024, 1),
    (8192, 8192, 1),
]


def name_of(structure: tuple[int, int, int]) -> str:
    """A readable test id: hidden = repeats x block(factor x power of two)."""
    hidden, block, order = structure
    return f"{hidden}={hidden // block}x({order}x{block // order})"


def gaussian(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Rows of unit variance in which a few channels are 200 times larger, as in real states."""
    x = rng.standard_normal(shape)
    outliers = rng.integers(0, shape[-1], max(1, shape[-1] // 512))
    x[..., outliers] *= 200.0
    return x


def slices_of_one(
    rotation: Rotation, x: Array, dtype: str, slices: int, **options: object
) -> Launch:
    """`unrotate` or `rotate`: x ``[T, A * H]`` in one tensor."""
    width = slices * rotation.hidden
    sources = [Source("x", a * rotation.hidden, width) for a in range(slices)]
    return Launch(rotation, dtype, x.shape[0], sources, {"x": encode(x, dtype)}, **options)  # type: ignore[arg-type]


def separate(
    rotation: Rotation,
    states: Sequence[Array],
    dtype: str,
    padding: Sequence[int],
    **options: object,
) -> Launch:
    """`unrotate_concat`: tensors of their own whose rows are ``padding`` elements apart, the
    padding holding a value that would be seen if it were read."""
    tensors: dict[str, Array] = {}
    sources = []
    for i, (state, pad) in enumerate(zip(states, padding, strict=True)):
        padded = np.full((state.shape[0], rotation.hidden + pad), np.nan)
        padded[:, : rotation.hidden] = state
        tensors[f"h{i}"] = encode(padded, dtype).reshape(-1)[: padded.size - pad or None]
        sources.append(Source(f"h{i}", 0, rotation.hidden + pad))
    return Launch(rotation, dtype, states[0].shape[0], sources, tensors, **options)  # type: ignore[arg-type]


def exact_slices(rotation: Rotation, x: Array, dtype: str, *, forward: bool = False) -> Array:
    """fp64 result for x ``[T, A * H]`` as ``[T * A, H]``, from the values ``dtype`` can hold."""
    stored = decode(encode(x, dtype), dtype).reshape(-1, rotation.hidden)
    return (rotate if forward else unrotate)(stored, rotation)


def rows(result: Array, rotation: Rotation) -> Array:
    """A result ``[T, A * H]`` as ``[T * A, H]``."""
    return result.reshape(-1, rotation.hidden)


def rotation_for(structure: tuple[int, int, int], seed: int = 0) -> Rotation:
    return make_rotation(*structure, seed=seed)
