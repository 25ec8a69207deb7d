# SPDX-License-Identifier: Apache-2.0
"""Pairs with the sizes of known models: only what loading a draft reads, and values that repeat."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.support.checkpoints import POINTER, embedding, write_json, write_sidecar
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.rotation import Rotation

#: Rows of a token table that are made; the rest repeats them.
ROWS = 2048

#: Words of a draft's own head, as the published drafts of these models have them.
DRAFT_VOCABULARY = 32000

#: Names by which the same file comes from our own loading and from vllm-ascend's.
ARCHITECTURE = "LlamaForCausalLMEagle3"


@dataclass(frozen=True)
class Model:
    """Sizes of a target.

    Attributes:
        name: as its publisher writes it.
        hidden: H.
        vocabulary: V.
    """

    name: str
    hidden: int
    vocabulary: int

    @property
    def table_bytes(self) -> int:
        """Size of its token table in bf16."""
        return 2 * self.hidden * self.vocabulary


MODELS = (
    Model("Qwen3-30B-A3B", 2048, 151936),
    Model("Qwen3-32B", 5120, 151936),
    Model("Qwen3-235B-A22B", 4096, 151936),
    Model("Kimi-K2", 7168, 163840),
)


@dataclass(frozen=True)
class Pair:
    """Folders of a target and a draft."""

    target: Path
    draft: Path


def write_pair(model: Model, folder: Path, *, own_table: bool) -> Pair:
    """Write a rotated target (tables only) and a bf16 draft of one layer.

    The layer's MLP and attention are narrow, because nothing here touches them; ``fc`` is
    ``[H, 3 H]``. With ``own_table`` the draft brings a copy of the original token table, as many
    published drafts do; without, it is to use the target's.
    """
    q = real_rotation(model.hidden)
    rotation = Rotation.from_dense(q, source="a matrix of msModelSlim")
    original = embedding(ROWS, model.hidden).bfloat16()
    rotated = rotation.rotate(original.float()).bfloat16()
    target = folder / "target"
    target.mkdir(parents=True)
    weights = {
        "model.embed_tokens.weight": _repeated(rotated, model.vocabulary),
        "model.norm.weight": torch.ones(model.hidden, dtype=torch.bfloat16),
    }
    save_file(weights, target / "model.safetensors")
    config = {
        "hidden_size": model.hidden,
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    write_json(target / "config.json", config)
    description = {"version": "1.0.0", "model_quant_type": "W8A8", "optional": POINTER}
    write_json(target / "quant_model_description.json", description)
    write_sidecar(target, q)
    complete_target(target)
    del weights, rotated

    spec = DraftSpec(
        hidden=model.hidden,
        vocabulary=ROWS,
        draft_vocabulary=None,
        heads=2,
        kv_heads=1,
        head_dim=64,
        own_embedding=False,
        own_head=False,
        extra={
            "architectures": [ARCHITECTURE],
            "vocab_size": model.vocabulary,
            "draft_vocab_size": DRAFT_VOCABULARY,
            "torch_dtype": "bfloat16",
        },
    )
    tensors = {name: value.bfloat16() for name, value in spec.tensors().items()}
    tensors["lm_head.weight"] = _repeated(original, DRAFT_VOCABULARY)
    tensors["d2t"] = torch.zeros(DRAFT_VOCABULARY, dtype=torch.long)
    if own_table:
        tensors["embed_tokens.weight"] = _repeated(original, model.vocabulary)
    draft = folder / "draft"
    draft.mkdir()
    write_json(draft / "config.json", spec.config())
    save_file(tensors, draft / "model.safetensors", metadata={"format": "pt"})
    return Pair(target, draft)


def _repeated(rows: torch.Tensor, count: int) -> torch.Tensor:
    return rows.repeat(-(-count // len(rows)), 1)[:count].contiguous()
