# SPDX-License-Identifier: Apache-2.0
"""The program that runs in the environment with vllm-ascend: engines, one after the other.

``python -m tests.ascend.engines FILE FOLDER [--kernel]`` reads a list of jobs from FILE, starts the
fake device with the libraries in FOLDER (built there when missing), builds vllm-ascend's engine for
each job in this process, completes prompts greedily, records what the proposer returned and prints
one line of JSON per job. With ``--kernel`` our operators are the NPU library's, whose kernel runs
on emulated cores; else they run in plain torch on the device.
"""

from __future__ import annotations

import argparse
import json
import shutil
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tests.ascend.jobs import MARK, Job

if TYPE_CHECKING:
    from tests.kernels.npu_runtime.on_npu.launches import Launches


def main() -> None:
    """Build each engine in turn and print what it proposed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("jobs", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernel", action="store_true")
    arguments = parser.parse_args()
    jobs = [Job(**job) for job in json.loads(arguments.jobs.read_text())]

    from tests.ascend.device import start

    start.start(arguments.folder)
    launches = _load_kernel(arguments.folder) if arguments.kernel else None
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    from tests.ascend.device.slot_mapping import replace_slot_mapping_kernel

    replace_slot_mapping_kernel()
    _accept_fp32()
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.model_executor.models.llama_eagle3 import Eagle3LlamaForCausalLM

    loader = Eagle3LlamaForCausalLM.load_weights
    for job in jobs:
        before = launches.count if launches else 0
        try:
            outcome = _complete(job)
        except Exception as error:  # whatever ends an engine is an outcome
            traceback.print_exc()
            outcome = {"error": f"{type(error).__name__}: {error}"}
        made = launches.count - before if launches else 0
        print(MARK + json.dumps({**outcome, "launches": made}), flush=True)
        cleanup_dist_env_and_memory()
        # vllm-ascend's fold replaces this for the life of the process, which is one engine's.
        Eagle3LlamaForCausalLM.load_weights = loader


def _accept_fp32() -> None:
    """Let vllm-ascend's quantisation serve fp32, which the CPU has and its devices do not.

    Rotated and unrotated states agree to the last bits in fp32 only, and so do proposals.
    """
    from vllm_ascend.quantization.modelslim_config import AscendModelSlimConfig

    supported = AscendModelSlimConfig.get_supported_act_dtypes()
    AscendModelSlimConfig.get_supported_act_dtypes = lambda *_: [*supported, torch.float32]


def _load_kernel(folder: Path) -> Launches:
    """Build the NPU library for this torch_npu and load it as the product does."""
    import torch_npu  # noqa: F401

    from tests.kernels.npu_runtime import library
    from tests.kernels.npu_runtime.on_npu.launches import Launches
    from vllm_eagle3_quarot import ops
    from vllm_eagle3_quarot.ops.ascend import LIBRARY

    # Apart from the fake CANN, of which a process loads every library before it has torch_npu.
    own = folder / "kernel"
    own.mkdir(exist_ok=True)
    built = own / LIBRARY
    shutil.copy(library.build(), built)
    backend = ops.load_ascend(own)
    if backend.kernel is None:
        raise RuntimeError(f"the NPU library was not loaded: {backend}")
    return Launches(built)


def _complete(job: Job) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    speculation = {"method": "eagle3", "model": job.draft, **job.speculation}
    engine = LLM(
        model=job.target,
        dtype=job.dtype,
        quantization="ascend",
        enforce_eager=True,
        max_model_len=256,
        max_num_batched_tokens=256,
        max_num_seqs=4,
        block_size=128,
        num_gpu_blocks_override=16,
        enable_prefix_caching=False,
        async_scheduling=False,
        disable_log_stats=False,
        speculative_config={
            "num_speculative_tokens": job.num_speculative_tokens,
            **speculation,
        }
        if job.draft
        else None,
        additional_config={"eagle3_quarot": job.settings, **job.host_settings},
    )
    proposals: list[list[list[int]]] = []
    if job.draft:
        _record(engine, proposals)
    parameters = SamplingParams(temperature=0.0, max_tokens=job.max_tokens, ignore_eos=True)
    outputs = engine.generate(job.prompts, parameters, use_tqdm=False)
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    metrics = {metric.name: metric for metric in engine.get_metrics()}
    engine.llm_engine.engine_core.shutdown()

    def count(name: str) -> int:
        metric = metrics.get(f"vllm:spec_decode_num_{name}")
        return 0 if metric is None else int(metric.value)

    return {
        "tokens": tokens,
        "proposals": proposals,
        "drafted": count("draft_tokens"),
        "accepted": count("accepted_tokens"),
    }


def _record(engine: Any, proposals: list[list[list[int]]]) -> None:
    """Keep every token id that vllm-ascend's proposer returns."""
    worker = engine.llm_engine.model_executor.driver_worker.worker
    drafter = worker.model_runner.drafter
    propose = drafter._propose

    def recorded(*arguments: Any, **options: Any) -> Any:
        proposed = propose(*arguments, **options)
        proposals.append(proposed.tolist())
        return proposed

    drafter._propose = recorded


if __name__ == "__main__":
    main()
