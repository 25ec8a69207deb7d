# SPDX-License-Identifier: Apache-2.0
"""vllm-ascend's proposer around one loaded draft, without a runner and without a loaded target."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch


class _Reached(Exception):
    """The proposer has combined the states and goes on to the draft's first pass."""


class Drafting:
    """The real ``AscendEagleProposer`` with a draft that its own code loaded.

    Args:
        vllm_config: of the engine.

    Attributes:
        proposer: it lacks what only a runner gives it.
        draft: as loaded.
    """

    def __init__(self, vllm_config: Any) -> None:
        from vllm_ascend.spec_decode.eagle_proposer import AscendEagleProposer
        from vllm_ascend.worker.model_runner_v1 import patch_load_weights

        # As NPUModelRunner.load_model: the fold is assigned when the target is loaded.
        patch_load_weights(vllm_config)
        self.proposer = object.__new__(AscendEagleProposer)
        self.proposer.vllm_config = vllm_config
        self.proposer.speculative_config = vllm_config.speculative_config
        self.proposer.method = "eagle3"
        self.proposer.hidden_size = vllm_config.model_config.get_hidden_size()
        self.draft = self.proposer.model = self.proposer._get_model()

    def combine(self, states: torch.Tensor) -> torch.Tensor:
        """What ``_propose`` makes of the aux states ``[T, A·H]``, its assertions included."""
        seen: list[torch.Tensor] = []

        def first_pass(target_hidden_states: torch.Tensor, **_: Any) -> None:
            seen.append(target_hidden_states)
            raise _Reached

        self.proposer.set_inputs_first_pass = first_pass
        signature = inspect.signature(self.proposer._propose)
        nothing: dict[str, Any] = {
            name: None
            for name, parameter in signature.parameters.items()
            if parameter.default is inspect.Parameter.empty
        }
        given = {
            "target_hidden_states": states.to("npu"),
            "token_indices_to_sample": torch.zeros(1),
            "common_attn_metadata": SimpleNamespace(batch_size=lambda: 1),
        }
        try:
            with torch.inference_mode():
                self.proposer._propose(**{**nothing, **given})
        except _Reached:
            pass
        (combined,) = seen
        return combined.cpu()


@contextmanager
def drafting(target: Path, draft: Path, mode: str) -> Iterator[Drafting]:
    """Load ``draft`` as the engine of the quantised ``target`` would, our plugin in ``mode``."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import (
        cleanup_dist_env_and_memory,
        ensure_model_parallel_initialized,
        init_distributed_environment,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.network_utils import get_open_port
    from vllm_ascend.distributed.parallel_state import init_ascend_model_parallel

    vllm_config = EngineArgs(
        model=str(target),
        skip_tokenizer_init=True,
        dtype="float32",
        quantization="ascend",
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=4,
        async_scheduling=False,
        speculative_config={"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3},
        additional_config={"eagle3_quarot": {"mode": mode}},
    ).create_engine_config()
    with set_current_vllm_config(vllm_config):
        address = f"tcp://127.0.0.1:{get_open_port()}"
        init_distributed_environment(1, 0, address, local_rank=0, backend="hccl")
        ensure_model_parallel_initialized(1, 1)
        init_ascend_model_parallel(vllm_config.parallel_config)
        try:
            yield Drafting(vllm_config)
        finally:
            cleanup_dist_env_and_memory()
