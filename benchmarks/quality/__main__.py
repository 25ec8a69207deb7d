# SPDX-License-Identifier: Apache-2.0
"""Acceptance parity of every kind of draft under every correction.

Two tables, from vLLM's own CPU engine in fp32, greedy:

* Trained: the reference draft in several forms on the reference target as it is, in W8A8, and in
  W8A8 with QuaRot. The figure is the acceptance rate (accepted / drafted tokens).
* Random: drafts of other shapes with random weights, for which no trained one exists. Their
  acceptance says nothing, but their proposals depend on their inputs as a trained draft's do. The
  figure is the share of drafts that propose the very tokens that they propose on the unrotated
  target (fp32, the rotated copy exact in fp64): 1 is an exact correction.

vllm-ascend's fold is that of its wheel, run in vLLM's engine; the engine shares the target's head
with a draft that has none, which vllm-ascend's own engine does not do.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.quality.engines import Answer, Request, run
from benchmarks.results import save
from tests.engine.test_variants import VARIANTS
from tests.support import reference_pair as pair
from tests.support.proposals import Job
from tests.support.rotated_copy import copy_in_fp32, rotated_copy
from tests.support.rotations import real_rotation
from vllm_eagle3_quarot.benchmarking.provenance import Provenance
from vllm_eagle3_quarot.benchmarking.report import table

Row = dict[str, Any]

#: Variants whose weights are the trained draft's.
TRAINED = ("plain", "speculators", "no embedding")

#: One of every kind that a correction may get wrong; all shapes are in tests/engine/test_variants.
RANDOM = (
    "own embedding",
    "no head",
    "neither embedding nor head",
    "norm before fc",
    "norm per aux state",
    "one aux state",
    "two aux states",
    "five aux states",
    "post-norm state",
    "narrower than the target",
    "two layers",
    "mask state",
)

CORRECTIONS = ("uncorrected", "runtime", "fold", "vllm-ascend")

TRAINED_COLUMNS = ("float", "W8A8", *CORRECTIONS)


def corrections(job: Job, release: str) -> dict[str, Request]:
    """The same job on a rotated target under every correction."""

    def with_mode(mode: str) -> Job:
        return Job(**{**vars(job), "settings": {**job.settings, "mode": mode}})

    return {
        "uncorrected": Request(with_mode("off")),
        "runtime": Request(with_mode("runtime")),
        "fold": Request(with_mode("fold")),
        "vllm-ascend": Request(with_mode("off"), release),
    }


def trained_requests(folder: Path, options: argparse.Namespace) -> dict[tuple[str, str], Request]:
    """The reference pair: acceptance."""
    requests = {}
    for number, name in enumerate(TRAINED):
        draft = str(VARIANTS[name].write(folder / f"trained-{number}"))
        common: Any = {
            "draft": draft,
            "prompts": pair.prompts(options.prompts),
            "max_tokens": options.tokens,
        }
        requests[name, "float"] = Request(Job(str(pair.FLOAT_TARGET), **common))
        requests[name, "W8A8"] = Request(Job(str(pair.PAIR / "target-w8a8"), **common))
        rotated = Job(str(pair.ROTATED_TARGET), **common)
        for correction, request in corrections(rotated, options.release).items():
            requests[name, correction] = request
    return requests


def random_requests(folder: Path, options: argparse.Namespace) -> dict[tuple[str, str], Request]:
    """Drafts without training: proposals."""
    original = copy_in_fp32(pair.FLOAT_TARGET, folder / "original")
    rotated = rotated_copy(pair.FLOAT_TARGET, folder / "rotated", real_rotation(192))
    requests = {}
    for number, name in enumerate(RANDOM):
        variant = VARIANTS[name]
        common: Any = {
            "draft": str(variant.write(folder / f"random-{number}")),
            "prompts": pair.prompts(2),
            "max_tokens": 12,
            "settings": dict(variant.settings),
            "speculation": variant.speculation,
        }
        if variant.original:
            common["settings"]["original_model"] = str(original)
        requests[name, "float"] = Request(Job(str(original), **common))
        job = Job(str(rotated), **common)
        for correction, request in corrections(job, options.release).items():
            requests[name, correction] = request
    return requests


def rows(answers: dict[tuple[str, str], Answer], *, parity: bool) -> list[Row]:
    """One row per draft."""
    names = list(dict.fromkeys(name for name, _ in answers))
    found = []
    for name in names:
        row: Row = {"draft": name, "row": VARIANTS[name].row}
        for (each, target), answer in answers.items():
            if each != name:
                continue
            if answer.error is not None:
                row[target] = {"error": answer.error}
            elif parity:
                row[target] = answer.same_as(answers[name, "float"])
            else:
                row[target] = answer.acceptance
        found.append(row)
    return found


def cell(value: object) -> str:
    """A figure, or that there is none."""
    if isinstance(value, dict):
        return "refused" if "UnsupportedPairError" in value["error"] else "fails"
    return f"{value:.3f}"


def markdown(found: list[Row], targets: tuple[str, ...]) -> str:
    """The table of one kind."""
    header = ["draft", *targets]
    return table(header, [[row["draft"], *(cell(row[name]) for name in targets)] for row in found])


def main() -> None:
    """Build the engines, print the tables, write the numbers on request."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--prompts", type=int, default=8, help="of the trained draft")
    parser.add_argument("--tokens", type=int, default=48, help="per prompt of the trained draft")
    parser.add_argument("--only", nargs="+", help="names of drafts")
    parser.add_argument("--release", default="0.23.0", help="of vllm-ascend (default: 0.23.0)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    provenance = Provenance.now()
    with tempfile.TemporaryDirectory() as name:
        kinds = [
            trained_requests(Path(name), options),
            random_requests(Path(name), options),
        ]
        if options.only:
            kinds = [{k: v for k, v in kind.items() if k[0] in options.only} for kind in kinds]
        wanted = {number: list(kind.values()) for number, kind in enumerate(kinds)}
        answers = iter(run([request for of_kind in wanted.values() for request in of_kind]))
        answered = [dict(zip(kind, answers, strict=False)) for kind in kinds]
    trained, random = (rows(kind, parity=bool(n)) for n, kind in enumerate(answered))
    print(markdown(trained, TRAINED_COLUMNS), end="\n\n")
    print(markdown(random, CORRECTIONS))
    if options.json is not None:
        save(
            options.json,
            provenance,
            {"release": options.release, "trained": trained, "random": random},
        )


if __name__ == "__main__":
    main()
