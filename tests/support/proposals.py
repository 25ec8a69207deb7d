# SPDX-License-Identifier: Apache-2.0
"""What one engine proposes: run as a program, prints JSON. One engine per process, on purpose.

``python -m tests.support.proposals '{"target": ..., "draft": ..., ...}'`` builds the real vLLM engine
in this process, completes prompts greedily and records every token that the proposer returned.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "INFO",
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "passive",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}

MARK = "PROPOSALS "


@dataclass(frozen=True)
class Job:
    """One engine and what it has to complete."""

    target: str
    draft: str
    prompts: list[str]
    max_tokens: int = 32
    num_speculative_tokens: int = 3
    dtype: str = "float32"
    enforce_eager: bool = True
    settings: dict[str, Any] = field(default_factory=dict)
    speculation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        tokens: completed token ids per prompt.
        proposals: token ids that the proposer returned, call by call.
        log: the engine's output.
    """

    tokens: list[list[int]]
    proposals: list[list[list[int]]]
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


def run(job: Job) -> Outcome:
    """Run ``job`` in a process of its own.

    Raises:
        RuntimeError: the engine failed; the message ends with its output.
    """
    result = subprocess.run(
        [sys.executable, "-m", "tests.support.proposals", json.dumps(asdict(job))],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    log = result.stdout + result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith(MARK)]
    if result.returncode or not lines:
        raise RuntimeError(f"the engine ended with exit code {result.returncode}:\n{log[-6000:]}")
    found = json.loads(lines[-1].removeprefix(MARK))
    return Outcome(found["tokens"], found["proposals"], log)


def main(job: Job) -> None:
    """Build the engine, run the prompts one by one, print what was proposed."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=job.target,
        dtype=job.dtype,
        enforce_eager=job.enforce_eager,
        max_model_len=512,
        max_num_seqs=4,
        distributed_executor_backend="uni",
        speculative_config={
            "method": "eagle3",
            "model": job.draft,
            "num_speculative_tokens": job.num_speculative_tokens,
            **job.speculation,
        },
        additional_config={"eagle3_quarot": job.settings},
    )
    drafter = engine.llm_engine.model_executor.driver_worker.worker.model_runner.drafter
    proposals: list[list[list[int]]] = []
    propose = drafter.propose

    def recorded(*arguments: Any, **options: Any) -> Any:
        proposed = propose(*arguments, **options)
        proposals.append(proposed.tolist())
        return proposed

    drafter.propose = recorded
    parameters = SamplingParams(temperature=0.0, max_tokens=job.max_tokens, ignore_eos=True)
    tokens = [
        list(engine.generate([prompt], parameters, use_tqdm=False)[0].outputs[0].token_ids)
        for prompt in job.prompts
    ]
    sys.stdout.write(MARK + json.dumps({"tokens": tokens, "proposals": proposals}) + "\n")


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
