# SPDX-License-Identifier: Apache-2.0
"""Loading one draft through the real vLLM loader, in this process and without serving."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

#: A Qwen3 target that is never loaded: vLLM wants its configuration to place the draft behind it.
TARGET_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "intermediate_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "float32",
}


def complete_target(folder: Path) -> Path:
    """Add to a target from tests.support.checkpoints what vLLM's configuration needs."""
    path = folder / "config.json"
    path.write_text(json.dumps({**TARGET_CONFIG, **json.loads(path.read_text())}))
    return folder


@contextmanager
def loaded_draft(
    target: Path,
    draft: Path,
    *,
    settings: dict[str, Any] | None = None,
    dtype: str = "float32",
    parallel_drafting: bool = False,
) -> Iterator[torch.nn.Module]:
    """The draft as the engine's worker would have it after loading, before anything is shared.

    The caller decides by ``plugin.register()`` whether it is ours or the host's.
    """
    from vllm.config import set_current_vllm_config
    from vllm.distributed import (
        cleanup_dist_env_and_memory,
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model
    from vllm.utils.network_utils import get_open_port

    speculation = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3}
    if parallel_drafting:
        speculation["parallel_drafting"] = True
    vllm_config = EngineArgs(
        model=str(target),
        skip_tokenizer_init=True,
        dtype=dtype,
        enforce_eager=True,
        max_model_len=64,
        max_num_batched_tokens=512,
        max_num_seqs=4,
        speculative_config=speculation,
        additional_config={"eagle3_quarot": settings} if settings is not None else {},
    ).create_engine_config()
    with set_current_vllm_config(vllm_config):
        init_distributed_environment(
            1, 0, f"tcp://127.0.0.1:{get_open_port()}", local_rank=0, backend="gloo"
        )
        initialize_model_parallel(1)
        try:
            yield get_model(
                vllm_config=vllm_config,
                model_config=vllm_config.speculative_config.draft_model_config,
            )
        finally:
            cleanup_dist_env_and_memory()
