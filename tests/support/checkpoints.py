# SPDX-License-Identifier: Apache-2.0
"""Small checkpoint folders with known contents: tables, norm, description, sidecar; no layers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

POINTER = {"quarot": {"rotation_map": {"global_rotation": "optional/quarot.safetensors"}}}


def embedding(vocabulary: int, hidden: int, seed: int = 3) -> torch.Tensor:
    """A token table whose rows have clearly different lengths, as a trained one has."""
    generator = torch.Generator().manual_seed(seed)
    lengths = 0.5 + torch.rand(vocabulary, 1, generator=generator)
    return torch.randn(vocabulary, hidden, generator=generator) * lengths


def write_json(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def write_sidecar(
    folder: Path, q: torch.Tensor, relative: str = "optional/quarot.safetensors"
) -> Path:
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"global_rotation": q.contiguous()}, path)
    return path


def write_target(
    folder: Path,
    q: torch.Tensor | None,
    *,
    hidden: int | None = None,
    sidecar: bool = True,
    optional: object = POINTER,
    norm: torch.Tensor | None = None,
    tied: bool = False,
    broken_tie: bool = False,
    nested: bool = False,
    vocabulary: int = 96,
) -> Path:
    """Write a target whose tables are rotated by ``q``, or unrotated when ``q`` is None."""
    hidden = q.shape[0] if q is not None else hidden or 64
    prefix = "model.language_model." if nested else "model."
    table, head = embedding(vocabulary, hidden), embedding(vocabulary, hidden, seed=4)
    scale = torch.linspace(0.5, 1.5, hidden)
    if q is not None:
        table, head, scale = table @ q, (head * scale) @ q, torch.ones(hidden)
    if broken_tie:
        head = table
    tensors = {
        prefix + "embed_tokens.weight": table,
        prefix + "norm.weight": scale if norm is None else norm,
        "lm_head.weight": head,
    }
    if tied and not broken_tie:
        del tensors["lm_head.weight"]
    if nested:
        tensors = {"model.visual.patch_embed.proj.weight": torch.randn(8, 12), **tensors}
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.to(torch.bfloat16).clone() for name, value in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    language = {"hidden_size": hidden, "vocab_size": vocabulary, "tie_word_embeddings": tied}
    config = {"model_type": "qwen3_vl", "text_config": language} if nested else language
    write_json(folder / "config.json", config)
    if q is not None:
        types = {name: "FLOAT" for name in tensors}
        document = {"version": "1.0.0", "model_quant_type": "W8A8", "metadata": {}, **types}
        write_json(folder / "quant_model_description.json", {**document, "optional": optional})
        if sidecar:
            write_sidecar(folder, q)
    return folder


def write_draft(folder: Path, table: torch.Tensor | None, hidden: int = 64) -> Path:
    """Write the part of a draft that a verification reads: its own token table, if it has one."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"fc.weight": torch.randn(hidden, 3 * hidden).to(torch.bfloat16)}
    if table is not None:
        tensors["embed_tokens.weight"] = table.to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors")
    write_json(folder / "config.json", {"hidden_size": hidden})
    return folder
