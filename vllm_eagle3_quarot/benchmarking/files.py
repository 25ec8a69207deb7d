# SPDX-License-Identifier: Apache-2.0
"""What a run leaves: numbers, tables, a picture, and where they come from, in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vllm_eagle3_quarot.benchmarking.plot import can_plot, plot
from vllm_eagle3_quarot.benchmarking.report import report

NUMBERS, TABLES, PICTURE = "serving.json", "serving.md", "serving.png"
PROVENANCE = "provenance.json"


def write_files(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write all of them; the picture only where matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {
        NUMBERS: json.dumps(document, indent=1),
        PROVENANCE: json.dumps(document["provenance"], indent=1),
        TABLES: report(document),
    }
    for name, text in written.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")
    files = [folder / name for name in written]
    if can_plot():
        plot(document, folder / PICTURE)
        files.append(folder / PICTURE)
    return files
