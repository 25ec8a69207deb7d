# SPDX-License-Identifier: Apache-2.0
"""Engines one after the other, some of them with vllm-ascend's own fold; failures are answers.

``python -m benchmarks.quality.engines FILE`` is the program; it ends at the first failure, because
an engine that failed to start leaves a process in which no other should be built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import proposals
from tests.support.proposals import ENVIRONMENT, Job

MARK = "ANSWER "


@dataclass(frozen=True)
class Request:
    """An engine, and the release of vllm-ascend whose fold acts on its draft; None for none."""

    job: Job
    host: str | None = None


@dataclass(frozen=True)
class Answer:
    """Token ids per prompt and proposals per call, or why there are none."""

    tokens: list[list[int]]
    proposals: list[list[list[int]]]
    error: str | None = None

    @property
    def acceptance(self) -> float:
        """Accepted share of drafted tokens."""
        generated, calls = sum(map(len, self.tokens)), len(self.proposals)
        # One prompt at a time: a verification step yields one token and the accepted ones.
        return (generated - calls) / (calls * len(self.proposals[0][0]))

    def same_as(self, other: Answer) -> float:
        """Share of calls that proposed the same tokens, of the longer list of calls."""
        pairs = zip(self.proposals, other.proposals, strict=False)
        same = sum(mine == theirs for mine, theirs in pairs)
        return same / max(len(self.proposals), len(other.proposals))


def run(requests: Sequence[Request]) -> list[Answer]:
    """Answer all of them, in as few processes as their failures allow."""
    answers: list[Answer] = []
    while len(answers) < len(requests):
        answers += _process(requests[len(answers) :])
    return answers


def _process(requests: Sequence[Request]) -> list[Answer]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([asdict(request) for request in requests], file)
        file.flush()
        result = subprocess.run(
            [sys.executable, "-m", "benchmarks.quality.engines", file.name],
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    answers = [
        Answer(**json.loads(line.removeprefix(MARK)))
        for line in result.stdout.splitlines()
        if line.startswith(MARK)
    ]
    if not answers:
        raise SystemExit(f"no engine answered:\n{result.stdout[-4000:]}")
    return answers


def main(requests: Sequence[Request]) -> None:
    """Build the engines and print their answers, up to the first failure."""
    from vllm.distributed import cleanup_dist_env_and_memory

    from tests.contract.wheels.folding_host import FoldingHost
    from tests.contract.wheels.releases import RELEASES

    for request in requests:
        with pytest.MonkeyPatch.context() as monkeypatch:
            if request.host is not None:
                (release,) = (r for r in RELEASES if str(r) == f"vllm-ascend-{request.host}")
                FoldingHost(release, monkeypatch).switch_on(Path(request.job.target))
            try:
                found = proposals.complete(request.job)
            except Exception as error:  # whatever it is, that it fails is what is reported
                failure = {"tokens": [], "proposals": [], "error": _cause(error, request.job)}
                print(MARK + json.dumps(failure))
                return
        answer: dict[str, Any] = {name: found[name] for name in ("tokens", "proposals")}
        print(MARK + json.dumps(answer), flush=True)
        cleanup_dist_env_and_memory()


def _cause(error: BaseException, job: proposals.Job) -> str:
    """The first line of what lies at the bottom, without the folders of this run."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines() or [""]
    line = lines[0].replace(job.target, "TARGET").replace(job.draft or job.target, "DRAFT")
    return f"{type(error).__name__}: {line}"[:200]


if __name__ == "__main__":
    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    main([Request(Job(**each["job"]), each["host"]) for each in content])
