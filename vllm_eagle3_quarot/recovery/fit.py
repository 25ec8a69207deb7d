# SPDX-License-Identifier: Apache-2.0
"""How well a rotation explains a table before and after."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.rotation.rotation import Rotation, orthogonality_error

#: Largest relative error ``|E Q - E'| / |E'|`` of a rotation that explains a table: rounding both
#: tables to bf16 leaves 1.6e-3 to 2.4e-3, fp16 less.
EXPLAINED = 1e-2

#: The same for a (block-)Hadamard form, which is a matter of signs: another one leaves 1.4, so a
#: witness that was trained a little further is good enough to tell.
EXPLAINED_BY_SIGNS = 0.3

#: Correlation of angles from which on a remainder counts as linear in the rows: independent ones
#: stay below 1/n for n rows, a remainder of rank r in H channels reaches √(r/H).
LINEAR = 0.05


@dataclass(frozen=True)
class Fit:
    """A rotation measured on rows of a table.

    Attributes:
        residual: ``|E Q - E'| / |E'|``.
        min_cosine: smallest cosine of a channel of ``E' Qᵀ`` with that channel of ``E``; channels
            that are zero everywhere do not count.
        orthogonality: largest ``|Q Qᵀ - I|``.
        rows: rows that were looked at.
    """

    residual: float
    min_cosine: float
    orthogonality: float
    rows: int


def measure(rotation: Rotation, before: torch.Tensor, after: torch.Tensor) -> Fit:
    """Measure ``rotation`` on rows ``[n, H]`` fp32 of both tables."""
    if rotation.structure is not None:
        orthogonality = rotation.structure.orthogonality_error()
    else:
        assert rotation.matrix is not None
        orthogonality = orthogonality_error(rotation.matrix)
    back = rotation.unrotate(after)
    lengths = back.norm(dim=0) * before.norm(dim=0)
    cosines = ((back * before).sum(0) / lengths)[lengths > 0]
    return Fit(
        residual=residual(rotation, before, after),
        min_cosine=float(cosines.min()) if cosines.numel() else 0.0,
        orthogonality=orthogonality,
        rows=before.shape[0],
    )


def residual(rotation: Rotation, before: torch.Tensor, after: torch.Tensor) -> float:
    """``|E Q - E'| / |E'|`` on rows of both tables."""
    difference = rotation.rotate(before) - after
    return float(difference.norm() / after.norm().clamp_min(1e-30))


def leaves_a_rotation(rotation: Rotation, before: torch.Tensor, after: torch.Tensor) -> bool:
    """True when what ``rotation`` does not explain depends linearly on the rows.

    So it does for ``E' = E Q (I + D)``, a Hadamard matrix that was trained a little further: then
    ``r = E Q D``, and angles between rows of ``r`` follow those between rows of ``E``. What a
    witness has moved by itself since it was copied has angles of its own.
    """
    turned = rotation.rotate(before)
    grams = [rows @ rows.T for rows in (turned, after - turned)]
    beside = ~torch.eye(len(before), dtype=torch.bool)
    pairs = torch.stack([gram[beside] for gram in grams])
    return len(before) > 2 and float(torch.corrcoef(pairs)[0, 1]) > LINEAR


def explains(rotation: Rotation, error: float) -> bool:
    """True when ``error`` is small enough for the kind of ``rotation``."""
    return error < (EXPLAINED if rotation.structure is None else EXPLAINED_BY_SIGNS)
