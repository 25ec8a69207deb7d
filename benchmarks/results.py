# SPDX-License-Identifier: Apache-2.0
"""Files of numbers, in the one form that all benchmarks use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vllm_eagle3_quarot.benchmarking.provenance import Provenance


def save(path: Path, provenance: Provenance, numbers: Mapping[str, object]) -> None:
    """Write numbers with where they come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"provenance": provenance.document(), **numbers}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
