# SPDX-License-Identifier: Apache-2.0
"""Facts about an Eagle3 draft: which tensors it brings, and of which shape.

Three families of files exist: the plain one of EAGLE and SpecForge (``midlayer.*``), vLLM's own
(``layers.0.*``) and speculators' (a nested configuration and left-overs of training such as
``verifier_norm.weight``). Outside the decoder layers they agree on the names of :data:`ROLES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from vllm_eagle3_quarot.checkpoint.json_file import as_object, read_json_object
from vllm_eagle3_quarot.checkpoint.marker import AlignmentMarker
from vllm_eagle3_quarot.checkpoint.pickled import PickledTensors
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE
from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
from vllm_eagle3_quarot.errors import CheckpointError

EMBEDDING = "embed_tokens.weight"
HEAD = "lm_head.weight"
PROJECTION = "fc.weight"
OFFSETS = "d2t"
MEMBERSHIP = "t2d"
VERIFIER_NORM = "verifier_norm.weight"
VERIFIER_HEAD = "verifier_lm_head.weight"
INPUT_NORM = "input_norm.weight"
MASK_STATE = "mask_hidden"

#: Every name under which a tensor of one role is stored.
ROLES: Mapping[str, tuple[str, ...]] = {
    EMBEDDING: ("embed_tokens.weight", "model.embed_tokens.weight"),
    HEAD: ("lm_head.weight",),
    PROJECTION: ("fc.weight", "model.fc.weight"),
    OFFSETS: ("d2t",),
    MEMBERSHIP: ("t2d",),
    VERIFIER_NORM: ("verifier_norm.weight",),
    VERIFIER_HEAD: ("verifier_lm_head.weight",),
    INPUT_NORM: ("input_norm.weight", "model.input_norm.weight"),
    MASK_STATE: ("mask_hidden",),
}


def aux_norm(index: int) -> tuple[str, ...]:
    """Names under which the norm of aux state ``index`` is stored (``fc_norm``)."""
    return (f"fc_norm.{index}.weight", f"model.fc_norm.{index}.weight")


@dataclass(frozen=True)
class DraftFacts:
    """What the files of a draft say.

    Attributes:
        folder: the checkpoint.
    """

    folder: Path

    @cached_property
    def config(self) -> Mapping[str, object]:
        """The configuration, with speculators' nested layer configuration spread out.

        Raises:
            CheckpointError: missing or broken.
        """
        path = self.folder / CONFIG_FILE
        config = read_json_object(path)
        if config.get("transformer_layer_config") is None:
            return config
        nested = as_object(config["transformer_layer_config"], path, "transformer_layer_config")
        return {**nested, **config}

    @cached_property
    def tensors(self) -> TensorIndex | PickledTensors:
        """Lazy index of the weights, safetensors first, ``.bin`` else.

        Raises:
            CheckpointError: an index or a header is broken.
        """
        index = TensorIndex.from_folder(self.folder)
        return index if index.files else PickledTensors.from_folder(self.folder)

    @cached_property
    def alignment(self) -> AlignmentMarker | None:
        """The mark of a draft that was aligned offline, None for any other.

        Raises:
            CheckpointError: configuration or header are broken, or the mark is damaged.
        """
        marker = AlignmentMarker.from_document(self.config, self.folder / CONFIG_FILE)
        name = self.name_of(PROJECTION)
        if marker is not None or name is None or not isinstance(self.tensors, TensorIndex):
            return marker
        path = self.tensors.files[name]
        return AlignmentMarker.from_metadata(self.tensors.metadata(name), path)

    def name_of(self, role: str) -> str | None:
        """The stored name of the tensor with ``role``, None when the draft has none."""
        return self.tensors.first_of(ROLES[role])

    def has(self, role: str) -> bool:
        """True when the draft brings a tensor of ``role``."""
        return self.name_of(role) is not None

    def read(self, role: str) -> torch.Tensor:
        """The whole tensor of ``role``.

        Raises:
            CheckpointError: the draft has none.
        """
        name = self.name_of(role)
        if name is None:
            raise CheckpointError(f"{self.folder}: the draft has no tensor '{role}'")
        return self.tensors.read(name)

    @property
    def target_width(self) -> object:
        """The target's hidden size according to the configuration; the draft's own may differ."""
        return self.config.get("target_hidden_size") or self.config.get("hidden_size")

    @cached_property
    def vocabulary(self) -> int | None:
        """Size of the vocabulary that the target and the draft share, None when not stated."""
        return self._size("vocab_size")

    @cached_property
    def draft_vocabulary(self) -> int | None:
        """Size of the head's vocabulary: from the head itself, else from the configuration."""
        name = self.name_of(HEAD)
        if name is not None:
            return self.tensors.shape(name)[0]
        return self._size("draft_vocab_size") or self.vocabulary

    def _size(self, key: str) -> int | None:
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(
                f"{self.folder / CONFIG_FILE}: '{key}' is {value!r} where a positive number is "
                "expected"
            )
        return value
