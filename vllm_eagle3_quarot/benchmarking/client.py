# SPDX-License-Identifier: Apache-2.0
"""Put a load on a server with vLLM's own client, ``vllm bench serve``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx

from vllm_eagle3_quarot.benchmarking.dataset import Dataset
from vllm_eagle3_quarot.benchmarking.matrix import Load, ServerSpec
from vllm_eagle3_quarot.benchmarking.measurement import Measurement
from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.serving.log_file import last_error
from vllm_eagle3_quarot.serving.server import Server

TIMEOUT_S = 1800.0
WARM_UP_REQUESTS = 2
RESULT = "result.json"


@dataclass(frozen=True)
class Client:
    """What every run has in common.

    Attributes:
        dataset: prompts.
        prompts: how many of them are sent per run.
        output_tokens: made at most for each.
        seed: of sampling and of vLLM's client.
    """

    dataset: Dataset
    prompts: int
    output_tokens: int
    seed: int = 0

    def warm_up(self, server: Server, spec: ServerSpec) -> None:
        """A few requests that nobody looks at: the first ones pay for allocations.

        Raises:
            ServingError: one was refused, or the server died.
        """
        body = {
            "model": spec.model,
            "messages": [{"role": "user", "content": self.dataset.prompts[0]}],
            "max_tokens": self.output_tokens,
            "temperature": 0,
        }
        url = f"{server.url}/v1/chat/completions"
        try:
            for _ in range(WARM_UP_REQUESTS):
                # Proxies of the environment are not for the loopback address.
                httpx.post(url, json=body, timeout=TIMEOUT_S, trust_env=False).raise_for_status()
        except httpx.HTTPError as error:
            raise server.death_notice() or ServingError(f"{url}: {error}") from None

    def measure(self, server: Server, spec: ServerSpec, load: Load) -> Measurement:
        """One run.

        Raises:
            ServingError: the client or a request failed, or the server died.
        """
        before = server.counters()
        result = self.send(server, spec, load, self.prompts)
        return Measurement.of(result, server.counters() - before)

    def send(self, server: Server, spec: ServerSpec, load: Load, prompts: int) -> dict[str, object]:
        """Return the client's JSON; raises what :meth:`measure` does."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.dataset.write(folder / "prompts.json", prompts)
            log = folder / "client.log"
            with log.open("wb") as output:
                code = subprocess.run(
                    self._command(server, spec, load, prompts, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=TIMEOUT_S,
                    check=False,
                ).returncode
            notice = server.death_notice()
            if notice is not None:
                raise notice
            if code or not (folder / RESULT).exists():
                raise ServingError(
                    f"`vllm bench serve` ended with exit code {code}: "
                    f"{last_error(log) or 'no reason given'}"
                )
            result: dict[str, object] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
            return result

    def _command(
        self, server: Server, spec: ServerSpec, load: Load, prompts: int, folder: Path
    ) -> list[str]:
        return [
            *(sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve"),
            # Chat completions: the server applies the model's own template.
            *("--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
            *("--base-url", server.url),
            *("--model", spec.model, "--tokenizer", str(spec.tokenizer)),
            *("--dataset-name", "sharegpt", "--dataset-path", str(folder / "prompts.json")),
            *("--disable-shuffle", "--num-prompts", str(prompts)),
            *("--sharegpt-output-len", str(self.output_tokens)),
            *("--max-concurrency", str(load.concurrency)),
            *load.sampling.arguments,
            *("--seed", str(self.seed)),
            *("--percentile-metrics", "ttft,tpot", "--metric-percentiles", "50,99"),
            *("--ready-check-timeout-sec", "0", "--disable-tqdm"),
            *("--save-result", "--save-detailed"),
            *("--result-dir", str(folder), "--result-filename", RESULT),
        ]
