# SPDX-License-Identifier: Apache-2.0
"""Drafts with random weights for the reference target, by what vllm-ascend's own fold misses.

A random draft's proposals depend on its inputs as a trained one's do, so comparing them token by
token is the sharper test; its acceptance says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.ascend.latent import latent_draft, latent_target
from tests.ascend.targets import float_target
from tests.support import reference_pair as pair
from tests.support.checkpoints import embedding
from tests.support.drafts import DraftSpec

SHAPE = DraftSpec(hidden=192, vocabulary=2048, heads=3, kv_heads=1, head_dim=64)

#: What a VWN draft widens its states by, and in how many groups.
VWN = {"vwn_r": 2, "vwn_m": 2}


@dataclass(frozen=True)
class Draft:
    """How to write a draft, and what it takes to serve it.

    Attributes:
        write: writes it for the rotated target.
        target: writes the unrotated target.
        original: writes it for the unrotated one; None: the same files.
    """

    write: Callable[[Path], Path]
    target: Callable[[Path], Path] = float_target
    original: Callable[[Path], Path] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    host_settings: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)


def _random(**changes: Any) -> Callable[[Path], Path]:
    spec = replace(SHAPE, **changes)
    # A table of random entries would be taken for one that was never trained.
    table = embedding(spec.vocabulary, spec.hidden, seed=8) if spec.own_embedding else None
    return lambda folder: spec.write(folder, table)


def _with_the_targets_head(folder: Path, own_embedding: bool = True) -> Path:
    """A draft without a head, and the target's head in it: what sharing it would give."""
    _random(own_head=False, own_embedding=own_embedding)(folder)
    path = folder / "model.safetensors"
    head = load_file(pair.FLOAT_TARGET / "model.safetensors")["lm_head.weight"].float()
    save_file({**load_file(path), "lm_head.weight": head}, path, metadata={"format": "pt"})
    return folder


def vwn_draft(shape: DraftSpec, folder: Path) -> Path:
    """vllm-ascend's virtual-width draft. Its second ``fc`` takes embedding and state, not aux."""
    spec = replace(shape, extra={"architectures": ["LlamaForCausalLMVwnEagle3"], **VWN})
    spec.write(folder, embedding(spec.vocabulary, spec.hidden, seed=8))
    path = folder / "model.safetensors"
    tensors = load_file(path)
    generator = torch.Generator().manual_seed(21)
    narrow = spec.hidden // VWN["vwn_m"]
    wide = narrow * VWN["vwn_r"]

    def weight(rows: int, columns: int) -> torch.Tensor:
        drawn: torch.Tensor = torch.randn(rows, columns, generator=generator) * columns**-0.5
        return drawn

    # The layer's attention takes the state alone, which the embedding has been mixed into.
    for name in ("q_proj", "k_proj", "v_proj"):
        key = f"midlayer.self_attn.{name}.weight"
        tensors[key] = weight(tensors[key].shape[0], spec.hidden)
    scale = tensors["midlayer.input_layernorm.weight"]
    tensors |= {
        "midlayer.pre_vwn_layer.fc.weight": weight(spec.hidden, 2 * spec.hidden),
        "midlayer.pre_vwn_layer.upward.weight": weight(wide, narrow),
        "midlayer.pre_vwn_layer.input_layernorm.weight": scale.clone(),
        "midlayer.pre_vwn_layer.hidden_norm.weight": scale.clone(),
        "midlayer.pre_attention_layernorm.weight": scale.clone(),
        "midlayer.downward_and_forgot.weight": weight(narrow + wide, wide),
        "midlayer.downward_and_forgot_after_attn.weight": weight(narrow + wide, wide),
        "midlayer.upward_after_attn.weight": weight(wide, narrow),
        "midlayer.upward_after_mlp.weight": weight(wide, narrow),
        "midlayer.downward.weight": weight(narrow, wide),
    }
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


DRAFTS: dict[str, Draft] = {
    "norm before fc": Draft(_random(norm_before_fc=True)),
    "norm per aux state": Draft(_random(fc_norm=True)),
    "mask state": Draft(
        _random(mask_hidden=True, extra={"ptd_token_id": 3}),
        speculation={"parallel_drafting": True},
    ),
    "no head": Draft(
        _random(own_head=False),
        original=_with_the_targets_head,
        settings={"original_model": str(pair.FLOAT_TARGET)},
    ),
    "no head, reduced sampling": Draft(
        _random(own_head=False, own_embedding=False),
        original=lambda folder: _with_the_targets_head(folder, own_embedding=False),
        settings={"original_model": str(pair.FLOAT_TARGET)},
        host_settings={"enable_reduce_sample": True},
    ),
    "virtual width": Draft(partial(vwn_draft, SHAPE)),
    "latent attention": Draft(latent_draft, target=latent_target),
}
