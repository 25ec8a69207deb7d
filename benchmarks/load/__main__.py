# SPDX-License-Identifier: Apache-2.0
"""Cost of the correction while a draft is loaded, against vllm-ascend's own.

``python -m benchmarks.load`` writes pairs with the sizes of known models, loads each draft with
vLLM's own loader in a process of its own (no correction, vllm-ascend's as its wheel has it, ours in
both modes), in turn, ``--rounds`` times, and prints the differences to no correction at all:

    seconds      of loading
    peak MB      most memory of the process's own while loading
    resident MB  what stays afterwards, the draft's table included where it is not the target's

vllm-ascend's part needs nothing of an NPU; it runs on this CPU, as ours does. In a server with NPUs
its products are the host's work, too: weights are folded before they are copied to the device.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.load.pairs import MODELS, Model, Pair, write_pair
from benchmarks.load.worker import CONTENDERS
from benchmarks.own_process import answer_of
from benchmarks.results import save
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.report import table

Row = dict[str, object]

MEASURED = ("seconds", "peak_bytes", "resident_bytes")


def run(contender: str, pair: Pair, release: str) -> dict[str, float]:
    """Measure once, in a process of its own."""
    for file in [*pair.target.rglob("*.safetensors"), *pair.draft.rglob("*.safetensors")]:
        with file.open("rb") as content:  # into the page cache: a disk is not what is measured
            while content.read(2**26):
                pass
    arguments = ["benchmarks.load.worker", contender, str(pair.target), str(pair.draft), release]
    return answer_of(arguments, {"HF_HUB_OFFLINE": "1"}, f"{contender} on {pair.target}")


def measure(model: Model, folder: Path, own_table: bool, options: argparse.Namespace) -> Row:
    """All contenders in turn; medians of what each takes beyond loading without a correction."""
    pair = write_pair(model, folder, own_table=own_table)
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(options.rounds):
        for name, results in taken.items():
            results.append(run(name, pair, options.release))
    row: Row = {
        "model": model.name,
        "hidden": model.hidden,
        "vocabulary": model.vocabulary,
        "draft_table": "copy of the original" if own_table else "none",
        "table_bytes": model.table_bytes,
        "rounds": options.rounds,
        "threads": taken["neither"][0]["threads"],
    }
    for name, results in taken.items():
        extra = {
            key: statistics.median(
                theirs[key] - alone[key]
                for theirs, alone in zip(results, taken["neither"], strict=True)
            )
            for key in MEASURED
        }
        row[name] = {**extra, "runs": results}
    return row


def cells(row: Row) -> list[str]:
    """One line of the table."""
    theirs, runtime, fold = (row[name] for name in ("vllm-ascend", "runtime", "fold"))
    assert isinstance(theirs, dict) and isinstance(runtime, dict) and isinstance(fold, dict)
    mega = 1e6

    def three(key: str, unit: float, digits: int) -> list[str]:
        return [f"{part[key] / unit:.{digits}f}" for part in (theirs, runtime, fold)]

    return [
        f"{row['model']} (H = {row['hidden']}, V = {row['vocabulary']})",
        str(row["draft_table"]),
        *three("seconds", 1, 2),
        *three("peak_bytes", mega, 0),
        *three("resident_bytes", mega, 0),
    ]


HEADER = [
    "sizes of",
    "draft's token table",
    *(f"s: {name}" for name in ("vllm-ascend", "runtime", "fold")),
    *(f"peak MB: {name}" for name in ("vllm-ascend", "runtime", "fold")),
    *(f"resident MB: {name}" for name in ("vllm-ascend", "runtime", "fold")),
]


def main() -> None:
    """Measure, print a table, and write the numbers on request."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--models", nargs="+", default=[each.name for each in MODELS])
    parser.add_argument("--tables", nargs="+", choices=("none", "copy"), default=["none"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--release", default="0.23.0", help="of vllm-ascend (default: 0.23.0)")
    parser.add_argument("--folder", type=Path, help="for the pairs (GBs; default: a temporary one)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    provenance = Provenance.now()
    rows: list[Row] = []
    for model in MODELS:
        if model.name not in options.models:
            continue
        for kind in options.tables:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                rows.append(measure(model, Path(folder), kind == "copy", options))
            # After each of them: the large ones take minutes, and somebody may not want to wait.
            if options.json is not None:
                save(options.json, provenance, {"release": options.release, "rows": rows})
            print(f"measured: {model.name}, table: {kind}", file=sys.stderr, flush=True)
    print(table(HEADER, [cells(row) for row in rows]))


if __name__ == "__main__":
    main()
