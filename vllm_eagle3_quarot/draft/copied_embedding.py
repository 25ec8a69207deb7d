# SPDX-License-Identifier: Apache-2.0
"""The original token embedding, un-rotated from the rotated target's files: ``E = E' Qᵀ``.

For a draft that cannot share the target's table, because the process that runs the draft has none:
in a pipeline only the first stage loads it, and drafts run on the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.rotation.rotation import Rotation
from vllm_eagle3_quarot.rotation.row_blocks import row_blocks

REMEDY = "Serve it without pipeline parallelism, or use a draft with a trained embedding of its own"

#: Dtypes whose numbers are the rows themselves; others come with scales.
STORED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class CopiedEmbedding:
    """Rows of ``E``, read when asked for.

    Attributes:
        target: the rotated target.
        name: its token table ``E'`` ``[V, H]``, stored unquantised.
        rotation: ``Q``.
    """

    target: TargetFacts
    name: str
    rotation: Rotation

    @classmethod
    def of(cls, target: TargetFacts, rotation: Rotation, vocabulary: int) -> CopiedEmbedding:
        """Find the table, and check that it has a row for each of the draft's V ids.

        Raises:
            UnsupportedPairError: there is none, or it cannot be un-rotated row by row.
        """
        name = target.tensors.first_of(TARGET_EMBEDDING)
        if name is None:
            raise UnsupportedPairError(
                f"{target.folder}: on a later stage of a pipeline the draft needs a copy of the "
                "target's token embedding, and the checkpoint has none under one of the names "
                f"{', '.join(TARGET_EMBEDDING)}. {REMEDY}"
            )
        shape = target.tensors.shape(name)
        if len(shape) != 2 or shape[0] < vocabulary or shape[1] != rotation.size:
            raise UnsupportedPairError(
                f"{target.folder}: '{name}' is {list(shape)}, where the draft needs a row of "
                f"{rotation.size} channels for each of its {vocabulary} ids. {REMEDY}"
            )
        dtype = target.tensors.read_range(name, 0, 1).dtype
        if dtype not in STORED_DTYPES:
            raise UnsupportedPairError(
                f"{target.folder}: '{name}' is quantised ({dtype}), so rows cannot be un-rotated "
                f"from it. {REMEDY}"
            )
        return cls(target, name, rotation)

    def blocks(self, start: int, stop: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Rows ``start`` to ``stop``: number of a block's first row, and the block fp32 ``[n, H]``.

        One block at a time is read and held, whatever the size of the table.
        """
        for first, end in row_blocks(stop - start, self.rotation.size):
            rows = self.target.tensors.read_range(self.name, start + first, start + end)
            yield start + first, self.rotation.unrotate(rows.float())
