# SPDX-License-Identifier: Apache-2.0
"""The program that runs in the environment with vllm-ascend: engines, one after the other.

``python -m tests.ascend.engines FOLDER [--kernel] FILE`` starts the fake device with the libraries
in FOLDER (built there when missing), reads a list of jobs from FILE, builds vllm-ascend's engine
for each job in this process, completes prompts greedily, records what the proposer returned and
prints one line of JSON per job. With ``--kernel`` our operators are the NPU library's, whose kernel
runs on emulated cores; else they run in plain torch on the device.
"""

from __future__ import annotations

import argparse
import json
import shutil
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.ascend.jobs import Job
from tests.support.engine_process import print_outcome

if TYPE_CHECKING:
    from tests.kernels.npu_runtime.on_npu.launches import Launches


def main() -> None:
    """Build each engine in turn and print what it proposed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernel", action="store_true")
    parser.add_argument("jobs", type=Path)
    arguments = parser.parse_args()
    jobs = [Job(**job) for job in json.loads(arguments.jobs.read_text())]

    from tests.ascend.device import start

    start.start(arguments.folder)
    launches = _load_kernel(arguments.folder) if arguments.kernel else None
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    from tests.ascend.device.fp32 import accept_fp32
    from tests.ascend.device.slot_mapping import replace_slot_mapping_kernel

    replace_slot_mapping_kernel()
    if any(job.capture_sizes for job in jobs):
        from tests.ascend.device.graphs import emulate_graphs

        emulate_graphs()
    accept_fp32()
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
        print_outcome({**outcome, "launches": made})
        cleanup_dist_env_and_memory()
        # vllm-ascend's fold replaces this for the life of the process, which is one engine's.
        Eagle3LlamaForCausalLM.load_weights = loader


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
    arguments: dict[str, Any] = {
        "model": job.target,
        "dtype": job.dtype,
        "quantization": "ascend",
        "enforce_eager": not job.capture_sizes,
        "max_model_len": 256,
        "max_num_batched_tokens": 256,
        "max_num_seqs": 4,
        "block_size": 128,
        "num_gpu_blocks_override": 16,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "disable_log_stats": False,
        "additional_config": {"eagle3_quarot": job.settings, **job.host_settings},
    }
    if job.draft:
        arguments["speculative_config"] = {
            "num_speculative_tokens": job.num_speculative_tokens,
            **speculation,
        }
    if job.capture_sizes:
        arguments["compilation_config"] = {
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": job.capture_sizes,
        }
    engine = LLM(**{**arguments, **job.engine})
    proposals: list[list[list[int]]] = []
    graphs = {"replays": 0, "padding": 0}
    if job.draft:
        worker = engine.llm_engine.model_executor.driver_worker.worker
        drafter = worker.model_runner.drafter
        runnable = drafter._runnable
        _record(drafter, proposals)
        _watch_padding(drafter, graphs, job.poison_padding)
    parameters = SamplingParams(temperature=0.0, max_tokens=job.max_tokens, ignore_eos=True)
    outputs = engine.generate(job.prompts, parameters, use_tqdm=False)
    tokens = [list(output.outputs[0].token_ids) for output in outputs]
    metrics = {metric.name: metric for metric in engine.get_metrics()}
    if job.capture_sizes:
        captured = runnable.concrete_aclgraph_entries.values()
        graphs["replays"] = sum(entry.aclgraph.replays for entry in captured)
    engine.llm_engine.engine_core.shutdown()

    def count(name: str) -> int:
        metric = metrics.get(f"vllm:spec_decode_num_{name}")
        return 0 if metric is None else int(metric.value)

    return {
        "tokens": tokens,
        "proposals": proposals,
        "drafted": count("draft_tokens"),
        "accepted": count("accepted_tokens"),
        **graphs,
    }


def _record(drafter: Any, proposals: list[list[list[int]]]) -> None:
    """Keep every token id that vllm-ascend's proposer returns."""
    propose = drafter._propose

    def recorded(*arguments: Any, **options: Any) -> Any:
        proposed = propose(*arguments, **options)
        proposals.append(proposed.tolist())
        return proposed

    drafter._propose = recorded


def _watch_padding(drafter: Any, counts: dict[str, int], poison: bool) -> None:
    """Count the rows by which the draft's input is padded; with ``poison`` they hold NaN."""
    runnable = drafter._runnable

    def run(**inputs: Any) -> Any:
        tokens, padded = inputs["num_tokens"], inputs["num_input_tokens"]
        counts["padding"] += padded - tokens
        if poison:
            drafter.hidden_states[tokens:padded] = float("nan")
        return runnable(**inputs)

    drafter._runnable = run


if __name__ == "__main__":
    main()
