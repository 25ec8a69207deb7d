# SPDX-License-Identifier: Apache-2.0
"""``quantization="ascend"`` on vLLM's CPU platform: checkpoints as msModelSlim writes them.

The name is the one that vllm-ascend registers on its own platform, so one command line serves a
checkpoint on either host.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.quantization import (
    QUANTIZATION_METHODS,
    QuantizationConfig,
    register_quantization_config,
)

from vllm_eagle3_quarot.checkpoint.description import DESCRIPTION_FILE, QuantDescription
from vllm_eagle3_quarot.checkpoint.folder import model_folder
from vllm_eagle3_quarot.errors import CheckpointError
from vllm_eagle3_quarot.integrations.cpu.detection import (
    CHECKPOINT_KEY,
    QUANTIZATION_NAME,
    install_detection,
)
from vllm_eagle3_quarot.integrations.cpu.expert_plan import (
    has_quantised_experts,
    plan_experts,
)
from vllm_eagle3_quarot.integrations.cpu.layer_plan import (
    Scheme,
    check_tensor_types,
    plan_linear,
)

if TYPE_CHECKING:
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

logger = logging.getLogger("vllm.eagle3_quarot")

#: `rot.weight` (GLM-5 exports) is for the multi-token-prediction layer of vllm-ascend.
UNREAD_TENSORS = ("rot.weight",)


def register_msmodelslim() -> None:
    """Register the quantisation and its detection, unless somebody has; idempotent."""
    if QUANTIZATION_NAME in QUANTIZATION_METHODS:
        logger.debug("eagle3_quarot: quantization '%s' is registered already", QUANTIZATION_NAME)
        return
    register_quantization_config(QUANTIZATION_NAME)(MsModelSlimConfig)
    install_detection()


class MsModelSlimConfig(QuantizationConfig):
    """Chooses the scheme of every layer from ``quant_model_description.json``.

    Args:
        folder: the checkpoint; None when vLLM names it later (``--quantization ascend`` for a
            checkpoint that is not detected as quantised).
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self.tensor_types: dict[str, str] | None = None
        if folder is not None:
            self._read(folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.tensor_types or ())} tensors)"

    @classmethod
    def get_name(cls) -> str:
        return QUANTIZATION_NAME

    @classmethod
    def get_supported_act_dtypes(cls) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        # vLLM would parse a file listed here; `maybe_update_config` reads the one that matters.
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> MsModelSlimConfig:
        """Build from the model configuration's ``quantization_config``.

        Raises:
            CheckpointError: the checkpoint cannot be run on this platform; the message says why.
        """
        checkpoint = config.get(CHECKPOINT_KEY)
        return cls(Path(checkpoint) if isinstance(checkpoint, str) else None)

    def maybe_update_config(
        self, model_name: str, hf_config: object = None, revision: str | None = None
    ) -> None:
        """Read the description of ``model_name`` unless ``from_config`` has."""
        if self.tensor_types is None:
            self._read(model_folder(model_name, revision))

    def apply_vllm_mapper(self, hf_to_vllm_mapper: Any) -> None:
        """Rename the tensors as the model renames them while it loads."""
        self.tensor_types = hf_to_vllm_mapper.apply_dict(self._types)

    def get_cache_scale_mapper(self) -> Any:
        """Drop the tensors that no layer of the model reads.

        The hook is meant for scales of the KV cache, but vLLM applies it to every weight of a
        quantised checkpoint, and its loaders end on a tensor that they do not know.
        """
        from vllm.model_executor.models.utils import WeightsMapper

        return WeightsMapper(orig_to_new_prefix=dict.fromkeys(UNREAD_TENSORS))

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> QuantizeMethodBase | None:
        """Return how ``layer`` is stored and computed; None for what stays in floating point.

        Raises:
            CheckpointError: the platform cannot run the layer as it is stored.
        """
        from vllm.model_executor.layers.linear import LinearBase
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

        from vllm_eagle3_quarot.integrations.cpu.host_experts import is_experts

        if isinstance(layer, LinearBase):
            return self._linear_method(layer, prefix)
        if isinstance(layer, VocabParallelEmbedding):
            self._require_float(f"{prefix}.weight", "token embeddings and heads")
        elif is_experts(layer):
            return self._experts_method(layer, prefix)
        return None

    @property
    def _types(self) -> dict[str, str]:
        if self.tensor_types is None:
            raise CheckpointError(
                f"quantization '{QUANTIZATION_NAME}' was asked for a layer before vLLM said which "
                "checkpoint it loads; this vLLM is newer than this plugin knows"
            )
        return self.tensor_types

    def _read(self, folder: Path) -> None:
        description = QuantDescription.from_folder(folder)
        if description is None:
            raise CheckpointError(
                f"{folder} has no {DESCRIPTION_FILE}, so it is not a checkpoint that msModelSlim "
                f"wrote; leave out '--quantization {QUANTIZATION_NAME}'"
            )
        try:
            check_tensor_types(description.tensor_types, description.metadata)
        except CheckpointError as error:
            raise CheckpointError(f"{description.path}: {error}") from None
        self.tensor_types = dict(description.tensor_types)

    def _linear_method(self, layer: Any, prefix: str) -> QuantizeMethodBase:
        from vllm.model_executor.layers.linear import UnquantizedLinearMethod

        from vllm_eagle3_quarot.integrations.cpu.dynamic_linear import W8A8DynamicLinearMethod
        from vllm_eagle3_quarot.integrations.cpu.static_linear import W8A8StaticLinearMethod

        plan = plan_linear(prefix, self.packed_modules_mapping, self._types)
        if plan.scheme is not Scheme.W8A8:  # whose bias is part of another tensor
            self._check_bias(layer, prefix, plan.shards)
        if plan.scheme is Scheme.FLOAT:
            return UnquantizedLinearMethod()
        methods = {
            Scheme.W8A8: W8A8StaticLinearMethod,
            Scheme.W8A8_DYNAMIC: W8A8DynamicLinearMethod,
        }
        return methods[plan.scheme](plan, _is_dummy())

    def _experts_method(self, layer: Any, prefix: str) -> QuantizeMethodBase | None:
        from vllm.model_executor.layers.fused_moe import MoEActivation

        from vllm_eagle3_quarot.integrations.cpu.dynamic_experts import W8A8DynamicMoEMethod
        from vllm_eagle3_quarot.integrations.cpu.host_experts import has_own_loader

        if not has_quantised_experts(prefix, self._types):
            return None
        plan = plan_experts(prefix, layer.moe_config.num_logical_experts, self._types)
        unsupported = {
            f"the activation {layer.activation.value}": layer.activation is not MoEActivation.SILU,
            "biases": layer.moe_config.has_bias,
            "router weights on their input": layer.apply_router_weight_on_input,
            "a loader of their own": has_own_loader(layer),
        }
        found = [what for what, there in unsupported.items() if there]
        if found:
            raise CheckpointError(
                f"the experts of '{prefix}' have {', '.join(found)}, which quantised experts on "
                "vLLM's CPU platform cannot have; serve the checkpoint on Ascend with vllm-ascend"
            )
        return W8A8DynamicMoEMethod(layer.moe_config, plan, _is_dummy())

    def _check_bias(self, layer: Any, prefix: str, shards: tuple[str, ...]) -> None:
        """Refuse a bias that the model would drop, or would read from uninitialised memory."""
        for shard in shards:
            stored = f"{shard}.bias" in self._types
            if stored != bool(layer.has_bias):
                raise CheckpointError(
                    f"the checkpoint has {'a' if stored else 'no'} tensor '{shard}.bias', but the "
                    f"model's layer '{prefix}' has {'a' if layer.has_bias else 'no'} bias; is "
                    "config.json ('attention_bias' and the like) from another checkpoint?"
                )

    def _require_float(self, tensor: str, what: str) -> None:
        kind = self._types.get(tensor, Scheme.FLOAT.value)
        if kind != Scheme.FLOAT.value:
            raise CheckpointError(
                f"'{tensor}' has the quantisation type '{kind}', but {what} of msModelSlim "
                "checkpoints are not supported on vLLM's CPU platform yet unless they are floating "
                "point; exclude them when you quantise, or serve the checkpoint on Ascend with "
                "vllm-ascend"
            )


def _is_dummy() -> bool:
    """Tell whether vLLM fills the weights at random instead of loading any."""
    from vllm.config import get_current_vllm_config_or_none

    vllm_config = get_current_vllm_config_or_none()
    return vllm_config is not None and vllm_config.load_config.load_format == "dummy"
