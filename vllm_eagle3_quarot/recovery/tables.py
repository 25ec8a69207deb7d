# SPDX-License-Identifier: Apache-2.0
"""Tables of which both states are at hand: original ``E`` and rotated ``E' = E Q``.

The token embedding is one; its original stands in the original model, or in a draft that brings its
own copy. The head is another, ``W' = W diag(g) Q``, when the original model is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from vllm_eagle3_quarot.checkpoint.draft import EMBEDDING, DraftFacts
from vllm_eagle3_quarot.checkpoint.names import TARGET_EMBEDDING, TARGET_HEAD
from vllm_eagle3_quarot.checkpoint.pickled import PickledTensors
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError

ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class TablePair:
    """One table before and after.

    Attributes:
        what: in words.
        count: rows that both have.
        size: ``H``.
        scale: per channel of the original, fp32 ``[H]``: the final norm's for a head.
        centred: the mean of every original row is taken away first, as llm-compressor does.
    """

    what: str
    count: int
    size: int
    original: TensorIndex | PickledTensors
    original_name: str
    rotated: TensorIndex
    rotated_name: str
    scale: torch.Tensor | None = None
    centred: bool = False

    def rows(self, wanted: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The same rows of both, fp32 ``[n, H]``, original first."""
        before = self.original.read_rows(self.original_name, wanted)
        after = self.rotated.read_rows(self.rotated_name, wanted)
        return self._prepared(before), after.float()

    def spread(self, wanted: int, offset: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """About ``wanted`` rows spread evenly over the table, beginning at ``offset``."""
        step = max(1, self.count // wanted)
        return self.rows(list(range(offset % step, self.count, step))[:wanted])

    def ranges(self, wanted: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """About ``wanted`` rows in runs of :data:`ROWS_AT_ONCE`, spread evenly over the table."""
        runs = max(1, min(wanted, self.count) // ROWS_AT_ONCE)
        stride = self.count / runs
        for number in range(runs):
            start = int(number * stride)
            stop = min(start + ROWS_AT_ONCE, self.count)
            before = self.original.read_range(self.original_name, start, stop)
            after = self.rotated.read_range(self.rotated_name, start, stop)
            yield self._prepared(before), after.float()

    def as_centred(self) -> TablePair:
        """The pair under the assumption that the original was centred before rotating."""
        return replace(self, centred=True)

    def _prepared(self, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.float()
        if self.centred:
            rows = rows - rows.mean(1, keepdim=True)
        return rows if self.scale is None else rows * self.scale


def pairs_of_original(target: TargetFacts, original: TargetFacts) -> list[TablePair]:
    """Embedding and, where both models have a float one, head.

    Raises:
        UnsupportedPairError: the embeddings cannot be compared.
        CheckpointError: a file is broken.
    """
    name = original.tensors.first_of(TARGET_EMBEDDING)
    pairs = [_embedding_pair(target, original.tensors, name, f"{original.folder}")]
    before = original.tensors.first_of(TARGET_HEAD)
    after = target.tensors.first_of(TARGET_HEAD)
    norm = original.final_norm
    if before is None or after is None or norm is None:
        return pairs
    shapes = original.tensors.shape(before), target.tensors.shape(after)
    if shapes[0] != shapes[1] or shapes[0][-1] != pairs[0].size or norm.numel() != pairs[0].size:
        return pairs
    floats = (original.tensors, before), (target.tensors, after)
    if not all(index.read_range(name, 0, 1).is_floating_point() for index, name in floats):
        return pairs
    pairs.append(
        TablePair(
            what="head",
            count=shapes[0][0],
            size=shapes[0][1],
            original=original.tensors,
            original_name=before,
            rotated=target.tensors,
            rotated_name=after,
            scale=norm.float().flatten(),
        )
    )
    return pairs


def pairs_of_draft(target: TargetFacts, draft: DraftFacts) -> list[TablePair]:
    """The embedding, when the draft brings a copy of the original.

    Raises:
        UnsupportedPairError: it brings none, or one of another width.
        CheckpointError: a file is broken.
    """
    name = draft.name_of(EMBEDDING)
    return [_embedding_pair(target, draft.tensors, name, f"the draft {draft.folder}")]


def _embedding_pair(
    target: TargetFacts, witness: TensorIndex | PickledTensors, name: str | None, where: str
) -> TablePair:
    stored = target.tensors.first_of(TARGET_EMBEDDING)
    if stored is None:
        raise CheckpointError(
            f"{target.folder} has no token embedding under one of the names "
            f"{', '.join(TARGET_EMBEDDING)}"
        )
    if name is None:
        raise UnsupportedPairError(
            f"{where} has no token embedding, so there is nothing to compare the target's with. "
            "Pass the original model with --original-model-path"
        )
    shapes = witness.shape(name), target.tensors.shape(stored)
    if any(len(shape) != 2 for shape in shapes) or shapes[0][1] != shapes[1][1]:
        raise UnsupportedPairError(
            f"'{name}' of {where} has shape {shapes[0]}, the target's embedding {shapes[1]}; a "
            "rotation keeps the width. Pass the original of this very target"
        )
    count = min(shapes[0][0], shapes[1][0])
    if count == 0:
        raise CheckpointError(f"'{name}' of {where} has no rows")
    for index, table in ((witness, name), (target.tensors, stored)):
        if not index.read_range(table, 0, 1).is_floating_point():
            raise UnsupportedPairError(
                f"'{table}' is quantised in {where if index is witness else target.folder}; the "
                "rotation can be read off float tables only"
            )
    return TablePair(
        what="token embedding",
        count=count,
        size=shapes[0][1],
        original=witness,
        original_name=name,
        rotated=target.tensors,
        rotated_name=stored,
    )
