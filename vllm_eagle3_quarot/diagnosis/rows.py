# SPDX-License-Identifier: Apache-2.0
"""What a few rows of two tables tell about each other."""

from __future__ import annotations

import torch

from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.pickled import PickledTensors
from vllm_eagle3_quarot.checkpoint.target import TargetFacts, sample_rows
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex

#: Relative difference of ``E E^T`` and ``E' E'^T`` at which an orthogonal matrix relates the
#: tables; rounding both to bf16 leaves below 5e-3, unrelated tables about 1.4.
SAME_ANGLES = 3e-2


def same_rows(
    target: TargetFacts, index: TensorIndex | PickledTensors, name: str | None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The same rows of the target's token embedding and of table ``name``, fp32 ``[n, H]``.

    None when they cannot be compared.
    """
    stored = target.tensors.first_of(TARGET_EMBEDDING)
    if stored is None or name is None:
        return None
    shape, own = target.tensors.shape(stored), index.shape(name)
    if len(shape) != 2 or len(own) != 2 or shape[1] != own[1] or 0 in (*shape, *own):
        return None
    rows = sample_rows(min(shape[0], own[0]))
    both = target.tensors.read_rows(stored, rows).float(), index.read_rows(name, rows).float()
    return both if all(bool(torch.isfinite(part).all()) for part in both) else None


def same_angles(stored: torch.Tensor, own: torch.Tensor) -> bool:
    """True when an orthogonal matrix maps ``own`` to ``stored``, perhaps after centring rows."""
    gram = stored @ stored.T
    return any(
        float((rows @ rows.T - gram).norm()) < SAME_ANGLES * float(gram.norm())
        for rows in (own, own - own.mean(1, keepdim=True))
    )


def mean_cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """Mean cosine of the same rows of both."""
    return float(torch.nn.functional.cosine_similarity(a.float(), b.float(), dim=1).mean())


def spread(rows: torch.Tensor) -> float:
    """Standard deviation of column lengths over their mean."""
    lengths = rows.norm(dim=0)
    return float(lengths.std() / lengths.mean().clamp_min(1e-12))
