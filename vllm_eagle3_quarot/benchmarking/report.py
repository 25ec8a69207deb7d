# SPDX-License-Identifier: Apache-2.0
"""The document of a run as Markdown: a table of servers and one of loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_eagle3_quarot.benchmarking.degenerate import FLAGGED_SHARE
from vllm_eagle3_quarot.benchmarking.words import WORDS, Language

Document = Mapping[str, Any]

NOTHING = "-"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def report(document: Document, language: Language = "en") -> str:
    """Both tables, and a line that says what the numbers are of."""
    return "\n\n".join(
        [
            loads_table(document, language),
            servers_table(document, language),
            origin(document["provenance"], language),
        ]
    )


def loads_table(document: Document, language: Language = "en") -> str:
    """One row per server and load."""
    words = WORDS[language]
    header = [
        words["target"],
        words["draft"],
        "K",
        words["concurrency"],
        words["sampling"],
        words["speed"],
        "TTFT ms mean / p50 / p99",
        "TPOT ms mean / p50 / p99",
        words["acceptance"],
        words["positions"],
        words["length"],
        words["degenerate"],
    ]
    rows = []
    for server in document["servers"]:
        for load in server["loads"]:
            rows.append(
                [
                    server["target"],
                    words[server["draft"]],
                    str(server["speculative_tokens"] or NOTHING),
                    str(load["concurrency"]),
                    words[load["sampling"]],
                    _spread(load["output_tokens_per_second"], ".1f"),
                    _three(load, "ttft"),
                    _three(load, "tpot"),
                    _median(load["acceptance_rate"], ".3f"),
                    " / ".join(_median(rate, ".3f") for rate in load["acceptance_per_position"])
                    or NOTHING,
                    _median(load["mean_acceptance_length"], ".2f"),
                    _degenerate(load),
                ]
            )
    return table(header, rows)


def servers_table(document: Document, language: Language = "en") -> str:
    """One row per server: what starting it took, and its memory."""
    words = WORDS[language]
    header = [words["target"], words["draft"], "K", words["start-up"], words["rss"]]
    rows = [
        [
            server["target"],
            words[server["draft"]],
            str(server["speculative_tokens"] or NOTHING),
            _spread(server["start_up_seconds"], ".1f"),
            _spread({k: v / 2**30 for k, v in server["peak_rss_bytes"].items()}, ".2f"),
        ]
        for server in document["servers"]
    ]
    return table(header, rows)


def origin(provenance: Document, language: Language = "en") -> str:
    """Where the numbers are from, in one line."""
    words = WORDS[language]
    versions = ", ".join(
        f"{name} {version}" for name, version in provenance["versions"].items() if version
    )
    commit = f"commit {provenance['commit']}, " if provenance["commit"] else ""
    cores = f"{provenance['cores']} {words['cores']}"
    what = words["cpu numbers"] if provenance["devices"] == "CPU" else provenance["devices"]
    return (
        f"`{provenance['command']}`  \n{what}: {provenance['processor']}, {cores}; "
        f"{commit}{versions}; {provenance['date']}. {words['npu']}"
    )


def _median(figure: Document | None, form: str) -> str:
    return NOTHING if figure is None else format(figure["median"], form)


def _spread(figure: Document | None, form: str) -> str:
    """Median, and in brackets the smallest and largest where they differ."""
    if figure is None:
        return NOTHING
    median, smallest, largest = (format(figure[key], form) for key in ("median", "min", "max"))
    return median if smallest == largest else f"{median} ({smallest} … {largest})"


def _three(load: Document, name: str) -> str:
    return " / ".join(
        _median(load[f"{name}_ms_{part}"], ".0f" if name == "ttft" else ".1f")
        for part in ("mean", "p50", "p99")
    )


def _degenerate(load: Document) -> str:
    count, requests = load["degenerate"], load["requests"]
    flag = " ⚠" if count > FLAGGED_SHARE * requests else ""
    return f"{count} / {requests}{flag}"
