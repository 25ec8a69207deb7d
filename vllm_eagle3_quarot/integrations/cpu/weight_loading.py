# SPDX-License-Identifier: Apache-2.0
"""Loading a quantised layer's tensors through vLLM's weight loaders, without silent accidents.

vLLM's loaders copy into whatever dtype the parameter has, assert shapes without naming a tensor,
and do not notice tensors that a quantised checkpoint lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.layer_plan import (
    QUANTISED_TENSORS,
    LinearPlan,
    Scheme,
)

#: vLLM's loader of a parameter; that of experts returns whether it took the tensor.
WeightLoader = Callable[..., "bool | None"]

#: Missing tensors that a message names; a lost file lacks thousands.
_NAMED = 8

#: Position of a fused part by vLLM's name for it; merged layers number their parts instead.
_QKV_POSITIONS = {"q": 0, "k": 1, "v": 2}


class LayerTensors:
    """Which tensors of one layer have arrived.

    Args:
        plan: the layer.
        dummy: ``--load-format dummy``, which loads nothing and fills parameters at random.
    """

    def __init__(self, plan: LinearPlan, dummy: bool = False) -> None:
        self._plan = plan
        self._dummy = dummy
        self._arrived: set[str] = set()

    def loader(
        self,
        leaf: str,
        dtypes: Sequence[torch.dtype],
        load: WeightLoader,
        decode: Callable[[torch.Tensor, str], torch.Tensor] = lambda tensor, name: tensor,
    ) -> WeightLoader:
        """Wrap vLLM's weight loader for one parameter.

        Args:
            leaf: last part of the tensor's name.
            dtypes: dtypes that the format allows.
            load: the host's loader, called as ``load(parameter, tensor, *shard_id)``.
            decode: applied to a tensor of an allowed dtype and its name before it is loaded.
        """

        def load_checked(parameter: torch.Tensor, tensor: torch.Tensor, *shard_id: object) -> None:
            names = [f"{shard}.{leaf}" for shard in self._shards(*shard_id)]
            name = names[0]
            check_dtype(name, tensor, dtypes, self._plan.scheme)
            try:
                load(parameter, decode(tensor, name), *shard_id)
            except (AssertionError, RuntimeError) as error:
                raise CheckpointError(
                    f"'{name}' has shape {tuple(tensor.shape)}, which does not fit the layer "
                    f"'{self._plan.layer}' (its part of '{leaf}' on this rank, all fused shards "
                    f"together: {tuple(parameter.shape)}). Per-group scales are not supported"
                ) from error
            self._arrived.update(names)

        return load_checked

    def finish(self, layer: torch.nn.Module) -> None:
        """Raise CheckpointError naming the tensors that did not arrive.

        A dummy layer gets scales of 1 and offsets of 0 instead: random ones mean nothing.
        """
        if self._dummy:
            for leaf in QUANTISED_TENSORS[self._plan.scheme]:
                parameter = layer.get_parameter(leaf)
                if parameter.is_floating_point():
                    parameter.data.fill_(float(leaf.endswith("_scale")))
            return
        missing = [name for name in self._expected() if name not in self._arrived]
        if missing:
            raise missing_tensors(missing, self._plan.layer, self._plan.scheme)

    def _expected(self) -> Iterable[str]:
        for shard in self._plan.shards:
            for leaf in QUANTISED_TENSORS[self._plan.scheme]:
                yield f"{shard}.{leaf}"

    def _shards(self, *shard_id: object) -> Sequence[str]:
        if not shard_id or shard_id[0] is None or len(self._plan.shards) == 1:
            return self._plan.shards
        part = shard_id[0]
        if isinstance(part, str):
            part = _QKV_POSITIONS[part]
        positions = part if isinstance(part, tuple) else (part,)
        return [self._plan.shards[position] for position in positions]


def check_dtype(
    name: str, tensor: torch.Tensor, dtypes: Sequence[torch.dtype], scheme: Scheme
) -> None:
    """Raise CheckpointError unless the tensor has one of the dtypes that the format allows."""
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype) for dtype in dtypes)
        raise CheckpointError(
            f"'{name}' has dtype {tensor.dtype} where a {scheme.value} layer has {allowed}; "
            "weights and quant_model_description.json are not of one checkpoint"
        )


def missing_tensors(missing: Sequence[str], layer: str, scheme: Scheme) -> CheckpointError:
    """Return the error of a layer whose tensors ``missing`` did not arrive."""
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return CheckpointError(
        f"the checkpoint lacks {', '.join(missing[:_NAMED])}{more}, which the layer '{layer}' of "
        f"type {scheme.value} needs; is a weight file missing?"
    )


def scale_from_bits(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return a ``deq_scale`` as fp32, whichever way it is stored.

    msModelSlim stores fp32 for bf16 models, and for fp16 and fp32 models (or when it does not know)
    an int64 whose low 32 bits are those of the fp32 value
    (``msmodelslim/format/common/deqscale.py``).

    Raises:
        CheckpointError: an int64 that is wider than 32 bits.
    """
    if tensor.dtype != torch.int64:
        return tensor
    bits = tensor.to(torch.int32)
    if not torch.equal(bits.to(torch.int64), tensor):
        raise CheckpointError(
            f"'{name}' is int64 and holds values that are not the bits of a 32-bit float"
        )
    return bits.view(torch.float32)


def check_scales(scales: torch.Tensor, shards: Sequence[str], leaf: str) -> None:
    """Raise CheckpointError unless all quantisation scales are positive and finite."""
    if not bool((torch.isfinite(scales) & (scales > 0)).all()):
        raise CheckpointError(
            f"'{leaf}' of {', '.join(shards)} has entries that are not positive finite numbers; "
            "the weights are damaged"
        )


def check_symmetric(offsets: torch.Tensor, shards: Sequence[str]) -> None:
    """Raise CheckpointError unless all entries of ``weight_offset`` are zero."""
    if bool(offsets.any()):
        raise CheckpointError(
            f"'weight_offset' of {', '.join(shards)} is not zero: asymmetric weights are not "
            "supported on vLLM's CPU platform; requantise with symmetric ones"
        )
