# SPDX-License-Identifier: Apache-2.0
"""What real engines propose: a program that builds them one after the other in its own process.

``python -m tests.support.proposals FILE`` reads a list of jobs, builds vLLM's engine for each,
completes prompts greedily, records every token that the proposer returned and prints one line of
JSON per job. Engines of several processes are asked through a worker extension, which is vLLM's own
way to call a method on every rank.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.engine_process import COMMON_ENVIRONMENT, print_outcome, run_program

ENVIRONMENT = {
    **COMMON_ENVIRONMENT,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
}


@dataclass(frozen=True)
class Job:
    """One engine and what it has to complete; without a draft it looks for repeated n-grams.

    ``engine`` is passed to vLLM as it is, ``environment`` set while the engine is built and runs.
    ``requests`` says per prompt what is special about it: ``lora``, the folder of an adapter;
    ``schema``, the JSON schema that the completion has to follow; ``image``, the file of a picture
    that comes with the prompt.
    """

    target: str
    draft: str | None
    prompts: list[str]
    max_tokens: int = 32
    num_speculative_tokens: int = 3
    dtype: str = "float32"
    enforce_eager: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        tokens: completed token ids per prompt.
        texts: the same as text.
        cached: tokens of each prompt that came from the prefix cache.
        proposals: token ids that the proposer returned, call by call.
        ranks: decisions and proposals of every rank, see tests.support.recorder.
        modules: modules of this package that the process has imported so far.
        log: the engine's output.
    """

    tokens: list[list[int]]
    texts: list[str]
    cached: list[int]
    proposals: list[list[list[int]]]
    ranks: list[dict[str, Any]]
    modules: list[str]
    log: str

    @property
    def acceptance(self) -> float:
        """Accepted share of drafted tokens, from the tokens themselves."""
        generated = sum(map(len, self.tokens))
        calls = len(self.proposals)
        depth = len(self.proposals[0][0])
        # One prompt at a time: every call but a prompt's first follows one verification step, which
        # yields one token of the target's and the accepted ones.
        return (generated - calls) / (calls * depth)


def run(
    jobs: Sequence[Job], program: Sequence[str] = ("tests.support.proposals",)
) -> list[Outcome]:
    """Run ``jobs`` in one process, beside the test's own.

    ``program``: the module that it runs, and arguments in front of the file with the jobs.

    Raises:
        RuntimeError: an engine failed; the message ends with its output.
    """
    command = [sys.executable, "-m", *program]
    return [Outcome(**outcome) for outcome in run_program(command, jobs, ENVIRONMENT)]


def main(jobs: Sequence[Job]) -> None:
    """Build each engine in turn and print what it proposed."""
    from vllm.distributed import cleanup_dist_env_and_memory

    for job in jobs:
        print_outcome(complete(job))
        cleanup_dist_env_and_memory()


def complete(job: Job) -> dict[str, Any]:
    """Build one engine in this process, complete its prompts, and return what came of it."""
    from vllm import LLM

    os.environ.update(job.environment)
    arguments: dict[str, Any] = {
        "model": job.target,
        "dtype": job.dtype,
        "enforce_eager": job.enforce_eager,
        "max_model_len": 512,
        "max_num_seqs": 4,
        "distributed_executor_backend": "uni",
        "worker_extension_cls": "tests.support.recorder.Recorder",
        "speculative_config": {
            **({"method": "eagle3", "model": job.draft} if job.draft else {"method": "ngram"}),
            "num_speculative_tokens": job.num_speculative_tokens,
            **job.speculation,
        },
        "additional_config": {"eagle3_quarot": job.settings},
    }
    engine = LLM(**{**arguments, **job.engine})
    engine.collective_rpc("start_recording")
    requests = job.requests or [{}] * len(job.prompts)
    answers = [
        _ask(engine, prompt, job.max_tokens, **request)
        for prompt, request in zip(job.prompts, requests, strict=True)
    ]
    ranks = engine.collective_rpc("recording")
    engine.llm_engine.engine_core.shutdown()
    for name in job.environment:
        os.environ.pop(name)
    modules = sorted(name for name in sys.modules if name.startswith("vllm_eagle3_quarot"))
    # Drafts live on the last stage of a pipeline.
    proposals = ranks[-1]["proposals"]
    return {
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "texts": [answer.outputs[0].text for answer in answers],
        "cached": [answer.num_cached_tokens for answer in answers],
        "proposals": proposals,
        "ranks": ranks,
        "modules": modules,
    }


def _ask(
    engine: Any,
    prompt: str,
    max_tokens: int,
    lora: str | None = None,
    schema: dict[str, Any] | None = None,
    image: str | None = None,
) -> Any:
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import StructuredOutputsParams

    parameters = SamplingParams(
        temperature=0.0,
        max_tokens=max_tokens,
        ignore_eos=schema is None,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
    )
    adapter = None if lora is None else LoRARequest("adapter", 1, lora)
    (answer,) = engine.generate(
        [_with_picture(prompt, image)], parameters, use_tqdm=False, lora_request=adapter
    )
    return answer


def _with_picture(prompt: str, image: str | None) -> Any:
    if image is None:
        return prompt
    from PIL import Image

    picture = Image.open(image).convert("RGB")
    return {"prompt": prompt, "multi_modal_data": {"image": picture}}


if __name__ == "__main__":
    main([Job(**job) for job in json.loads(Path(sys.argv[1]).read_text())])
