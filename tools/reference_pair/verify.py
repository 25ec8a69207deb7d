# SPDX-License-Identifier: Apache-2.0
"""Check the finished set in plain torch and measure its acceptance; no server is involved."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

from tools.reference_pair.corpus import Book
from tools.reference_pair.prompts import make_prompts
from tools.reference_pair.quantised_model import (
    agreement,
    load_quantised,
    load_rotation,
    load_weights,
)
from tools.reference_pair.settings import PROMPTS, TARGET, Workspace
from tools.reference_pair.walk import load_draft, walk

MIN_ACCEPTANCE = (0.80, 0.75, 0.75)
MAX_BROKEN_LENGTH = 1.2
MIN_AGREEMENT = 0.95


class UnfitPair(RuntimeError):
    """The result is not fit to be the reference pair."""


def verify(
    workspace: Workspace, tokenizer: PreTrainedTokenizerBase, book: Book
) -> dict[str, object]:
    """Run all checks; returns what was measured.

    Raises:
        UnfitPair: a check failed; the message says which and by how much.
    """
    rotation = load_rotation(workspace.rotated)
    _check_export(workspace, rotation)
    prompts = make_prompts(PROMPTS, book).completions
    draft = load_draft(workspace.draft)
    target = Qwen3ForCausalLM.from_pretrained(workspace.target, dtype=torch.float32).eval()
    plain, rotated = load_quantised(workspace.quantised), load_quantised(workspace.rotated)
    inverse = rotation.T.contiguous()
    cases = {
        "float target": (target, None),
        "float target, states rotated": (target, rotation),
        "W8A8 target": (plain, None),
        "QuaRot W8A8 target, corrected": (rotated, inverse),
        "QuaRot W8A8 target, uncorrected": (rotated, None),
    }
    measured: dict[str, object] = {}
    for name, (model, matrix) in cases.items():
        result = walk(model, draft, tokenizer, prompts, PROMPTS.continuation, matrix)
        print(f"{name}: {result}", flush=True)
        measured[name] = {
            "acceptance": [round(share, 4) for share in result.per_position],
            "mean_length": round(result.mean_length, 4),
            "drafts": result.drafts,
        }
        if matrix is rotation or name.endswith("uncorrected"):
            if result.mean_length > MAX_BROKEN_LENGTH:
                raise UnfitPair(f"{name}: mean length {result.mean_length:.3f} without correction")
        elif any(a < b for a, b in zip(result.per_position, MIN_ACCEPTANCE, strict=True)):
            raise UnfitPair(f"{name}: acceptance {result}, wanted at least {MIN_ACCEPTANCE}")
    tokens = torch.tensor([tokenizer(document)["input_ids"][:48] for document in book.documents
                           if len(document) > 400][:64])  # fmt: skip
    for name, model in (("W8A8 target", plain), ("QuaRot W8A8 target", rotated)):
        share = agreement(target, model, tokens)
        print(f"{name}: same next token as the float target at {share:.4f} of positions")
        measured[f"{name}, agreement"] = round(share, 4)
        if share < MIN_AGREEMENT:
            raise UnfitPair(
                f"{name}: agrees with the float target at {share:.3f} of positions only"
            )
    return measured


def _check_export(workspace: Workspace, rotation: torch.Tensor) -> None:
    """The marks of a rotated checkpoint, and that both exports carry the same model."""
    size = TARGET.hidden_size
    if rotation.shape != (size, size) or rotation.dtype != torch.float32:
        raise UnfitPair(f"rotation is {rotation.dtype} {tuple(rotation.shape)}")
    error = (rotation.double() @ rotation.double().T - torch.eye(size)).abs().max().item()
    if error > 1e-6:
        raise UnfitPair(f"rotation is off orthogonal by {error:.1e}")
    original = load_weights(workspace.target)
    plain, rotated = load_weights(workspace.quantised), load_weights(workspace.rotated)
    expected = (original["model.embed_tokens.weight"].float() @ rotation).to(torch.bfloat16)
    if not torch.equal(expected, rotated["model.embed_tokens.weight"]):
        raise UnfitPair("embedding of the rotated target is not bf16(E Q)")
    if not torch.equal(original["model.embed_tokens.weight"], plain["model.embed_tokens.weight"]):
        raise UnfitPair("embedding of the unrotated W8A8 target was changed")
    if not (rotated["model.norm.weight"] == 1).all() or (plain["model.norm.weight"] == 1).all():
        raise UnfitPair("final norm: ones expected in the rotated target and only there")
