# SPDX-License-Identifier: Apache-2.0
"""Telling vLLM that a checkpoint is msModelSlim's, without a flag.

msModelSlim removes ``quantization_config`` from ``config.json`` and writes
``quant_model_description.json`` beside it. vLLM asks a *config parser* for the configuration of a
checkpoint, so the parser named ``"hf"`` is replaced by a subclass of itself that adds the missing
entry. ``register_config_parser`` would do the replacing, but it warns of it on every server, also
on those that serve nothing of msModelSlim's; so the parser's table entry is set directly. This file
and ``faults.py`` are the only places where something of vLLM's CPU platform is replaced.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from vllm_eagle3_quarot.checkpoint.description import DESCRIPTION_FILE, QuantDescription
from vllm_eagle3_quarot.checkpoint.folder import model_folder
from vllm_eagle3_quarot.integrations.cpu.layer_plan import is_quantised

logger = logging.getLogger("vllm.eagle3_quarot")

#: vllm-ascend's name for msModelSlim's format.
QUANTIZATION_NAME = "ascend"

#: Key of our ``quantization_config`` under which the checkpoint's folder is passed on. The
#: description stays out: it has an entry per tensor, and vLLM logs and hashes configurations.
CHECKPOINT_KEY = "checkpoint"


def install_detection() -> None:
    """Put the detecting parser in place of vLLM's ``"hf"`` parser; idempotent."""
    from vllm.transformers_utils import config as vllm_config

    parsers: dict[str, type] = vllm_config._CONFIG_FORMAT_TO_CONFIG_PARSER
    stock: Any = parsers["hf"]
    if getattr(stock, "detects_msmodelslim", False):
        return

    class MsModelSlimConfigParser(stock):
        detects_msmodelslim = True

        def parse(
            self,
            model: str | Path,
            trust_remote_code: bool,
            revision: str | None = None,
            code_revision: str | None = None,
            **kwargs: Any,
        ) -> tuple[dict[str, Any], Any]:
            config_dict, config = super().parse(
                model, trust_remote_code, revision, code_revision, **kwargs
            )
            found = detect(model, revision, config_dict.get("quantization_config"))
            if found is not None:
                config_dict["quantization_config"] = found
                config.quantization_config = found
            return config_dict, config

    parsers["hf"] = MsModelSlimConfigParser


def detect(
    model: str | Path, revision: str | None, quantization_config: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the ``quantization_config`` of an msModelSlim checkpoint, None for any other model.

    A checkpoint whose tensors are all floating point (a float QuaRot export) is any other model:
    vLLM loads it by itself, and then also checks that nothing is missing.

    Args:
        model: folder or hub id.
        revision: of the hub id.
        quantization_config: what ``config.json`` says itself.

    Raises:
        CheckpointError: the description is broken; the message names the file and the key.
    """
    from vllm.transformers_utils.repo_utils import file_or_path_exists

    if quantization_config and quantization_config.get("quant_method") != QUANTIZATION_NAME:
        return None
    if not file_or_path_exists(model, DESCRIPTION_FILE, revision):
        return None
    folder = model_folder(str(model), revision)
    description = QuantDescription.from_folder(folder)
    if description is None:
        return None
    if not is_quantised(description.tensor_types) and not description.metadata.get("quarot"):
        logger.debug("eagle3_quarot: %s is described as floating point throughout", folder)
        return None
    return {
        **(quantization_config or {}),
        "quant_method": QUANTIZATION_NAME,
        CHECKPOINT_KEY: str(folder.absolute()),
    }
