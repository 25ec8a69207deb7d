# SPDX-License-Identifier: Apache-2.0
"""One server with much switched on at once: each kind of request drafts as well as a plain one.

Two data-parallel engines, prefix caching, chunked prefill, structured output and LoRA, on the float
target rotated here, since vLLM adds LoRA to float layers. That every proposal is the unrotated
target's is tested in tests/engine/test_features.py; this is the same over HTTP, by the server's own
metrics.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from tests.e2e.served import DTYPE
from tests.support.lora import write_adapter
from tests.support.rotated_copy import rotated_copy
from tests.support.rotations import real_rotation
from tools.serving import ReferencePair, ServeOptions, Server, SpecCounters
from tools.serving.client import connect
from tools.serving.options import MODEL
from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.dataset import Dataset
from vllm_eagle3_quarot.benchmarking.matrix import Draft, Load, Sampling, ServerSpec
from vllm_eagle3_quarot.benchmarking.measurement import Measurement
from vllm_eagle3_quarot.cli.app import app

ADAPTER = "adapter"
ENGINES = 2
MAX_TOKENS = 48
MOST_TOKENS_AT_ONCE = 16
"""Of all requests in a step; the prompts have 31 to 44 tokens."""

BLOCK = 32
"""Tokens per block of the KV cache; whole blocks are cached."""

WORKING_FIRST_POSITION = 0.8
"""What the reference pair reaches on its own texts (tests/e2e/test_plugin_on.py)."""

POSITION_TOLERANCE = 0.06
"""Between two runs of the same prompts: rows come in other batches, so fp32 rounds anew."""

BROKEN_MEAN_LENGTH = 1.2
"""What an uncorrected draft stays below (tests/e2e/test_plugin_off.py)."""

STRUCTURED_OUTPUTS = {"backend": "xgrammar", "disable_any_whitespace": True}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 60, "maxLength": 120}},
    "required": ["text"],
    "additionalProperties": False,
}
"""Proposals that break a schema are dropped before they are counted, so most of it is free text."""


@pytest.fixture(scope="module")
def server(pair: ReferencePair, logs: Path) -> Iterator[Server]:
    q = real_rotation(192)
    target = rotated_copy(pair.original, logs / "rotated float target", q)
    adapter = write_adapter(logs / ADAPTER, pair.original, q)
    options = ServeOptions(
        target=target,
        draft=pair.draft,
        dtype=DTYPE,
        max_num_seqs=4,  # a step must have room for a token and three proposals of each
        arguments=(
            *("--data-parallel-size", str(ENGINES), "--api-server-count", "1"),
            *("--enable-prefix-caching", "--block-size", str(BLOCK)),
            *("--max-num-batched-tokens", str(MOST_TOKENS_AT_ONCE)),
            *("--structured-outputs-config", json.dumps(STRUCTURED_OUTPUTS)),
            *("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}={adapter}"),
        ),
    )
    with Server.of(options, logs / "features.log") as running:
        yield running
        report = running.stop(signal.SIGINT)
    assert (report.exit_code, report.killed) == (0, ()), "the server did not end cleanly"


@pytest.fixture
def client(server: Server) -> Iterator[OpenAI]:
    with connect(server) as connection:
        yield connection


def _complete(
    client: OpenAI, prompt: str, model: str = MODEL, engine: int | None = None
) -> tuple[str, int]:
    """The greedy completion, and the number of tokens of the prompt."""
    answer = client.completions.create(
        model=model,
        prompt=prompt,
        max_tokens=MAX_TOKENS,
        temperature=0.0,
        extra_body={"ignore_eos": True},
        extra_headers={} if engine is None else {"X-data-parallel-rank": str(engine)},
    )
    assert answer.usage is not None
    return answer.choices[0].text, answer.usage.prompt_tokens


def _counted(server: Server, ask: Callable[[], Any]) -> SpecCounters:
    before = server.counters()
    ask()
    return server.counters() - before


def _per_engine(server: Server, name: str) -> dict[str, float]:
    text = httpx.get(f"{server.url}/metrics", trust_env=False).raise_for_status().text
    return {
        sample.labels["engine"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_concurrent_requests_on_both_engines_with_prompts_in_chunks(
    server: Server, pair: ReferencePair
) -> None:
    def ask(prompt: str) -> tuple[str, int]:
        with connect(server) as connection:
            return _complete(connection, prompt)

    lengths: list[int] = []

    def ask_all() -> None:
        with ThreadPoolExecutor(8) as pool:
            lengths.extend(length for _, length in pool.map(ask, pair.completions[:16]))

    counters = _counted(server, ask_all)
    assert min(lengths) > MOST_TOKENS_AT_ONCE
    assert counters.acceptance[0] >= WORKING_FIRST_POSITION
    generated = _per_engine(server, "vllm:generation_tokens_total")
    assert len(generated) == ENGINES and all(generated.values())


def test_prompts_from_the_prefix_cache(server: Server, client: OpenAI, pair: ReferencePair) -> None:
    """Rows that are not computed again reach the draft through its own cache."""
    prompts = [" ".join(pair.completions[first : first + 3]) for first in range(16, 31, 3)]
    texts: list[str] = []

    def ask() -> None:
        texts.extend(_complete(client, prompt, engine=1)[0] for prompt in prompts)

    first = _counted(server, ask)
    before = _per_engine(server, "vllm:prefix_cache_hits_total")["1"]
    again = _counted(server, ask)
    hits = _per_engine(server, "vllm:prefix_cache_hits_total")["1"] - before
    assert hits >= BLOCK * len(prompts)
    assert texts[: len(prompts)] == texts[len(prompts) :]
    assert again.acceptance == pytest.approx(first.acceptance, abs=POSITION_TOLERANCE)
    assert again.mean_acceptance_length > BROKEN_MEAN_LENGTH


def test_structured_output(server: Server, client: OpenAI, pair: ReferencePair) -> None:
    answers: list[str] = []

    def ask() -> None:
        for chat in pair.chats[:8]:
            answer = client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": chat}],
                max_tokens=2 * MAX_TOKENS,
                temperature=0.0,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": SCHEMA},
                },
            )
            answers.append(answer.choices[0].message.content or "")

    counters = _counted(server, ask)
    assert all(60 <= len(json.loads(answer)["text"]) <= 120 for answer in answers)
    assert counters.mean_acceptance_length > BROKEN_MEAN_LENGTH


def test_adapter_on_the_target(server: Server, client: OpenAI, pair: ReferencePair) -> None:
    """The draft was trained for the target as it is, so it knows the adapted one less well."""
    adapted: list[str] = []

    def ask() -> None:
        adapted.extend(_complete(client, prompt, ADAPTER)[0] for prompt in pair.completions[:8])

    counters = _counted(server, ask)
    plain = [_complete(client, prompt)[0] for prompt in pair.completions[:8]]
    assert adapted != plain
    assert counters.mean_acceptance_length > BROKEN_MEAN_LENGTH


def test_watch_sums_both_engines(server: Server, client: OpenAI, pair: ReferencePair) -> None:
    before = server.counters()
    _complete(client, pair.completions[0])
    result = CliRunner().invoke(app, ["watch", server.url, "--once", "--json", "--interval", "0.1"])
    assert result.exit_code == 0
    seen = json.loads(result.stdout)
    assert MODEL in seen["models"]
    counted = server.counters()
    assert seen["since_start"]["drafts"] == counted.drafts > before.drafts
    assert seen["since_start"]["acceptance_per_position"] == pytest.approx(counted.acceptance)


def test_vllms_own_client_counts_what_the_benchmark_reports(
    server: Server, pair: ReferencePair
) -> None:
    """The benchmark counts drafts in /metrics; vLLM's client does so by itself."""
    options = ServeOptions(target=pair.rotated)
    spec = ServerSpec("rotated", Draft.runtime, 3, options, pair.rotated, MODEL)
    bench = Client(Dataset("questions", pair.chats), prompts=4, output_tokens=16)
    before = server.counters()
    result = bench.send(server, spec, Load(2, Sampling.greedy), prompts=4)
    measured = Measurement.of(result, server.counters() - before)
    assert measured.requests == 4
    assert 4 < measured.output_tokens <= 64
    assert measured.mean_acceptance_length == pytest.approx(result["spec_decode_acceptance_length"])
    assert 100 * measured.acceptance_per_position[0] == pytest.approx(
        100 * result["spec_decode_per_position_acceptance_rates"][0]  # type: ignore[index]
    )
    assert measured.tpot.p50 > 0 < measured.ttft.p99
