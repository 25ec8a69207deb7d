# SPDX-License-Identifier: Apache-2.0
"""Loading the tensors of quantised experts through vLLM's weight loader, without silent accidents.

vLLM's loader copies a tensor that is too small into the first part of its place, and nobody notices
an expert that the checkpoint lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.expert_plan import ExpertsPlan
from vllm_eagle3_quarot.integrations.cpu.weight_loading import (
    WeightLoader,
    check_dtype,
    missing_tensors,
)


class ExpertTensors:
    """Which tensors of one layer's experts have arrived.

    Args:
        plan: the layer.
        dummy: ``--load-format dummy``, which loads nothing and fills parameters at random.
    """

    def __init__(self, plan: ExpertsPlan, dummy: bool = False) -> None:
        self._plan = plan
        self._dummy = dummy
        self._arrived: set[str] = set()

    def loader(
        self,
        leaf: str,
        dtype: torch.dtype,
        shapes: Mapping[str, tuple[int, ...]],
        load: WeightLoader,
    ) -> WeightLoader:
        """Wrap vLLM's weight loader for one parameter.

        Args:
            leaf: last part of the tensors' names.
            dtype: what the format allows.
            shapes: shape of a whole tensor, before vLLM takes this rank's part, by vLLM's name of
                the matrix.
            load: the layer's ``weight_loader``, which returns whether the expert is this rank's.
        """

        # vLLM's names of the parameters: from 0.24 on they are passed by name.
        def load_checked(
            param: torch.Tensor,
            loaded_weight: torch.Tensor,
            weight_name: str,
            shard_id: str,
            expert_id: int,
            return_success: bool = False,
        ) -> bool | None:
            name = f"{self._plan.matrix(expert_id, shard_id)}.{leaf}"
            check_dtype(name, loaded_weight, [dtype], self._plan.scheme)
            if tuple(loaded_weight.shape) != shapes[shard_id]:
                raise CheckpointError(
                    f"'{name}' has shape {tuple(loaded_weight.shape)} where the model's experts "
                    f"have {shapes[shard_id]}; is config.json from another checkpoint? Per-group "
                    "scales are not supported"
                )
            loaded = load(
                param,
                loaded_weight,
                weight_name,
                shard_id,
                expert_id,
                return_success=return_success,
            )
            self._arrived.add(name)
            return loaded

        return load_checked

    def finish(self, layer: torch.nn.Module, experts: Iterable[int]) -> None:
        """Raise CheckpointError naming the tensors of ``experts`` that did not arrive.

        A dummy layer gets scales of 1 and offsets of 0 instead: random ones mean nothing.
        """
        if self._dummy:
            for name, parameter in layer.named_parameters(recurse=False):
                if parameter.is_floating_point():
                    parameter.data.fill_(float(name.endswith("_scale")))
            return
        missing = [name for name in self._plan.tensors(experts) if name not in self._arrived]
        if missing:
            raise missing_tensors(missing, self._plan.layer, self._plan.scheme)
