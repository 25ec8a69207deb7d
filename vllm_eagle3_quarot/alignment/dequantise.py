# SPDX-License-Identifier: Apache-2.0
"""A quantised projection: folding changes its weights, so it has to become a float one first.

Supported is what stores one int8 or fp8 number per weight and a scale per output channel or one for
all, symmetric: ``W = q · scale``. Anything else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.json_file import as_object
from vllm_eagle3_quarot.checkpoint.safetensors_file import FLOAT_NAMES
from vllm_eagle3_quarot.checkpoint.target import CONFIG_FILE
from vllm_eagle3_quarot.errors import UnsupportedPairError

NARROW = (torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)

#: What may stand beside a quantised weight, by the end of its name.
SCALE = "_scale"
OTHER_PARTS = ("_zero_point", "_packed", "_shape", "_g_idx", "_scale_inv", "_offset")
ACTIVATION_SCALE = "input_scale"


@dataclass(frozen=True)
class QuantisedProjection:
    """How to read ``fc`` as floats.

    Attributes:
        scheme: in words.
        scale: stored name of the scale.
        dropped: stored names that a float projection does not have.
    """

    scheme: str
    scale: str
    dropped: tuple[str, ...]


def quantised_projection(
    draft: DraftFacts, projection: str, *, dequantise: bool
) -> QuantisedProjection | None:
    """Return how to read a quantised ``fc``, None for a float one.

    Raises:
        UnsupportedPairError: it is quantised and ``dequantise`` is off, or in a way unknown here.
    """
    dtype = draft.tensors.read_range(projection, 0, 1).dtype
    names = draft.tensors.files
    others = [projection + end for end in OTHER_PARTS if projection + end in names]
    if dtype in FLOAT_NAMES and not others and projection + SCALE not in names:
        return None
    if not dequantise:
        raise UnsupportedPairError(
            f"{draft.folder}: '{projection}' is quantised ({_short(dtype)}), and folding a "
            "rotation into it would mean to round it a second time. Serve it with this plugin, "
            "which needs no change of weights, or pass --dequantise to get a float projection"
        )
    scale = projection + SCALE
    path = draft.folder / CONFIG_FILE
    quantization = as_object(
        draft.config.get("quantization_config") or {}, path, "quantization_config"
    )
    method = quantization.get("quant_method")
    if dtype not in NARROW or others or scale not in names or method != "compressed-tensors":
        raise UnsupportedPairError(
            f"{draft.folder}: '{projection}' ({_short(dtype)}, quant_method {method!r}) is "
            "quantised in a way that is not understood here; only compressed-tensors with one "
            "symmetric scale per channel or tensor is. Serve it with this plugin"
        )
    shape, rows = draft.tensors.shape(scale), draft.tensors.shape(projection)[0]
    if shape not in ((rows, 1), (rows,), (1,), (1, 1), ()):
        raise UnsupportedPairError(
            f"{draft.folder}: '{scale}' has shape {shape}; only one scale per output channel or "
            "one for all is understood here. Serve it with this plugin"
        )
    activation = projection.removesuffix("weight") + ACTIVATION_SCALE
    dropped = (scale, activation) if activation in names else (scale,)
    return QuantisedProjection(f"{_short(dtype)}, scales {list(shape)}", scale, dropped)


def dequantised_config(config: dict[str, object]) -> dict[str, object]:
    """The draft's configuration with its projection left out of quantisation."""
    quantization = config["quantization_config"]
    assert isinstance(quantization, dict)  # quantised_projection has looked at it
    ignored = [*(quantization.get("ignore") or []), "fc", "model.fc"]
    return {**config, "quantization_config": {**quantization, "ignore": ignored}}


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
