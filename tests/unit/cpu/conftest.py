# SPDX-License-Identifier: Apache-2.0
"""One tensor-parallel rank in this process, as vLLM's layers want it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="module")
def _process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import (
        cleanup_dist_env_and_memory,
        init_distributed_environment,
        initialize_model_parallel,
    )

    store: Path = tmp_path_factory.mktemp("process-group") / "store"
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{store}", local_rank=0, backend="gloo")
        initialize_model_parallel(1)
    yield
    cleanup_dist_env_and_memory()


@pytest.fixture
def vllm_layers(_process_group: None) -> Iterator[None]:
    """vLLM layers can be built: a current configuration and a group of one rank."""
    from vllm.config import VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        yield
