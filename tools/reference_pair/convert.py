# SPDX-License-Identifier: Apache-2.0
"""Quantise the target with the real msModelSlim command line, with and without rotation."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from tools.reference_pair.corpus import Book
from tools.reference_pair.settings import HERE, THREADS

RECIPES = HERE / "recipes"

MODEL_TYPE = "Qwen3-8B"
"""Picks msModelSlim's adapter for dense Qwen3; the real sizes come from the model's config.json."""


def write_calibration(book: Book, folder: Path, samples: int = 48, seed: int = 11) -> Path:
    """Passages of the book in the form of the tool's own calibration sets."""
    path = folder / "calibration.jsonl"
    passages = random.Random(seed).sample(book.documents, samples)
    lines = [json.dumps({"inputs_pretokenized": passage[:800]}) for passage in passages]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o640)
    return path


def convert(model: Path, output: Path, recipe: Path, model_type: str = MODEL_TYPE) -> None:
    """Run `msmodelslim quant` on the CPU.

    Args:
        model: folder of the float model.
        output: folder to write, next to `model`.
        recipe: the tool's YAML file; relative paths in it start at the parent of `model`.
        model_type: picks the tool's adapter.

    Raises:
        RuntimeError: the tool failed; its log is next to `output`.
    """
    shutil.rmtree(output, ignore_errors=True)
    log = output.with_suffix(".log")
    command = [
        sys.executable, "-m", "msmodelslim.cli", "quant",
        "--model_type", model_type, "--model_path", model.name, "--save_path", output.name,
        "--device", "cpu", "--config_path", str(recipe),
    ]  # fmt: skip
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(
            command,
            cwd=model.parent,
            env={**os.environ, "OMP_NUM_THREADS": str(THREADS)},
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0 or not (output / "quant_model_description.json").is_file():
        raise RuntimeError(f"msmodelslim failed on {recipe.name}; see {log}")
    for path in output.rglob("*"):
        # The tool writes files that only their owner can read.
        path.chmod(0o755 if path.is_dir() else 0o644)
