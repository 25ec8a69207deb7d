# SPDX-License-Identifier: Apache-2.0
"""Which quantisation scheme the experts of one layer have, from the exact names of their tensors.

msModelSlim 26.1.0 stores every matrix of every expert by itself, as three linear layers::

    <layer>.<expert>.gate_proj.{weight,weight_scale,weight_offset}     and up_proj, down_proj

Knows nothing of vLLM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.layer_plan import (
    QUANTISED_TENSORS,
    Scheme,
    supported_scheme,
)

#: Matrices of an expert: vLLM's name and the checkpoint's.
EXPERT_MATRICES: Mapping[str, str] = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


@dataclass(frozen=True)
class ExpertsPlan:
    """How the experts of one layer are stored.

    Attributes:
        layer: the engine's and the checkpoint's name, e.g. ``model.layers.0.mlp.experts``.
        count: number of experts of the model.
        scheme: the one scheme that all their matrices have.
    """

    layer: str
    count: int
    scheme: Scheme

    def matrix(self, expert: int, part: str) -> str:
        """Return the checkpoint's name of a matrix; ``part`` is vLLM's name of it."""
        return f"{self.layer}.{expert}.{EXPERT_MATRICES[part]}"

    def tensors(self, experts: Iterable[int]) -> Iterator[str]:
        """Yield the name of every tensor that these experts are stored in."""
        for expert in experts:
            for part in EXPERT_MATRICES:
                for leaf in QUANTISED_TENSORS[self.scheme]:
                    yield f"{self.matrix(expert, part)}.{leaf}"


def has_quantised_experts(layer: str, tensor_types: Mapping[str, str]) -> bool:
    """Tell whether any tensor inside ``layer`` is not floating point."""
    return any(
        kind != Scheme.FLOAT.value
        for tensor, kind in tensor_types.items()
        if tensor.startswith(f"{layer}.")
    )


def plan_experts(layer: str, count: int, tensor_types: Mapping[str, str]) -> ExpertsPlan:
    """Look up the scheme of the quantised experts of one layer.

    Args:
        layer: the engine's name of the layer.
        count: number of experts of the model.
        tensor_types: quantisation type of every tensor of the checkpoint.

    Raises:
        CheckpointError: an expert is not in the description, their types differ or are not
            supported, or the checkpoint has tensors in the layer that the model would ignore.
    """
    stored = {name: kind for name, kind in tensor_types.items() if name.startswith(f"{layer}.")}
    types: dict[str, str] = {}
    for expert in range(count):
        for part in EXPERT_MATRICES.values():
            tensor = f"{layer}.{expert}.{part}.weight"
            if tensor not in stored:
                seen = next(iter(stored), "none")
                raise CheckpointError(
                    f"quant_model_description.json has no entry '{tensor}', which the {count} "
                    f"experts of the model need ({len(stored)} entries of '{layer}' seen, the "
                    f"first is '{seen}'); is config.json or the description from another "
                    "checkpoint?"
                )
            types[tensor] = stored[tensor]
    kinds = Counter(types.values())
    if len(kinds) > 1:
        examples = {kind: tensor for tensor, kind in types.items()}
        listed = ", ".join(f"{kind}: {kinds[kind]}, e.g. {examples[kind]}" for kind in kinds)
        raise CheckpointError(
            f"the engine runs the experts of '{layer}' as one layer, but "
            f"quant_model_description.json gives their matrices different types ({listed}); "
            "requantise them with one type"
        )
    first, kind = next(iter(types.items()))
    # vllm-ascend 0.23 has no method for static experts either.
    if supported_scheme(first, kind) is not Scheme.W8A8_DYNAMIC:
        raise CheckpointError(
            f"'{first}' has the quantisation type '{kind}', which experts cannot have on vLLM's "
            "CPU platform; requantise them with W8A8_DYNAMIC (activation scope 'per_token')"
        )
    plan = ExpertsPlan(layer, count, Scheme.W8A8_DYNAMIC)
    unread = stored.keys() - set(plan.tensors(range(count)))
    if unread:
        raise CheckpointError(
            f"'{min(unread)}' and {len(unread) - 1} more tensors of the checkpoint belong to no "
            f"{kind} expert of the model, which has {count}, so they would be ignored; is "
            "config.json from another checkpoint, or did an anti-outlier method add a bias?"
        )
    return plan
