# SPDX-License-Identifier: Apache-2.0
"""A Qwen3 or Qwen3-MoE checkpoint of msModelSlim's evaluated without vLLM.

Independent of the code under test: the float parts are transformers' own, and every quantised
linear layer is evaluated from its stored tensors as the format defines it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, PretrainedConfig, Qwen3ForCausalLM, Qwen3MoeForCausalLM

#: fp32 through 8 layers, on log-probabilities of order 1 to 10. Median over all positions: where an
#: activation lies on the border between two of its 256 steps, fp32 and the reference may take
#: different ones, and what follows then differs by the quantisation itself.
MEDIAN_TOLERANCE = 1e-4

#: Largest difference of a position that such a step explains.
STEP_TOLERANCE = 0.2

Tensors = dict[str, torch.Tensor]


class StaticLinear(torch.nn.Module):
    """``W8A8``, in the module's dtype."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        scale = tensors["deq_scale"]
        if scale.dtype is torch.int64:
            scale = scale.to(torch.int32).view(torch.float32)
        self.register_buffer("scale", scale.to(torch.float32))
        for leaf in ("weight", "quant_bias", "input_scale", "input_offset"):
            self.register_buffer(leaf, tensors[leaf].to(torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_q = (x / self.input_scale + self.input_offset).round().clamp(-128, 127)
        return (x_q @ self.weight.t() + self.quant_bias) * self.scale


class DynamicLinear(torch.nn.Module):
    """``W8A8_DYNAMIC`` without a bias, in the module's dtype."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self.register_buffer("weight", tensors["weight"].to(torch.float32))
        self.register_buffer("scale", tensors["weight_scale"].flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_scale = x.abs().amax(dim=-1, keepdim=True) / 127
        return ((x / x_scale).round() @ self.weight.t()) * x_scale * self.scale


LINEAR = {"W8A8": StaticLinear, "W8A8_DYNAMIC": DynamicLinear}


class Expert(torch.nn.Module):
    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        sizes = config.hidden_size, config.moe_intermediate_size
        self.gate_proj = torch.nn.Linear(*sizes, bias=False)
        self.up_proj = torch.nn.Linear(*sizes, bias=False)
        self.down_proj = torch.nn.Linear(*reversed(sizes), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class MixtureOfExperts(torch.nn.Module):
    """Every expert on every token, with the checkpoint's names; those not chosen weigh nothing.

    In place of transformers' block, whose experts are not linear layers.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        assert config.norm_topk_prob
        self._chosen = config.num_experts_per_tok
        self.gate = torch.nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = torch.nn.ModuleList(Expert(config) for _ in range(config.num_experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = self.gate(x).softmax(dim=-1)
        best, numbers = share.topk(self._chosen, dim=-1)
        weights = torch.zeros_like(share).scatter(-1, numbers, best / best.sum(-1, keepdim=True))
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (outputs * weights.unsqueeze(-2)).sum(dim=-1)


Model = Qwen3ForCausalLM | Qwen3MoeForCausalLM


def reference_model(folder: Path, dtype: torch.dtype) -> Model:
    """The checkpoint in ``folder``, evaluated in ``dtype``; without a description it is float."""
    tensors: Tensors = {}
    for shard in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(shard))
    description = folder / "quant_model_description.json"
    types = json.loads(description.read_text()) if description.exists() else {}
    config = AutoConfig.from_pretrained(folder)
    config._attn_implementation = "eager"
    if config.model_type == "qwen3_moe":
        model = Qwen3MoeForCausalLM(config)
        for layer in model.model.layers:
            layer.mlp = MixtureOfExperts(config)
    else:
        model = Qwen3ForCausalLM(config)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and types.get(f"{name}.weight") in LINEAR:
            stored = {
                leaf: tensors[f"{name}.{leaf}"]
                for leaf in (
                    "weight",
                    "quant_bias",
                    "deq_scale",
                    "input_scale",
                    "input_offset",
                    "weight_scale",
                )
                if f"{name}.{leaf}" in tensors
            }
            model.set_submodule(name, LINEAR[types[f"{name}.weight"]](stored))
    state = {
        name: tensor for name, tensor in tensors.items() if types.get(name, "FLOAT") == "FLOAT"
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    quantised = {name for name, _ in model.named_buffers()}
    assert set(missing) <= quantised and not unexpected
    return model.to(dtype).eval()


@torch.inference_mode()
def log_probabilities(model: Model, tokens: list[int]) -> torch.Tensor:
    """``[len(tokens), V]``: log-probabilities of what follows each token."""
    return model(torch.tensor([tokens])).logits[0].log_softmax(dim=-1)


def check_against_reference(
    checkpoint: Path, prompts: list[list[int]], answers: list[dict[str, Any]]
) -> None:
    """Assert that the answers of ``run_engine`` are those of the checkpoint's own arithmetic.

    The engine must have computed in fp32, greedily and with ``prompt_logprobs``.
    """
    model = reference_model(checkpoint, torch.float32)
    differences = []
    for prompt, answer in zip(prompts, answers, strict=True):
        (continuation,) = answer["outputs"]
        rows = log_probabilities(model, prompt + continuation)
        for position, logprob in enumerate(answer["prompt_logprobs"]):
            differences.append(abs(rows[position, prompt[position + 1]].item() - logprob))
        differences += _shortfalls(rows, len(prompt), continuation)
    _check(differences)


def check_greedy_tokens(
    checkpoint: Path, prompts: list[list[int]], continuations: list[list[int]]
) -> None:
    """Assert that an engine's greedy tokens, computed in fp32, are the reference's."""
    model = reference_model(checkpoint, torch.float32)
    differences = []
    for prompt, continuation in zip(prompts, continuations, strict=True):
        rows = log_probabilities(model, prompt + continuation)
        differences += _shortfalls(rows, len(prompt), continuation)
    _check(differences)


def _shortfalls(rows: torch.Tensor, start: int, continuation: list[int]) -> list[float]:
    """By how much each token that the engine chose is less likely than the likeliest."""
    return [
        (rows[position].max() - rows[position, token]).item()
        for position, token in enumerate(continuation, start=start - 1)
    ]


def _check(differences: list[float]) -> None:
    found = torch.tensor(differences)
    assert found.median() <= MEDIAN_TOLERANCE
    assert found.max() <= STEP_TOLERANCE
