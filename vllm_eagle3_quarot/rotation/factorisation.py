# SPDX-License-Identifier: Apache-2.0
"""Finding the structure of a stored ``Q`` without knowing how it was made.

msModelSlim's residual rotation is ``Q = I ⊗ [diag(s) (Kᵀ ⊗ Hd_m)] c`` with one magnitude ``c``,
random signs ``s``, a table matrix ``K`` and the natural-order Hadamard matrix ``Hd_m``. None of the
tables is needed to take it apart again:

1. ``b`` is the number of non-zeros in row 0; the blocks on the diagonal are equal, the rest is
   zero, ``c`` is the magnitude of the first entry.
2. ``s`` := signs of the block's first column, ``N = diag(s) sign(block)``.
3. ``m`` is the largest power of two for which ``F ⊗ Hd_m`` is ``N``. Every m-th row and column of
   ``N`` are the only possible ``F``, since ``Hd_m`` begins with a one.

``s`` absorbs the signs of ``F``'s first column, so ``F`` need not be the table matrix; the product
is compared with the stored matrix bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.rotation.row_blocks import row_blocks
from vllm_eagle3_quarot.rotation.transform import LARGEST_RADIX, hadamard

#: Largest order of ``F``. Real tables end at 160; a larger one would be no shorter than ``Q``.
LARGEST_FACTOR = 512


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

    def block_rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows ``start`` to ``stop`` of the block, fp32 ``[stop - start, b]``, as stored."""
        row = torch.arange(start, stop, device=self.factor.device)
        # Hd_m is the product of a coarse and a fine one, of which no large matrix is needed.
        fine = min(self.power, LARGEST_RADIX)
        coarse = self.power // fine
        factors = self.factor[row // self.power]
        coarse_rows = hadamard(coarse, row.device, torch.float32)[row // fine % coarse]
        fine_rows = hadamard(fine, row.device, torch.float32)[row % fine]
        scale = torch.tensor(self.scale, dtype=torch.float32, device=self.factor.device)
        scaled = fine_rows * (self.signs[row, None] * scale)
        signs = factors[:, :, None] * coarse_rows[:, None, :]
        return (signs[:, :, :, None] * scaled[:, None, None, :]).reshape(-1, self.block)

    def equals(self, block: torch.Tensor) -> bool:
        """True when this is the block ``[b, b]``, bit for bit but for the sign of a zero."""
        return all(
            torch.equal(self.block_rows(start, stop), block[start:stop])
            for start, stop in row_blocks(self.block, self.block)
        )

    def orthogonality_error(self) -> float:
        """Largest |(Q Qᵀ - I)_ij|, as ``Q Qᵀ = I ⊗ (F Fᵀ ⊗ I_m) m c²`` up to signs."""
        factor = self.factor.double()
        gram = factor @ factor.T * (self.power * self.scale**2)
        gram -= torch.eye(gram.shape[0], dtype=torch.float64, device=gram.device)
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
    scale = float(block[0, 0].abs())
    if scale == 0 or not bool((block[0].abs() == scale).all()):
        return None
    if not _repeats_along_diagonal(q, block):
        return None
    signs = _signs_of(block[:, 0])
    power = block_size & -block_size  # the largest power of two that divides the size
    while power and block_size // power <= LARGEST_FACTOR:
        factor = _signs_of(block[::power, ::power]) * signs[::power, None]
        structure = Structure(signs=signs, factor=factor, power=power, scale=scale)
        if structure.equals(block):
            return structure
        power //= 2
    return None


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


def _signs_of(values: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.signbit(values), -1.0, 1.0).to(torch.float32).contiguous()
