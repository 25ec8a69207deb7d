# SPDX-License-Identifier: Apache-2.0
"""Rotations to test with. Every one of them is non-symmetric, so that Q and Qᵀ never look alike."""

from __future__ import annotations

import json
from functools import cache, reduce
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

FIXTURES = Path(__file__).parents[1] / "fixtures"
REAL = FIXTURES / "msmodelslim_rotations"

#: Sizes of real models (hidden size, block size or -1), as pinned from the real tool.
REAL_FINGERPRINTS: dict[tuple[int, int], str] = {
    (int(key.split("/")[0]), int(key.split("/")[1])): value
    for key, value in json.loads((REAL / "fingerprints.json").read_text())["sha256"].items()
}


def sylvester(order: int) -> torch.Tensor:
    """Hadamard matrix of ±1 in natural order."""
    two = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    return reduce(torch.kron, [two] * (order.bit_length() - 1), torch.ones(1, 1))


def mersenne_signs(count: int, seed: int = 1234) -> torch.Tensor:
    """msModelSlim's signs: low bits of successive MT19937 outputs, 1 for a set bit and -1 else."""
    # torch seeds its CPU generator with the plain init_genrand(seed), which is what RandomState
    # does.
    bits = np.random.RandomState(seed).randint(0, 2**32, size=count, dtype=np.uint32) & 1
    return torch.from_numpy(bits.astype(np.float32)) * 2 - 1


@cache
def _factors() -> dict[int, torch.Tensor]:
    """The table matrices Kᵀ of order 12, 28 and 160: the pinned sign patterns without s."""
    stored = load_file(REAL / "signs.safetensors")
    return {int(k): mersenne_signs(int(k))[:, None] * v.float() for k, v in stored.items()}


def real_rotation(size: int, block: int = -1) -> torch.Tensor:
    """The very matrix that msModelSlim 26.1.0 makes for ``size``: ``I ⊗ [diag(s)(Kᵀ ⊗ Hd)] c``."""
    width = size if block < 0 else block
    order = next((k for k in (160, 28, 12) if width % k == 0 and _is_power_of_two(width // k)), 1)
    factor = _factors()[order] if order > 1 else torch.ones(1, 1)
    one = torch.kron(factor, sylvester(width // order)) * mersenne_signs(width)[:, None]
    scale = torch.tensor(1.0) / torch.sqrt(torch.tensor(float(width)))
    q = torch.zeros(size, size)
    for start in range(0, size, width):
        q[start : start + width, start : start + width] = one * scale
    return q


def hadamard_rotation(size: int, seed: int = 0) -> torch.Tensor:
    """A randomised Hadamard rotation of a power-of-two size."""
    signs = mersenne_signs(size, seed)
    return signs[:, None] * sylvester(size) / size**0.5


def dense_rotation(size: int, seed: int = 0) -> torch.Tensor:
    """A random orthogonal matrix without structure, fp32."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    return q.float()


def rotated(h: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """``h Q`` for every slice of ``h [T, A·H]``."""
    return (h.reshape(h.shape[0], -1, q.shape[0]) @ q).reshape(h.shape)


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


#: One of each kind, of sizes that a small model can have.
ROTATIONS = {
    "hadamard": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "blocks of 32": real_rotation(96, 32),
    "dense": dense_rotation(80),
}
