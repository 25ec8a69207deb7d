# SPDX-License-Identifier: Apache-2.0
"""Build the reference pair from nothing: book, target, its text, draft, W8A8 targets, fixtures.

    OMP_WAIT_POLICY=passive python -m tools.reference_pair.make_pair --work build/reference_pair

Run it in the root of the repository. Stages whose result is already in the work folder are not
repeated; `--from STAGE` repeats that stage and all later ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen3ForCausalLM

from tools.reference_pair.convert import RECIPES, convert, write_calibration
from tools.reference_pair.corpus import Book, make_book
from tools.reference_pair.fixtures import publish
from tools.reference_pair.generate import generate
from tools.reference_pair.settings import (
    BOOK,
    DRAFT,
    FIXTURES,
    GENERATE,
    TARGET,
    THREADS,
    Workspace,
)
from tools.reference_pair.tokenizer import encode_book, train_tokenizer
from tools.reference_pair.train_draft import save_draft, train_draft
from tools.reference_pair.train_target import save_target, train_target
from tools.reference_pair.verify import verify


class Build:
    """The stages in order. Each reads what earlier ones left in the workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.book: Book = make_book(BOOK.seed, BOOK.articles, BOOK.pages_per_article)

    def tokenizer(self) -> None:
        train_tokenizer(self.book, BOOK.vocab_size, self.workspace.tokenizer)
        (self.workspace.root / "book.txt").write_text(self.book.text, encoding="utf-8")

    def target(self) -> None:
        tokenizer = self._load_tokenizer()
        ids = encode_book(tokenizer, self.book)
        model, loss = train_target(TARGET, ids, len(tokenizer), tokenizer.eos_token_id)
        save_target(model, tokenizer, self.workspace.target)
        self.workspace.note("target", {"loss": round(loss, 4), "book_tokens": len(ids)})

    def generate(self) -> None:
        # fp32: on a CPU one-token attention is slower in bf16.
        target = self._load_target(torch.float32)
        rows = generate(GENERATE, target, self._load_tokenizer(), self.book)
        torch.save(rows.to(torch.int32), self.workspace.generated)

    def draft(self) -> None:
        target = self._load_target()
        rows = torch.load(self.workspace.generated).long()
        draft, vocabulary = train_draft(DRAFT, TARGET, target, rows)
        save_draft(draft, vocabulary, target, self.workspace.draft)

    def convert(self) -> None:
        write_calibration(self.book, self.workspace.root)
        convert(self.workspace.target, self.workspace.quantised, RECIPES / "w8a8.yaml")
        convert(self.workspace.target, self.workspace.rotated, RECIPES / "w8a8_quarot.yaml")

    def verify(self) -> None:
        self.workspace.note("verify", verify(self.workspace, self._load_tokenizer(), self.book))

    def publish(self) -> None:
        publish(self.workspace, self.book, FIXTURES)

    def _load_tokenizer(self) -> PreTrainedTokenizerBase:
        return AutoTokenizer.from_pretrained(self.workspace.tokenizer)

    def _load_target(self, dtype: torch.dtype = torch.bfloat16) -> Qwen3ForCausalLM:
        model = Qwen3ForCausalLM.from_pretrained(self.workspace.target, dtype=dtype)
        return model.eval().requires_grad_(False)

    @property
    def stages(self) -> dict[str, tuple[Callable[[], None], Path]]:
        """Stage name, what to run and the path that shows that it has run."""
        work = self.workspace
        return {
            "tokenizer": (self.tokenizer, work.tokenizer / "tokenizer.json"),
            "target": (self.target, work.target / "model.safetensors"),
            "generate": (self.generate, work.generated),
            "draft": (self.draft, work.draft / "model.safetensors"),
            "convert": (self.convert, work.rotated / "quant_model_description.json"),
            "verify": (self.verify, work.notes("verify")),
            "publish": (self.publish, FIXTURES / "PROVENANCE.json"),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for intermediate files")
    names = ("tokenizer", "target", "generate", "draft", "convert", "verify", "publish")
    parser.add_argument("--from", dest="first", choices=names, help="repeat from this stage on")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    build = Build(Workspace(work))
    redo = False
    for name, (run, result) in build.stages.items():
        redo = redo or name == arguments.first or not result.exists()
        if not redo:
            print(f"{name}: already there")
            continue
        began = time.perf_counter()
        run()
        seconds = round(time.perf_counter() - began)
        build.workspace.note("seconds", {**build.workspace.read_note("seconds"), name: seconds})
        print(f"{name}: done in {seconds} s", flush=True)


if __name__ == "__main__":
    main()
