# SPDX-License-Identifier: Apache-2.0
"""One picture of a run: output tok/s and mean acceptance length of every server, by concurrency.

Needs matplotlib, which is an extra: ``pip install vllm-eagle3-quarot[bench]``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_eagle3_quarot.benchmarking.matrix import Draft

COLOURS = {
    Draft.none: "#64748b",
    Draft.plain: "#15803d",
    Draft.uncorrected: "#dc2626",
    Draft.runtime: "#1d4ed8",
    Draft.folded: "#0891b2",
    Draft.aligned: "#7c3aed",
}

#: Inches per bar and height of the picture; dots per inch.
BAR_WIDTH, HEIGHT, RESOLUTION = 0.62, 5.2, 90


def can_plot() -> bool:
    """True when matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def plot(document: Mapping[str, Any], file: Path) -> None:
    """Write a PNG; one group of bars per load, one bar per server."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    loads = [(load["concurrency"], load["sampling"]) for load in document["servers"][0]["loads"]]
    servers = document["servers"]
    width = max(7.0, BAR_WIDTH * len(loads) * len(servers) + 1.5)
    figure, (speed, length) = pyplot.subplots(
        2, 1, figsize=(width, HEIGHT), sharex=True, layout="constrained"
    )
    room = 0.85 / len(servers)
    for number, server in enumerate(servers):
        draft = Draft(server["draft"])
        places = [index + (number - (len(servers) - 1) / 2) * room for index in range(len(loads))]
        label = f"{server['target']}, {draft.label}"
        if len({each["speculative_tokens"] for each in servers} - {0}) > 1 and draft != Draft.none:
            label += f", K = {server['speculative_tokens']}"
        hatch = None if server["target"] == servers[-1]["target"] else "//"
        style = {
            "width": room * 0.92,
            "color": COLOURS[draft],
            "hatch": hatch,
            "edgecolor": "white",
        }
        figures = [load["output_tokens_per_second"] for load in server["loads"]]
        heights = [each["median"] for each in figures]
        below = [each["median"] - each["min"] for each in figures]
        above = [each["max"] - each["median"] for each in figures]
        speed.bar(places, heights, yerr=[below, above], label=label, ecolor="#334155", **style)
        lengths = [load["mean_acceptance_length"] for load in server["loads"]]
        length.bar(places, [each["median"] if each else 1.0 for each in lengths], **style)
    speed.set_ylabel("output tok/s")
    length.set_ylabel("mean acceptance length")
    length.set_ylim(bottom=0.0)
    length.axhline(1.0, color="#334155", linewidth=0.8)
    length.set_xticks(
        range(len(loads)), [f"{sampling}, {count} at a time" for count, sampling in loads]
    )
    device = document["provenance"]["devices"]
    speed.set_title(f"{device} numbers, {document['dataset']} prompts", fontsize=10)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=RESOLUTION, metadata={"Software": None})
    pyplot.close(figure)
