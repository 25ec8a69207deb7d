# SPDX-License-Identifier: Apache-2.0
"""The rotation of a target's residual stream as a value.

Its tensors are fp32 on the CPU whatever torch's defaults are: an engine makes rotations while it
builds a model, with its accelerator as the default device and the model's dtype as the default.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from vllm_eagle3_quarot.checkpoint.sidecar import REMEDY, read_rotation_tensor
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import RotationError
from vllm_eagle3_quarot.rotation import transform
from vllm_eagle3_quarot.rotation.factorisation import Structure, factorise
from vllm_eagle3_quarot.rotation.row_blocks import row_blocks
from vllm_eagle3_quarot.rotation.transform import Plan

Kind = Literal["hadamard", "block-hadamard", "dense"]

#: Largest |(Q Qᵀ - I)_ij| of a usable rotation. Stored fp32 rotations of 2048 … 8192 channels stay
#: below 3e-6 (fp32 products included); one wrong sign in a 7168-channel Hadamard gives 2.8e-4.
ORTHOGONALITY_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Rotation:
    """An orthogonal ``Q`` ``[H, H]`` with ``h' = h Q`` (row vectors), factorised where possible.

    Make one with :meth:`from_checkpoint` or :meth:`from_dense`. Two rotations are the same when
    their fingerprints are.

    Attributes:
        size: ``H``.
        structure: the factors of a (block-)Hadamard rotation; None for a dense one.
        matrix: fp32 ``[H, H]`` of a dense rotation; None for a structured one.
        source: where it came from, for messages.
        assumption: what was assumed to rebuild it, so that somebody's numbers have to confirm it;
            None for one that was read or follows from the record.
    """

    size: int
    structure: Structure | None
    matrix: torch.Tensor | None
    source: str
    assumption: str | None = None

    @classmethod
    def from_checkpoint(cls, path: str | Path) -> Rotation:
        """Read, check and factorise the rotation that a checkpoint brings as its sidecar.

        Raises:
            CheckpointError: the folder's configuration cannot be read.
            RotationError: no sidecar, or one that is broken, of the wrong size or not orthogonal.
        """
        facts = TargetFacts.from_folder(Path(path))
        if facts.sidecar is None:
            raise RotationError(
                f"{facts.folder} brings no rotation: neither its description nor the file "
                f"optional/quarot.safetensors has one. If the target is rotated: {REMEDY}"
            )
        return cls.from_file(facts.sidecar, hidden_size=facts.hidden_size)

    @classmethod
    def from_file(cls, path: str | Path, *, hidden_size: int) -> Rotation:
        """Read, check and factorise tensor ``global_rotation`` fp32 ``[H, H]`` of one file.

        Raises:
            RotationError: the file is unreadable, or the matrix is not a rotation of
                ``hidden_size`` channels; the message names the file and the remedy.
        """
        tensor = read_rotation_tensor(Path(path))
        if tensor.dtype != torch.float32:
            raise RotationError(
                f"{path}: 'global_rotation' is {_dtype_name(tensor)} where float32 is expected: "
                f"{REMEDY}"
            )
        if tuple(tensor.shape) != (hidden_size, hidden_size):
            raise RotationError(
                f"{path}: 'global_rotation' has shape {tuple(tensor.shape)}, but the target's "
                f"hidden size is {hidden_size}. It belongs to another model: {REMEDY}"
            )
        return cls.from_dense(tensor, source=str(path))

    @classmethod
    def from_dense(cls, q: torch.Tensor, *, source: str = "a matrix in memory") -> Rotation:
        """Check and factorise ``q``, fp32 or fp64 ``[H, H]`` (kept as fp32).

        Raises:
            RotationError: not square, not floating point of at least 32 bits, not finite or not
                orthogonal within :data:`ORTHOGONALITY_TOLERANCE`.
        """
        if q.dim() != 2 or q.shape[0] != q.shape[1] or q.shape[0] == 0:
            raise RotationError(
                f"{source}: a rotation is a square matrix, this tensor has shape {tuple(q.shape)}: "
                f"{REMEDY}"
            )
        if q.dtype not in (torch.float32, torch.float64):
            raise RotationError(
                f"{source}: a rotation is stored in float32, this one is {_dtype_name(q)}, too "
                f"coarse to be inverted by transposing: {REMEDY}"
            )
        # Adding zero turns -0.0 into 0.0, so that equal matrices have equal bytes (fingerprint).
        q = q.detach().to(device="cpu", dtype=torch.float32) + 0.0
        if not _is_finite(q):
            raise RotationError(f"{source}: the rotation has NaN or infinite entries: {REMEDY}")
        structure = factorise(q)
        error = orthogonality_error(q) if structure is None else structure.orthogonality_error()
        _require_orthogonal(error, source)
        matrix = q if structure is None else None
        return cls(size=q.shape[0], structure=structure, matrix=matrix, source=source)

    @classmethod
    def from_structure(
        cls, structure: Structure, size: int, *, source: str, assumption: str | None = None
    ) -> Rotation:
        """Check a rotation of ``size`` channels that is given by the factors of its block.

        Raises:
            RotationError: the block does not divide ``size``, or is not orthogonal.
        """
        if size % structure.block:
            raise RotationError(
                f"{source}: blocks of {structure.block} channels do not fill the target's hidden "
                f"size {size}: {REMEDY}"
            )
        _require_orthogonal(structure.orthogonality_error(), source)
        return cls(size, structure, None, source, assumption)

    @property
    def kind(self) -> Kind:
        """``hadamard``: one structured block; ``block-hadamard``: repeated; ``dense``: the rest."""
        if self.structure is None:
            return "dense"
        return "hadamard" if self.structure.block == self.size else "block-hadamard"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of Q's fp32 values in row order (little-endian, no negative zeros), as hex."""
        digest = hashlib.sha256()
        for rows in self.row_groups():
            digest.update(rows.numpy().astype("<f4", copy=False).tobytes())
        return digest.hexdigest()

    @cached_property
    def plan(self) -> Plan:
        """The factors as the operators take them, on the CPU; see :meth:`plan_on`."""
        if self.structure is None:
            assert self.matrix is not None
            return Plan(torch.ones(self.size, dtype=torch.float32, device="cpu"), self.matrix, 1)
        scale = torch.tensor(self.structure.scale, dtype=torch.float32, device="cpu")
        scaled = self.structure.signs * scale
        return Plan(scaled, self.structure.factor, self.structure.power)

    def plan_on(self, device: torch.device | str) -> Plan:
        """The factors on ``device``."""
        signs, factor, power = self.plan
        return Plan(signs.to(device), factor.to(device), power)

    def dense(self) -> torch.Tensor:
        """``Q`` in fp32 ``[H, H]``, equal to the stored matrix bit for bit."""
        return torch.cat(list(self.row_groups()))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x Q`` for ``x`` ``[..., H]``: fp32 arithmetic, one cast back to ``x``'s dtype.

        Raises:
            RotationError: the last axis is not ``H`` long.
        """
        self._check_width(x)
        return transform.rotate(x, self.plan_on(x.device))

    def unrotate(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x Qᵀ`` for ``x`` ``[..., H]``: fp32 arithmetic, one cast back to ``x``'s dtype.

        Raises:
            RotationError: the last axis is not ``H`` long.
        """
        self._check_width(x)
        return transform.unrotate(x, self.plan_on(x.device))

    def __str__(self) -> str:
        shape = ""
        if self.structure is not None:
            shape = f", block {self.structure.block}" if self.kind == "block-hadamard" else ""
            shape += f", {self.structure.factor.shape[0]} x {self.structure.power}"
        return f"{self.kind} rotation of {self.size} channels{shape}"

    def _check_width(self, x: torch.Tensor) -> None:
        if x.dim() == 0 or x.shape[-1] != self.size or not x.is_floating_point():
            raise RotationError(
                f"a tensor of shape {tuple(x.shape)} and dtype {_dtype_name(x)} cannot be "
                f"multiplied with a rotation of {self.size} channels; its last axis must be "
                f"{self.size} floats"
            )

    def row_groups(self) -> Iterator[torch.Tensor]:
        """Q's rows in order, in groups small enough not to double the memory of Q."""
        if self.structure is None:
            assert self.matrix is not None
            for start, stop in row_blocks(self.size, self.size):
                yield self.matrix[start:stop]
            return
        block = self.structure.block
        for first in range(0, self.size, block):
            for start, stop in row_blocks(block, self.size):
                rows = self.structure.block_rows(start, stop)
                if block < self.size:
                    rows = torch.nn.functional.pad(rows, (first, self.size - first - block))
                yield rows


def _is_finite(q: torch.Tensor) -> bool:
    return all(bool(torch.isfinite(q[start:stop]).all()) for start, stop in row_blocks(*q.shape))


def _require_orthogonal(error: float, source: str) -> None:
    if error > ORTHOGONALITY_TOLERANCE:
        raise RotationError(
            f"{source}: the matrix is not orthogonal (|Q Qᵀ - I| reaches {error:.1e}, allowed is "
            f"{ORTHOGONALITY_TOLERANCE:.0e}), so Qᵀ does not undo it: {REMEDY}"
        )


def orthogonality_error(q: torch.Tensor) -> float:
    """Largest |(q qᵀ - I)_ij|, accumulated in fp32, a group of rows at a time."""
    worst = 0.0
    for start, stop in row_blocks(*q.shape):
        gram = q[start:stop] @ q.T
        rows = torch.arange(gram.shape[0], device=gram.device)
        gram[rows, start + rows] -= 1
        worst = max(worst, float(gram.abs().max()))
    return worst


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
