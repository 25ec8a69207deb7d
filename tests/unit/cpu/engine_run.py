# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.unit.cpu.engine_run JOB RESULT``: one vLLM engine in a process of its own.

An engine fixes thread and library settings of its process, so tests run it outside of theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

#: Two cores, possibly shared with others; one process for front end, engine and model.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def run_engine(folder: Path, llm: dict[str, Any], batches: list[dict[str, Any]]) -> list[Any]:
    """Start an engine, let it answer batch after batch, return what it says.

    Args:
        folder: for the files that go to and fro.
        llm: arguments of ``vllm.LLM``.
        batches: each ``{"prompts": [...], "params": {...} or one such per prompt}``, where a prompt
            is a list of token ids and params are those of ``SamplingParams``.

    Returns:
        Per batch and prompt: ``{"outputs": [token ids, ...], "texts": [text, ...],
        "prompt_logprobs": [...] or None}``, the latter the log-probability of each prompt token but
        the first.
    """
    job, result = folder / "job.json", folder / "result.json"
    job.write_text(json.dumps({"llm": llm, "batches": batches}))
    process = subprocess.run(
        [sys.executable, "-m", "tests.unit.cpu.engine_run", str(job), str(result)],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-8000:]
    answers: list[Any] = json.loads(result.read_text())
    return answers


def main(job: Path, result: Path) -> None:
    from vllm_eagle3_quarot.integrations.cpu import register_cpu_host

    register_cpu_host()

    from vllm import LLM, SamplingParams

    work = json.loads(job.read_text())
    engine = LLM(**work["llm"], enforce_eager=True, max_model_len=512)
    answers = []
    for batch in work["batches"]:
        params = batch["params"]
        sampling = (
            [SamplingParams(**one) for one in params]
            if isinstance(params, list)
            else SamplingParams(**params)
        )
        prompts = [{"prompt_token_ids": tokens} for tokens in batch["prompts"]]
        answers.append(
            [
                {
                    "outputs": [list(output.token_ids) for output in request.outputs],
                    "texts": [output.text for output in request.outputs],
                    "prompt_logprobs": _own_logprobs(request),
                }
                for request in engine.generate(prompts, sampling, use_tqdm=False)
            ]
        )
    result.write_text(json.dumps(answers))


def _own_logprobs(request: Any) -> list[float] | None:
    if request.prompt_logprobs is None:
        return None
    return [
        entry[token].logprob
        for token, entry in zip(
            request.prompt_token_ids[1:], request.prompt_logprobs[1:], strict=True
        )
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
