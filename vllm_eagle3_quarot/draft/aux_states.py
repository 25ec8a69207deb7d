# SPDX-License-Identifier: Apache-2.0
"""How many aux hidden states a draft takes, and of which target layers.

The count A is in the file: ``fc.weight`` is ``[H_draft, A·H]``. The layer ids are in the
configuration, at the top level or inside ``eagle_config``; without them the host takes its default
of three layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_eagle3_quarot.checkpoint.draft import PROJECTION, DraftFacts
from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE, TargetFacts
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"

#: Aux states that a host takes when a draft names no layers.
DEFAULT_COUNT = 3


@dataclass(frozen=True)
class AuxStates:
    """The input of a draft's ``fc``.

    Attributes:
        count: A; 0 for a draft that takes the target's post-norm state instead.
        layers: ids of the target's layers, None for the host's default.
        default: that default, None when the target does not say how many layers it has.
    """

    count: int
    layers: tuple[int, ...] | None
    default: tuple[int, ...] | None = None

    def __str__(self) -> str:
        if self.count == 0:
            return "the post-norm state"
        if self.layers is not None:
            layers = f"layers {self.layers}"
        elif self.default is not None:
            layers = f"layers {self.default} (the host's default, the draft names none)"
        else:
            layers = "the host's default layers (the draft names none)"
        return f"A={self.count} aux hidden states of {layers}"


def default_layers(depth: int) -> tuple[int, ...]:
    """The layers that vLLM takes of a target of ``depth`` layers when a draft names none."""
    return (2, depth // 2, depth - 3)


def verify_width(draft: DraftFacts, target: TargetFacts, hidden_size: int) -> None:
    """Check that the draft was made for states of the target's size.

    Raises:
        UnsupportedPairError: it was not.
    """
    if draft.target_width != hidden_size:
        raise UnsupportedPairError(
            f"{draft.folder}: the draft was made for hidden states of {draft.target_width} "
            f"channels, the target {target.folder} has {hidden_size}. They are not a pair"
        )


def aux_states_of(draft: DraftFacts, hidden_size: int, depth: int | None = None) -> AuxStates:
    """Read A and the layer ids; ``hidden_size`` is the target's H, ``depth`` its layer count.

    Raises:
        UnsupportedPairError: file and configuration do not fit together or the target.
        CheckpointError: the configuration is broken.
    """
    path = draft.folder / CONFIG_FILE
    eagle = as_object(draft.config.get("eagle_config") or {}, path, "eagle_config")
    if eagle.get("use_aux_hidden_state") is False:
        return AuxStates(count=0, layers=None)
    layers = _layer_ids(draft, eagle)
    default = default_layers(depth) if layers is None and depth is not None else None
    name = draft.name_of(PROJECTION)
    if name is None:
        seen = ", ".join(sorted(draft.tensors.files)[:12]) or "none"
        raise UnsupportedPairError(
            f"{draft.folder}: the draft has no '{PROJECTION}', through which an Eagle3 draft takes "
            f"aux hidden states (tensors seen: {seen}). Is it a draft of another kind?"
        )
    if draft.config.get("quantization_config") is not None:
        # Packed weights do not show their width; the configuration has to do.
        stated = draft.config.get("num_aux_hidden_states")
        count = stated if isinstance(stated, int) else len(layers or range(DEFAULT_COUNT))
        return AuxStates(count, layers, default)
    shape = draft.tensors.shape(name)
    if len(shape) != 2:
        raise CheckpointError(
            f"{draft.folder}: '{name}' has shape {shape} where a matrix is expected; download the "
            "draft again"
        )
    width = shape[-1]
    if width % hidden_size:
        raise UnsupportedPairError(
            f"{draft.folder}: '{name}' takes {width} channels, which is no multiple of the "
            f"target's hidden size {hidden_size}. The draft was made for another target"
        )
    count = width // hidden_size
    if count != len(layers or range(DEFAULT_COUNT)):
        given = f"names the layers {layers}" if layers else "names no layers (the default is three)"
        raise UnsupportedPairError(
            f"{draft.folder}: '{name}' takes {count} aux hidden states, but the configuration "
            f"{given}. Set '{LAYER_IDS}' in {path} to the {count} layers that the draft was "
            "trained with"
        )
    return AuxStates(count, layers, default)


def _layer_ids(draft: DraftFacts, eagle: object) -> tuple[int, ...] | None:
    nested = eagle.get(LAYER_IDS) if isinstance(eagle, dict) else None
    ids = draft.config.get(LAYER_IDS) or nested
    if not ids:
        return None
    if not isinstance(ids, list) or not all(type(number) is int for number in ids):
        raise CheckpointError(
            f"{draft.folder / CONFIG_FILE}: '{LAYER_IDS}' is {ids!r} where a list of layer numbers "
            "is expected"
        )
    return tuple(ids)
