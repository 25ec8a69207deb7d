# SPDX-License-Identifier: Apache-2.0
"""Tables and files of numbers, in the one form that all benchmarks use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vllm_eagle3_quarot.benchmarking.provenance import Provenance


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def save(path: Path, provenance: Provenance, numbers: Mapping[str, object]) -> None:
    """Write numbers with where they come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"provenance": provenance.document(), **numbers}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
