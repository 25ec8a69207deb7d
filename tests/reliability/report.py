# SPDX-License-Identifier: Apache-2.0
"""What a soak showed, for people and for programs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from tests.reliability.crowd import Result
from tests.reliability.observation import Period, Sample, periods, slope

MINUTE_S = 60.0
MIB = 2**20

STEADY_FROM = 1 / 2
"""Share of the soak after which memory counts. Until then caches fill that have an end, mostly
oneDNN's: vLLM lets each linear layer keep generated code for 32 numbers of tokens per step."""


@dataclass(frozen=True)
class SoakReport:
    """A crowd and the server that it met.

    Attributes:
        clients: requests in flight.
        result: what became of the requests.
        samples: the server meanwhile.
        prefix_cache_hits: tokens of prompts found in the prefix cache.
    """

    clients: int
    result: Result
    samples: Sequence[Sample]
    prefix_cache_hits: int

    @property
    def steady(self) -> Sequence[Sample]:
        """The samples after the caches have filled."""
        first = self.samples[-1].seconds * STEADY_FROM
        return [sample for sample in self.samples if sample.seconds >= first]

    @property
    def growth_mib_per_minute(self) -> float:
        """Slope of the resident memory of all processes, once steady."""
        return slope(self.steady) * MINUTE_S / MIB

    @property
    def minutes(self) -> Sequence[Period]:
        """Speculation minute by minute."""
        return periods(self.samples, MINUTE_S)

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Acceptance rate per position over the whole soak."""
        return (self.samples[-1].counters - self.samples[0].counters).acceptance

    def document(self) -> Mapping[str, object]:
        """All of it as JSON values."""
        whole = self.samples[-1].counters - self.samples[0].counters
        return {
            "versions": {name: _version(name) for name in ("vllm", "torch", "vllm-eagle3-quarot")},
            "machine": {"processor": platform.machine(), "cores": psutil.cpu_count()},
            "seconds": round(self.result.seconds, 1),
            "clients": self.clients,
            "requests": {
                name: {
                    "finished": tally.finished,
                    "failed": tally.failed,
                    "tokens_received": tally.tokens,
                }
                for name, tally in self.result.kinds.items()
            },
            "errors": self.result.errors,
            "generated_tokens": whole.generation_tokens,
            "prefix_cache_hits": self.prefix_cache_hits,
            "rss_mib": {
                "start": _in_mib(self.samples[0]),
                "steady": _in_mib(self.steady[0]),
                "end": _in_mib(self.samples[-1]),
                "growth_per_minute_once_steady": round(self.growth_mib_per_minute, 3),
            },
            "rss_mib_over_time": [
                [round(sample.seconds, 1), round(sample.total_rss / MIB, 1)]
                for sample in self.samples
            ],
            "drafts": whole.drafts,
            "acceptance": _rounded(whole.acceptance),
            "acceptance_per_minute": [
                {
                    "from_s": round(minute.start),
                    "drafts": minute.counters.drafts,
                    "acceptance": _rounded(minute.counters.acceptance),
                    "mean_acceptance_length": round(minute.counters.mean_acceptance_length, 3),
                }
                for minute in self.minutes
            ],
        }

    def markdown(self) -> str:
        """The same in short."""
        whole = self.samples[-1].counters - self.samples[0].counters
        failed = sum(tally.failed for tally in self.result.kinds.values())
        lines = [
            f"# Soak: {self.clients} clients for {self.result.seconds:.0f} s",
            "",
            f"vllm {_version('vllm')}, torch {_version('torch')}, CPU with {psutil.cpu_count()} "
            f"cores; {self.result.finished} requests, {failed} failed, {whole.generation_tokens} "
            f"tokens generated, {self.prefix_cache_hits} prompt tokens from the prefix cache.",
            "",
            "| Requests | Finished | Failed | Tokens received |",
            "|---|---:|---:|---:|",
            *(
                f"| {name} | {tally.finished} | {tally.failed} | {tally.tokens} |"
                for name, tally in self.result.kinds.items()
            ),
            "",
            "| Resident memory, MiB | Start | Steady | End |",
            "|---|---:|---:|---:|",
            *(f"| {name} | {' | '.join(self._over_time(name))} |" for name in self.samples[0].rss),
            f"| **all** | {' | '.join(self._over_time(None))} |",
            "",
            f"Growth once steady: {self.growth_mib_per_minute:.2f} MiB per minute.",
            "",
            "| Minute | Drafts | Acceptance 1 / 2 / 3 | Mean acceptance length |",
            "|---|---:|---|---:|",
            *(
                f"| {number} | {minute.counters.drafts} | {_rates(minute.counters.acceptance)} | "
                f"{minute.counters.mean_acceptance_length:.3f} |"
                for number, minute in enumerate(self.minutes, 1)
            ),
            f"| **all** | {whole.drafts} | {_rates(whole.acceptance)} | "
            f"{whole.mean_acceptance_length:.3f} |",
            "",
        ]
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        """Write ``soak.json`` and ``soak.md``."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document(), indent=2) + "\n"
        (folder / "soak.json").write_text(text, encoding="utf-8")
        (folder / "soak.md").write_text(self.markdown(), encoding="utf-8")

    def _over_time(self, process: str | None) -> list[str]:
        moments = (self.samples[0], self.steady[0], self.samples[-1])
        values = [
            sample.total_rss if process is None else sample.rss.get(process, 0)
            for sample in moments
        ]
        return [f"{value / MIB:.1f}" for value in values]


def _in_mib(sample: Sample) -> dict[str, float]:
    return {name: round(value / MIB, 1) for name, value in sample.rss.items()}


def _rounded(rates: Sequence[float]) -> list[float]:
    return [round(rate, 4) for rate in rates]


def _rates(rates: Sequence[float]) -> str:
    return " / ".join(f"{rate:.3f}" for rate in rates)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
