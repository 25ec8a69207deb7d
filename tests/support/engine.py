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
def loaded_draft(target: Path, draft: Path, **options: Any) -> Iterator[torch.nn.Module]:
    """The draft as the engine's worker would have it after loading, before anything is shared.

    The caller decides by ``plugin.register()`` whether it is ours or the host's. Options are those
    of :func:`configured_engine`.
    """
    from vllm.model_executor.model_loader import get_model

    with configured_engine(target, draft, **options) as vllm_config:
        yield get_model(
            vllm_config=vllm_config,
            model_config=vllm_config.speculative_config.draft_model_config,
        )


@contextmanager
def configured_engine(
    target: Path,
    draft: Path,
    *,
    settings: dict[str, Any] | None = None,
    dtype: str = "float32",
    parallel_drafting: bool = False,
    speculation: dict[str, Any] | None = None,
    pipeline_stages: int = 1,
) -> Iterator[Any]:
    """vLLM's configuration, current, in a distributed environment of this process alone.

    With several ``pipeline_stages`` the configuration says so, but this process is the only one.
    """
    from vllm.config import set_current_vllm_config
    from vllm.distributed import (
        cleanup_dist_env_and_memory,
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.network_utils import get_open_port

    vllm_config = EngineArgs(
        model=str(target),
        skip_tokenizer_init=True,
        dtype=dtype,
        enforce_eager=True,
        max_model_len=64,
        max_num_batched_tokens=512,
        max_num_seqs=4,
        speculative_config={
            "method": "eagle3",
            "model": str(draft),
            "num_speculative_tokens": 3,
            **({"parallel_drafting": True} if parallel_drafting else {}),
            **(speculation or {}),
        },
        additional_config={"eagle3_quarot": settings} if settings is not None else {},
    ).create_engine_config()
    vllm_config.parallel_config.pipeline_parallel_size = pipeline_stages
    with set_current_vllm_config(vllm_config):
        init_distributed_environment(
            1, 0, f"tcp://127.0.0.1:{get_open_port()}", local_rank=0, backend="gloo"
        )
        initialize_model_parallel(1)
        try:
            yield vllm_config
        finally:
            cleanup_dist_env_and_memory()
