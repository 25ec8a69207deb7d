# SPDX-License-Identifier: Apache-2.0
"""Quantise the tiny mixture-of-experts target with the real msModelSlim, and commit the result.

In the environment of tools/reference_pair/README.md, from the root of the repository::

    OMP_WAIT_POLICY=passive build/pair-venv/bin/python -m tools.moe_target.make --work build/moe

writes into tests/fixtures/moe_target/:

* ``w8a8-quarot``: rotated; attention static, experts and router dynamic;
* ``w8a8``: not rotated; attention static, experts dynamic, router in floating point.

Left out is the tokenizer, which is the reference pair's; whoever serves one of them adds it.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

from tools.moe_target.float_model import SETTINGS, TOKENIZER_FILES, write_float_model
from tools.reference_pair import convert
from tools.reference_pair.corpus import make_book
from tools.reference_pair.settings import BOOK, REPOSITORY

FIXTURES = REPOSITORY / "tests" / "fixtures" / "moe_target"
RECIPES = {
    "w8a8-quarot": convert.RECIPES / "w8a8_quarot.yaml",
    "w8a8": Path(__file__).resolve().parent / "recipes" / "w8a8_float_router.yaml",
}
MODEL_TYPE = "Qwen3-30B"
"""Picks msModelSlim's adapter for Qwen3-MoE; the real sizes come from the model's config.json."""

PACKAGES = ("torch", "transformers", "safetensors", "msmodelslim")
MAX_TOTAL_BYTES = 1_500_000


def make(work: Path) -> None:
    """Write, quantise and publish the model.

    Raises:
        RuntimeError: the tool failed, or its output is larger than what the repository takes.
    """
    float_model = write_float_model(work / "float")
    book = make_book(BOOK.seed, BOOK.articles, BOOK.pages_per_article)
    convert.write_calibration(book, work)
    for name, recipe in RECIPES.items():
        convert.convert(float_model, work / name, recipe, MODEL_TYPE)
        shutil.rmtree(FIXTURES / name, ignore_errors=True)
        shutil.copytree(
            work / name, FIXTURES / name, ignore=shutil.ignore_patterns(*TOKENIZER_FILES)
        )
    files = sorted(path for path in FIXTURES.glob("*/**/*") if path.is_file())
    total = sum(path.stat().st_size for path in files)
    if total > MAX_TOTAL_BYTES:
        raise RuntimeError(f"fixtures are {total} bytes, the limit is {MAX_TOTAL_BYTES}")
    record = {
        "command": "python -m tools.moe_target.make --work build/moe",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "settings": dataclasses.asdict(SETTINGS),
        "total_bytes": total,
        "sha256": {
            str(path.relative_to(FIXTURES)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
    }
    (FIXTURES / "PROVENANCE.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for intermediate files")
    work: Path = parser.parse_args().work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    make(work)


if __name__ == "__main__":
    main()
