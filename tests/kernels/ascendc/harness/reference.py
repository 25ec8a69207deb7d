# SPDX-License-Identifier: Apache-2.0
"""The ops in fp64, the 16-bit formats, and what counts as a correct result.

Row vectors: ``h' = h @ Q`` with ``Q = I (x) [diag(s) (F (x) Hd_m)]``. Only numpy, and written
from the definition (explicit +-1 tables, ``np.kron``), not from the kernel's schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MANTISSA_BITS = {"bf16": 7, "f16": 10, "f32": 23}
MIN_EXPONENT = {"bf16": -126, "f16": -14, "f32": -126}
MAX_FINITE = {"bf16": 3.3895313892515355e38, "f16": 65504.0, "f32": float(np.finfo("f4").max)}


@dataclass(frozen=True)
class Rotation:
    """A factorised Q: ``signs`` are ``block`` times +-1, ``factor`` is a k x k matrix of +-1."""

    hidden: int
    block: int
    factor: Array
    pow2: int
    signs: Array

    @property
    def order(self) -> int:
        """k, the size of the small factor."""
        return int(self.factor.shape[0])

    @property
    def scale(self) -> Array:
        """s for a whole row, fp32 ``[hidden]``: signs times 1/sqrt(block)."""
        block = (self.signs / np.sqrt(self.block)).astype(np.float32)
        return np.tile(block, self.hidden // self.block)

    def dense(self) -> Array:
        """Q as an fp64 ``[hidden, hidden]`` matrix, with the fp32 rounding of s that the op has."""
        hadamard = np.ones((1, 1))
        while hadamard.shape[0] < self.pow2:
            hadamard = np.kron(np.array([[1.0, 1.0], [1.0, -1.0]]), hadamard)
        block = self.scale[: self.block, None].astype(np.float64) * np.kron(self.factor, hadamard)
        return np.kron(np.eye(self.hidden // self.block), block)


def paley_hadamard(order: int) -> Array:
    """A Hadamard matrix of order 4, 12, 20, 28 or 36 by Paley's constructions.

    R. E. A. C. Paley, "On orthogonal matrices", J. Math. Phys. 12 (1933).
    """

    def jacobsthal(prime: int) -> Array:
        squares = {i * i % prime for i in range(1, prime)}
        values = np.array([0] + [1 if i in squares else -1 for i in range(1, prime)])
        index = np.arange(prime)
        return values[(index[:, None] - index[None, :]) % prime]

    first = {4: 3, 12: 11, 20: 19}
    if order in first:
        prime = first[order]
        core = np.zeros((order, order), dtype=int)
        core[0, 1:] = 1
        core[1:, 0] = -1
        core[1:, 1:] = jacobsthal(prime)
        return core + np.eye(order, dtype=int)
    prime = {28: 13, 36: 17}[order]
    core = np.zeros((prime + 1, prime + 1), dtype=int)
    core[0, 1:] = core[1:, 0] = 1
    core[1:, 1:] = jacobsthal(prime)
    diagonal = np.eye(prime + 1, dtype=int)
    return np.kron(core, [[1, 1], [1, -1]]) + np.kron(diagonal, [[1, -1], [-1, -1]])


def make_rotation(hidden: int, block: int, order: int, seed: int = 0) -> Rotation:
    """A rotation with random signs; a factor > 1 gets random row and column permutations and
    signs, so that it is not symmetric and a transposed use is seen."""
    rng = np.random.default_rng([seed, hidden, block, order])
    factor = np.ones((1, 1), dtype=int)
    if order > 1:
        factor = paley_hadamard(order)
        factor = factor[rng.permutation(order)][:, rng.permutation(order)]
        factor = factor * rng.choice([-1, 1], order) * rng.choice([-1, 1], order)[:, None]
        assert not np.array_equal(factor, factor.T)
    assert np.array_equal(factor @ factor.T, order * np.eye(order, dtype=int))
    return Rotation(hidden, block, factor, block // order, rng.choice([-1.0, 1.0], block))


def hadamard_rows(x: Array) -> Array:
    """x Hd_m along the last axis, natural order, fp64 in and out."""
    m = x.shape[-1]
    y = x.astype(np.float64)
    stride = 1
    while stride < m:
        pairs = y.reshape(*x.shape[:-1], m // (2 * stride), 2, stride)
        y = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2)
        y = y.reshape(x.shape)
        stride *= 2
    return y


def unrotate(x: Array, rotation: Rotation) -> Array:
    """x Q^T for ``x`` of shape ``[..., hidden]``, fp64."""
    tiles = x.astype(np.float64).reshape(-1, rotation.order, rotation.pow2)
    mixed = np.matmul(rotation.factor.astype(np.float64), hadamard_rows(tiles))
    return mixed.reshape(x.shape) * rotation.scale.astype(np.float64)


def rotate(x: Array, rotation: Rotation) -> Array:
    """x Q for ``x`` of shape ``[..., hidden]``, fp64."""
    scaled = x.astype(np.float64) * rotation.scale.astype(np.float64)
    tiles = scaled.reshape(-1, rotation.order, rotation.pow2)
    mixed = np.matmul(rotation.factor.T.astype(np.float64), hadamard_rows(tiles))
    return mixed.reshape(x.shape)


def rms_normalise(y: Array, gamma: Array, epsilon: float) -> Array:
    """RMSNorm along the last axis, fp64."""
    return y / np.sqrt(np.mean(np.square(y), axis=-1, keepdims=True) + epsilon) * gamma


def encode(values: Array, dtype: str) -> Array:
    """fp64 to the storage of ``dtype``, correctly rounded (once, ties to even)."""
    if dtype == "f32":
        return values.astype(np.float32)
    if dtype == "f16":
        with np.errstate(over="ignore"):  # overflow is infinity, as on the device
            return values.astype(np.float16)
    # fp64 -> fp32 rounded to odd, so that the second rounding cannot see a false tie.
    single = values.astype(np.float32)
    exact = single.astype(np.float64) == values
    bits = single.view(np.uint32).astype(np.int64)
    too_far = np.abs(single.astype(np.float64)) > np.abs(values)
    odd = (bits - too_far) | 1
    bits = np.where(exact | ~np.isfinite(values), bits, odd)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = ((bits >> 16) & 0xFFFF) | 0x40
    return np.where(np.isnan(values), nan, rounded).astype(np.uint16)


def decode(stored: Array, dtype: str) -> Array:
    """Storage of ``dtype`` to fp64."""
    if dtype == "bf16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def ulp(values: Array, dtype: str) -> Array:
    """Distance between neighbours of ``dtype`` at each value."""
    _, exponent = np.frexp(np.abs(values))
    exponent = np.maximum(exponent - 1, MIN_EXPONENT[dtype])
    return np.ldexp(1.0, exponent - MANTISSA_BITS[dtype])


def accept(stored: Array, exact: Array, dtype: str) -> None:
    """The acceptance rule of every numerics test.

    At least 99.9 % of 16-bit outputs equal the correctly rounded fp64 value, and none is off by
    more than one ulp of the output plus 2^-20 of its row's norm: the arithmetic is fp32, whose
    rounding errors grow with the row, not with the single output. fp32 outputs carry those errors
    themselves and only meet the second bound.
    """
    got = decode(stored, dtype)
    want = decode(encode(exact, dtype), dtype)
    special = ~np.isfinite(want)
    np.testing.assert_array_equal(got[special], want[special])
    norm = np.sqrt(np.sum(np.square(np.where(special, 0.0, exact)), axis=-1, keepdims=True))
    bound = ulp(np.where(special, 0.0, exact), dtype) + 2.0**-20 * norm
    error = np.where(
        special, 0.0, np.abs(np.where(special, 0.0, got) - np.where(special, 0.0, exact))
    )
    worst = float(np.max(error / bound, initial=0.0))
    assert worst <= 1.0, f"an output is off by {worst:.3g} times the bound"
    if dtype != "f32" and got.size:
        equal = float(np.mean((got == want) | (np.isnan(got) & np.isnan(want))))
        assert equal >= 0.999, f"only {equal:.5%} of the outputs are correctly rounded"
