# SPDX-License-Identifier: Apache-2.0
"""Copy what is committed from the work folder to the fixtures, with a record of its origin."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

from tools.reference_pair.corpus import Book
from tools.reference_pair.prompts import make_prompts
from tools.reference_pair.settings import BOOK, DRAFT, GENERATE, PROMPTS, TARGET, Workspace

MAX_TOTAL_BYTES = 24 * 1000 * 1000
MODELS = ("target", "target-w8a8", "target-w8a8-quarot", "draft")
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "msmodelslim")


def publish(workspace: Workspace, book: Book, folder: Path) -> None:
    """Replace the fixtures in `folder` by the set in the workspace.

    Raises:
        RuntimeError: the set is larger than what the repository takes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(workspace.root / name, folder / name)
    make_prompts(PROMPTS, book).save(folder / "prompts.json")
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "PROVENANCE.json")
    for path in files:
        path.chmod(0o644)
    total = sum(path.stat().st_size for path in files)
    if total > MAX_TOTAL_BYTES:
        raise RuntimeError(f"fixtures are {total} bytes, the limit is {MAX_TOTAL_BYTES}")
    record = {
        "command": "python -m tools.reference_pair.make_pair --work build/reference_pair",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "settings": {
            "book": dataclasses.asdict(BOOK),
            "target": dataclasses.asdict(TARGET),
            "generate": dataclasses.asdict(GENERATE),
            "draft": dataclasses.asdict(DRAFT),
            "prompts": dataclasses.asdict(PROMPTS),
        },
        "training": workspace.read_note("target"),
        "measured_offline": workspace.read_note("verify"),
        "seconds_per_stage": workspace.read_note("seconds"),
        "total_bytes": total,
        "sha256": {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
    }
    text = json.dumps(record, indent=2) + "\n"
    (folder / "PROVENANCE.json").write_text(text, encoding="utf-8")
