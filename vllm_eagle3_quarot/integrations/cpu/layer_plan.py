# SPDX-License-Identifier: Apache-2.0
"""Which quantisation scheme a linear layer has, from the exact names of its tensors.

Knows nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from vllm_eagle3_quarot.errors import CheckpointError


class Scheme(str, Enum):
    """Quantisation types that the CPU platform can run, by their names in the description."""

    FLOAT = "FLOAT"
    #: int8 weight per output channel, int8 activation with scale and offset fixed at calibration
    W8A8 = "W8A8"
    #: int8 weight per output channel, int8 activation with one scale per token
    W8A8_DYNAMIC = "W8A8_DYNAMIC"


#: Last part of the names of a quantised linear layer's tensors (msModelSlim 26.1.0).
QUANTISED_TENSORS: Mapping[Scheme, tuple[str, ...]] = {
    Scheme.W8A8: ("weight", "quant_bias", "deq_scale", "input_scale", "input_offset"),
    Scheme.W8A8_DYNAMIC: ("weight", "weight_scale", "weight_offset"),
}

#: RMSNorm layers. vLLM's have no bias and its loaders drop one without a word.
_RMS_NORMS = frozenset(
    {
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
        "q_norm",
        "k_norm",
        "norm",
    }
)

_REQUANTISE = "requantise with W8A8 or W8A8_DYNAMIC, or serve it on Ascend with vllm-ascend"


@dataclass(frozen=True)
class LinearPlan:
    """How one linear layer of the engine is stored.

    Attributes:
        layer: the engine's name of the layer, e.g. ``model.layers.0.self_attn.qkv_proj``.
        shards: the checkpoint's names of the layers that the engine fuses into it, in its order;
            one name when nothing is fused.
        scheme: the one scheme that all shards have.
    """

    layer: str
    shards: tuple[str, ...]
    scheme: Scheme


def plan_linear(
    layer: str,
    fused: Mapping[str, Sequence[str]],
    tensor_types: Mapping[str, str],
) -> LinearPlan:
    """Look up the scheme of a linear layer.

    Args:
        layer: the engine's name of the layer.
        fused: last part of a fused layer's name to the last parts of what it is fused from, e.g.
            ``{"qkv_proj": ["q_proj", "k_proj", "v_proj"]}``.
        tensor_types: quantisation type of every tensor of the checkpoint.

    Raises:
        CheckpointError: a shard is not in the description, or the shards' types differ.
    """
    parent, dot, name = layer.rpartition(".")
    shards = tuple(f"{parent}{dot}{part}" for part in fused.get(name, (name,)))
    types: dict[str, str] = {}
    for shard in shards:
        tensor = f"{shard}.weight"
        if tensor not in tensor_types:
            raise CheckpointError(
                f"quant_model_description.json has no entry '{tensor}' ({len(tensor_types)} seen), "
                f"which the layer '{layer}' of the model needs; is the description from another "
                "checkpoint?"
            )
        types[shard] = tensor_types[tensor]
    if len(set(types.values())) > 1:
        listed = ", ".join(f"{shard}: {kind}" for shard, kind in types.items())
        raise CheckpointError(
            f"the engine runs {name} as one layer, but quant_model_description.json gives its "
            f"parts different types ({listed}); requantise them with one type"
        )
    return LinearPlan(layer, shards, supported_scheme(f"{shards[0]}.weight", types[shards[0]]))


def supported_scheme(tensor: str, kind: str) -> Scheme:
    """Return the scheme named ``kind``.

    Raises:
        CheckpointError: the CPU platform cannot run it; the message names the tensor.
    """
    try:
        return Scheme(kind)
    except ValueError:
        supported = ", ".join(scheme.value for scheme in Scheme)
        raise CheckpointError(
            f"'{tensor}' has the quantisation type '{kind}', which vLLM's CPU platform cannot run "
            f"(it can run {supported}); {_REQUANTISE}"
        ) from None


def check_tensor_types(tensor_types: Mapping[str, str], metadata: Mapping[str, object]) -> None:
    """Refuse a checkpoint that the CPU platform would run wrongly, before anything is loaded.

    Args:
        tensor_types: quantisation type of every tensor of the checkpoint.
        metadata: the description's ``metadata`` object.

    Raises:
        CheckpointError: a type or a tensor that would be ignored; the message names it.
    """
    online = metadata.get("quarot")
    if online:
        kinds = ", ".join(online) if isinstance(online, Mapping) else "metadata.quarot"
        raise CheckpointError(
            "the checkpoint rotates activations inside its layers while it runs "
            f"(quant_model_description.json, metadata.quarot: {kinds}); vLLM's CPU platform does "
            "not, and its answers would be noise. Requantise with 'online: False', or serve it on "
            "Ascend with vllm-ascend"
        )
    for tensor, kind in tensor_types.items():
        module, _, leaf = tensor.rpartition(".")
        scheme = supported_scheme(tensor, kind)
        if scheme is not Scheme.FLOAT and leaf not in QUANTISED_TENSORS[scheme]:
            raise CheckpointError(
                f"'{tensor}' is not a tensor that a {kind} layer has "
                f"({', '.join(QUANTISED_TENSORS[scheme])}), so it would be ignored; {_REQUANTISE}"
            )
        if leaf == "bias" and module.rpartition(".")[2] in _RMS_NORMS:
            raise CheckpointError(
                f"'{tensor}' is a bias that the quantiser added to an RMSNorm; vLLM's norms have "
                "none, so it would be ignored. Requantise with a symmetric anti-outlier method"
            )


def is_quantised(tensor_types: Mapping[str, str]) -> bool:
    """Tell whether any tensor is stored in another way than in floating point."""
    return any(kind != Scheme.FLOAT.value for kind in tensor_types.values())
