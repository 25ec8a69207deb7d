# SPDX-License-Identifier: Apache-2.0
"""How often a draft's first proposal is the target's next token, in three bases.

A prompt is continued greedily by the target. At every continued position the draft gets what an
engine would give it, and its proposal is compared with the token that the target took. With ``h'``
the target's states and ``Q`` the rotation at hand:

* ``rotation``: ``h' Qᵀ``, what the plugin does;
* ``transposed``: ``h' Q``, right if the file holds the transpose;
* ``identity``: ``h'``, right for a target that is not rotated and for a draft that was aligned.

Embedding rows and head go through the same basis when they are the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.aux_states import AuxStates, default_layers
from vllm_eagle3_quarot.draft.embedding import choose_embedding
from vllm_eagle3_quarot.draft.final_norm import find_final_norm
from vllm_eagle3_quarot.errors import ProbeError, QuaRotError
from vllm_eagle3_quarot.probe.draft_model import DraftModel
from vllm_eagle3_quarot.probe.target_model import Observation, TargetModel
from vllm_eagle3_quarot.rotation.rotation import Rotation

ROTATION, TRANSPOSED, IDENTITY = "rotation", "transposed", "identity"

#: Questions as users ask them; a draft is trained on chats.
PROMPTS = (
    "What is the capital of France, and what is it known for?",
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Explain how a refrigerator works, step by step.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "List five tips for someone who learns to cook.",
    "A farmer has 17 sheep and buys 5 more than twice as many. How many has he now?",
)

#: Tokens of a continuation, and how many of them are not counted: on a prompt unlike anything that
#: a small model was trained on, target and draft disagree at first in every basis.
CONTINUATION = 64
UNCOUNTED = 32

LONGEST_PROMPT = 256

#: Called with the share of the prompts that a step has dealt with.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Agreement:
    """What a probe measured.

    Attributes:
        prompts: how many were continued.
        positions: how many proposals were compared in each basis.
        shares: basis to share of proposals that were the target's token, 0 … 1.
    """

    prompts: int
    positions: int
    shares: Mapping[str, float]

    def document(self) -> dict[str, object]:
        """As it stands in the JSON output; null for a basis that needs a rotation."""
        shares = {basis: self.shares.get(basis) for basis in (ROTATION, TRANSPOSED, IDENTITY)}
        return {"prompts": self.prompts, "positions": self.positions, "agreement": shares}


def measure_agreement(
    target: TargetFacts,
    draft: DraftFacts,
    aux: AuxStates,
    rotation: Rotation | None,
    *,
    original: Path | None = None,
    prompts: Sequence[str] | None = None,
    progress: Progress = lambda share: None,
) -> Agreement:
    """Run the pair on ``prompts`` (as they stand), or on :data:`PROMPTS` as chats.

    Raises:
        ProbeError: the pair cannot be run here.
        CheckpointError: a file is broken.
    """
    small, model = DraftModel(draft, aux.count), TargetModel(target)
    bases = [
        _Basis(name, model, target, small, draft, aux, rotation, original)
        for name in ((ROTATION, TRANSPOSED, IDENTITY) if rotation is not None else (IDENTITY,))
    ]
    hits = dict.fromkeys((basis.name for basis in bases), 0)
    positions = 0
    texts = PROMPTS if prompts is None else prompts
    for text in texts:
        ids = model.encode(text, as_chat=prompts is None)[-LONGEST_PROMPT:]
        if not len(ids):
            raise ProbeError(f"the prompt {text!r} has no tokens")
        seen = model.observe(ids, CONTINUATION, _layers(target, aux))
        # The proposal made at t is for t + 2; what the target chose starts at seen.prompt.
        first = max(0, seen.prompt + UNCOUNTED - 2)
        wanted = seen.tokens[first + 2 :]
        for basis in bases:
            proposed = basis.proposals(seen)[first : first + len(wanted)]
            hits[basis.name] += int((proposed == wanted).sum())
        positions += len(wanted)
        progress(1 / len(texts))
    if not positions:
        raise ProbeError(
            f"{target.folder}: the target ends every continuation within {UNCOUNTED} tokens; give "
            "other prompts with --prompts"
        )
    return Agreement(len(texts), positions, {name: hits[name] / positions for name in hits})


class _Basis:
    """One way of giving the draft what it reads."""

    def __init__(
        self,
        name: str,
        model: TargetModel,
        target: TargetFacts,
        small: DraftModel,
        draft: DraftFacts,
        aux: AuxStates,
        rotation: Rotation | None,
        original: Path | None,
    ) -> None:
        self.name = name
        self._model, self._small, self._aux = model, small, aux
        self._rotation = rotation
        self._own_table = small.own_embedding()
        if name != IDENTITY and rotation is not None:
            # Only who corrects replaces a table of the draft's, e.g. one that was never trained.
            taken = _takes_targets_table(target, draft, rotation)
            self._own_table = None if taken else self._own_table
        self._own_head = small.own_head()
        self._scale: torch.Tensor | None = None
        reads_norm = self._own_head is None or aux.count == 0
        if name != IDENTITY and reads_norm:
            assert rotation is not None
            try:
                self._scale = find_final_norm(target, draft, rotation, original).scale
            except QuaRotError as error:
                raise ProbeError(str(error)) from error

    def proposals(self, seen: Observation) -> torch.Tensor:
        """Target ids proposed at positions ``0 … T - 2``."""
        following = seen.tokens[1:]
        states = seen.states[:-1]
        if self._aux.count:
            states = self._undone(states.unflatten(-1, (self._aux.count, -1))).flatten(-2)
        else:
            states = self._undone(states) * (1.0 if self._scale is None else self._scale)
        if self._own_table is not None:
            embedded = self._own_table[following]
        else:
            embedded = self._undone(self._model.embedding(following))
        answer = self._small.step(embedded, states)
        if self._own_head is not None:
            return self._small.words((answer @ self._own_head.T).argmax(-1))
        if self._scale is not None:
            answer = self._redone(answer / self._scale)
        return self._small.words((answer @ self._model.head().T).argmax(-1))

    def _undone(self, x: torch.Tensor) -> torch.Tensor:
        if self._rotation is None or self.name == IDENTITY:
            return x
        turn = self._rotation.unrotate if self.name == ROTATION else self._rotation.rotate
        return turn(x.contiguous())

    def _redone(self, x: torch.Tensor) -> torch.Tensor:
        assert self._rotation is not None
        turn = self._rotation.rotate if self.name == ROTATION else self._rotation.unrotate
        return turn(x)


def _takes_targets_table(target: TargetFacts, draft: DraftFacts, rotation: Rotation) -> bool:
    """True when the plugin would use the target's table."""
    try:
        return choose_embedding(target, draft, rotation, strict=True) == "shared"
    except QuaRotError:
        return False  # the tables contradict the rotation; the draft's own shows by how much


def _layers(target: TargetFacts, aux: AuxStates) -> tuple[int, ...]:
    if not aux.count:
        return ()
    depth = target.layer_count
    if aux.layers is not None:
        layers = aux.layers
    elif depth is not None:
        layers = default_layers(depth)
    else:
        raise ProbeError(f"{target.folder}: the number of layers is not stated")
    if depth is not None and not all(0 <= layer <= depth for layer in layers):
        raise ProbeError(f"{target.folder}: the draft reads layers {layers} of {depth}")
    return layers
