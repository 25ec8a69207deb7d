# SPDX-License-Identifier: Apache-2.0
"""Prompt sets in the formats in which they are published, and the file that vLLM's client reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vllm_eagle3_quarot.benchmarking.dataset import Dataset, Format
from vllm_eagle3_quarot.errors import CheckpointError

#: One row of each, with the keys of the published files.
ROWS: dict[Format, dict[str, object]] = {
    Format.mt_bench: {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},
    Format.spec_bench: {"question_id": 1, "category": "qa", "turns": ["Who?"], "reference": []},
    Format.humaneval: {"task_id": "HumanEval/0", "prompt": "def f():\n", "test": "", "entry": "f"},
    Format.gsm8k: {"question": "How many?", "answer": "2 + 2 = 4\n#### 4"},
}

PROMPTS = {
    Format.mt_bench: "Write.",
    Format.spec_bench: "Who?",
    Format.humaneval: "Complete this function.\n\ndef f():\n",
    Format.gsm8k: "How many?",
}


def _file(folder: Path, *rows: object) -> Path:
    path = folder / "set.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", Format)
def test_formats(tmp_path: Path, kind: Format) -> None:
    dataset = Dataset.read(_file(tmp_path, ROWS[kind]), kind)
    assert dataset == Dataset(kind.value, (PROMPTS[kind],))


def test_one_category(tmp_path: Path) -> None:
    rows = [{"category": name, "turns": [name]} for name in ("qa", "rag", "qa")]
    dataset = Dataset.read(_file(tmp_path, *rows), Format.spec_bench, "rag")
    assert dataset.prompts == ("rag",)
    with pytest.raises(CheckpointError, match="no rows of category 'maths'"):
        Dataset.read(_file(tmp_path, *rows), Format.spec_bench, "maths")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "How many?"}, "line 2: not a row of mt-bench"),
        ([], "line 2: not a row of mt-bench"),
        ({"turns": []}, "line 2: there is no prompt"),
        ({"turns": [7]}, "line 2: there is no prompt"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: object, reason: str) -> None:
    file = _file(tmp_path, ROWS[Format.mt_bench], row)
    with pytest.raises(CheckpointError, match=reason):
        Dataset.read(file, Format.mt_bench)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        Dataset.read(tmp_path / "absent.jsonl", Format.gsm8k)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"question": "How', encoding="utf-8")
    with pytest.raises(CheckpointError, match="line 1: not a row of gsm8k"):
        Dataset.read(broken, Format.gsm8k)


def test_the_clients_file_repeats_prompts_in_order(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    Dataset("two", ("a", "b")).write(file, 5)
    written = json.loads(file.read_text())
    assert [entry["conversations"][0]["value"] for entry in written] == ["a", "b", "a", "b", "a"]
    # vLLM's client leaves out entries with fewer than two turns.
    assert all(len(entry["conversations"]) == 2 for entry in written)


def test_the_built_in_set_is_varied() -> None:
    prompts = Dataset.built_in().prompts
    assert len(set(prompts)) == len(prompts) == 16
