# SPDX-License-Identifier: Apache-2.0
"""Finding the structure of a stored ``Q`` without knowing how it was made.

msModelSlim's residual rotation is ``Q = I ⊗ [diag(s) (Kᵀ ⊗ Hd_m)] c`` with one magnitude ``c``,
random signs ``s``, a table matrix ``K`` and the natural-order Hadamard matrix ``Hd_m``. None of the
tables is needed to take it apart again:

1. ``b`` is the number of non-zeros in row 0; the blocks on the diagonal are equal, the rest is
zero,
   every non-zero has the magnitude ``c``.
2. ``s`` := signs of the block's first column, ``N = diag(s) sign(block)``.
3. ``N = M ⊗ Hd_2`` holds when the four interleaved quarters of ``N`` are ``M, M, M, -M``. Peeling
off
   ``Hd_2`` as long as it holds leaves ``F`` with ``N = F ⊗ Hd_m`` and the largest possible ``m``.

``s`` absorbs the signs of ``F``'s first column, so ``F`` need not be the table matrix; the product
is the stored matrix all the same, and that is checked bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.rotation.transform import hadamard

#: Rows of Q handled at once, so that checking a 7168 x 7168 matrix needs little memory beside it.
ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class Structure:
    """``Q = I ⊗ [diag(signs) (factor ⊗ Hd_power)] scale``.

    Attributes:
        signs: fp32 ``[b]`` of ±1.
        factor: fp32 ``[k, k]`` of ±1.
        power: ``m``, a power of two; ``b = k * m``.
        scale: the magnitude ``c`` of Q's non-zeros, an fp32 value.
    """

    signs: torch.Tensor
    factor: torch.Tensor
    power: int
    scale: float

    @property
    def block(self) -> int:
        """Channels per block, ``b``."""
        return self.signs.shape[0]

    def block_matrix(self) -> torch.Tensor:
        """The block ``[b, b]`` in fp32: exactly the values that were stored."""
        sylvester = hadamard(self.power, self.factor.device, torch.float32)
        pattern = torch.kron(self.factor, sylvester) * self.signs[:, None]
        return pattern * torch.tensor(self.scale, dtype=torch.float32)

    def orthogonality_error(self) -> float:
        """Largest |(Q Qᵀ - I)_ij|, as ``Q Qᵀ = I ⊗ (F Fᵀ ⊗ I_m) m c²`` up to signs."""
        factor = self.factor.double()
        gram = factor @ factor.T * (self.power * self.scale**2)
        gram -= torch.eye(gram.shape[0], dtype=torch.float64)
        return float(gram.abs().max())


def factorise(q: torch.Tensor) -> Structure | None:
    """Return the structure of ``q`` fp32 ``[H, H]``, None when it has none (a dense rotation).

    The result multiplies out to ``q`` exactly. Whether ``q`` is orthogonal is another question.
    """
    size = q.shape[0]
    block_size = int(torch.count_nonzero(q[0]))
    if block_size == 0 or size % block_size != 0:
        return None
    block = q[:block_size, :block_size]
    scale = block[0, 0].abs()
    if scale == 0 or not bool((block.abs() == scale).all()):
        return None
    if not _repeats_along_diagonal(q, block):
        return None

    pattern = torch.signbit(block)
    first_column = pattern[:, 0].clone()
    # True stands for -1 from here on, so that a product of signs is an exclusive or.
    pattern = pattern ^ first_column[:, None]
    power = 1
    while pattern.shape[0] % 2 == 0 and _ends_in_hadamard_2(pattern):
        pattern = pattern[::2, ::2]
        power *= 2
    structure = Structure(
        signs=_as_signs(first_column),
        factor=_as_signs(pattern),
        power=power,
        scale=float(scale),
    )
    if not torch.equal(structure.block_matrix(), block):
        return None
    return structure


def _repeats_along_diagonal(q: torch.Tensor, block: torch.Tensor) -> bool:
    size, width = q.shape[0], block.shape[0]
    if width == size:
        return True
    for start in range(0, size, width):
        rows = q[start : start + width]
        if int(torch.count_nonzero(rows)) != width * width:
            return False
        if not torch.equal(rows[:, start : start + width], block):
            return False
    return True


def _ends_in_hadamard_2(pattern: torch.Tensor) -> bool:
    """True when ``pattern = M ⊗ Hd_2``, with True for -1."""
    upper_left = pattern[::2, ::2]
    return (
        torch.equal(upper_left, pattern[::2, 1::2])
        and torch.equal(upper_left, pattern[1::2, ::2])
        and torch.equal(upper_left, ~pattern[1::2, 1::2])
    )


def _as_signs(negative: torch.Tensor) -> torch.Tensor:
    return torch.where(negative, -1.0, 1.0).to(torch.float32).contiguous()
