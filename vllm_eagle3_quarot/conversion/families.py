# SPDX-License-Identifier: Apache-2.0
"""What a rotation does to each tensor of a model family.

With the convention ``h' = h Q``: what reads the stream gets the norm's scale and then ``Q`` from
the right, what writes it ``Qᵀ`` from the left. Values are rotated by a second matrix ``U`` per
head, from ``v_proj`` (left) to ``o_proj`` (right), which cancels inside attention. Exact names
only: a tensor that no rule names is refused, since leaving it as it is would break the model
silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_quarot.checkpoint.json_file import read_json_object
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE
from vllm_eagle3_quarot.errors import CheckpointError, UnsupportedPairError

#: Architectures with these names and this layout of tensors.
DENSE = frozenset({"Qwen3ForCausalLM", "LlamaForCausalLM", "Qwen2ForCausalLM"})
MIXTURES = frozenset({"Qwen3MoeForCausalLM"})


@dataclass(frozen=True)
class Rule:
    """How one tensor changes, in this order, each step rounded to the stored dtype.

    Attributes:
        norm: name of the norm whose scale is multiplied in first.
        stream_right: ``W Q``.
        stream_left: ``Qᵀ W``.
        values_left: ``Uᵀ W``, per head.
        values_right: ``W U``, per head.
        becomes_ones: a norm whose scale has moved elsewhere.
    """

    norm: str | None = None
    stream_right: bool = False
    stream_left: bool = False
    values_left: bool = False
    values_right: bool = False
    becomes_ones: bool = False


UNCHANGED = Rule()


@dataclass(frozen=True)
class Shape:
    """What the rules of a model need of its configuration.

    Attributes:
        shifted_values: ``U`` is a block rotation with a shift, as msModelSlim has it for mixtures.
    """

    hidden: int
    head_dim: int
    layers: int
    experts: int
    shifted_values: bool


def read_shape(folder: Path) -> Shape:
    """Read the configuration of a float model.

    Raises:
        CheckpointError: missing or broken.
        UnsupportedPairError: a family or a feature without rules.
    """
    path = folder / CONFIG_FILE
    config = read_json_object(path)
    names = config.get("architectures")
    architecture = names[0] if isinstance(names, list) and names else None
    if architecture not in DENSE | MIXTURES:
        raise UnsupportedPairError(
            f"{path}: there are no rules for {architecture!r}; known are "
            f"{', '.join(sorted(DENSE | MIXTURES))}"
        )
    if config.get("quantization_config") is not None:
        raise UnsupportedPairError(f"{path}: the model is quantised; rotate the float model")
    if config.get("tie_word_embeddings") is True:
        raise UnsupportedPairError(
            f"{path}: embedding and head are tied. The final norm's scale belongs into the head "
            "alone, so one table cannot be both. Save the model with two tables and "
            "tie_word_embeddings: false first"
        )
    mixture = architecture in MIXTURES
    if mixture and config.get("mlp_only_layers"):
        raise UnsupportedPairError(f"{path}: 'mlp_only_layers' is not supported")
    hidden, heads = _size(config, "hidden_size", path), _size(config, "num_attention_heads", path)
    head_dim = hidden // heads
    if config.get("head_dim") is not None:
        head_dim = _size(config, "head_dim", path)
    return Shape(
        hidden=hidden,
        head_dim=head_dim,
        layers=_size(config, "num_hidden_layers", path),
        experts=_size(config, "num_experts", path) if mixture else 0,
        shifted_values=mixture,
    )


def rules_of(shape: Shape) -> dict[str, Rule]:
    """A rule for every tensor that a model of this shape may have."""
    rules: dict[str, Rule] = {
        "model.embed_tokens.weight": Rule(stream_right=True),
        "model.norm.weight": Rule(becomes_ones=True),
        "lm_head.weight": Rule(norm="model.norm.weight", stream_right=True),
    }
    for layer in range(shape.layers):
        rules |= _layer(f"model.layers.{layer}.", shape)
    return rules


def _layer(prefix: str, shape: Shape) -> dict[str, Rule]:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    before, after = prefix + "input_layernorm.weight", prefix + "post_attention_layernorm.weight"
    rules = {
        before: Rule(becomes_ones=True),
        after: Rule(becomes_ones=True),
        attention + "q_proj.weight": Rule(norm=before, stream_right=True),
        attention + "k_proj.weight": Rule(norm=before, stream_right=True),
        attention + "v_proj.weight": Rule(norm=before, stream_right=True, values_left=True),
        attention + "o_proj.weight": Rule(stream_left=True, values_right=True),
        attention + "q_proj.bias": UNCHANGED,
        attention + "k_proj.bias": UNCHANGED,
        attention + "v_proj.bias": Rule(values_left=True),
        attention + "o_proj.bias": Rule(stream_left=True),
        attention + "q_norm.weight": UNCHANGED,
        attention + "k_norm.weight": UNCHANGED,
    }
    blocks = [mlp]
    if shape.experts:
        rules[mlp + "gate.weight"] = Rule(norm=after, stream_right=True)
        blocks = [f"{mlp}experts.{expert}." for expert in range(shape.experts)]
    for block in blocks:
        rules |= {
            block + "gate_proj.weight": Rule(norm=after, stream_right=True),
            block + "up_proj.weight": Rule(norm=after, stream_right=True),
            block + "down_proj.weight": Rule(stream_left=True),
        }
    return rules


def _size(config: Mapping[str, object], key: str, path: Path) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise CheckpointError(f"{path}: '{key}' is {value!r} where a positive number is expected")
    return value
