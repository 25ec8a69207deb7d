# SPDX-License-Identifier: Apache-2.0
"""Puts measured tables into the benchmark pages: ``python -m tools.docs.benchmarks [FOLDER]``.

With a folder, the results in it (the JSON files that the scripts in ``benchmarks/`` write, and the
picture) are taken over first. A table stands between ``<!-- measured: NAME -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import overhead
from benchmarks.load import __main__ as load
from benchmarks.quality import __main__ as quality
from vllm_eagle3_quarot.benchmarking.report import loads_table, origin, servers_table, table
from vllm_eagle3_quarot.benchmarking.words import Language

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "en" / "files" / "benchmarks"
PICTURE = DOCS / "en" / "figures" / "serving.png"

MEASURED = re.compile(r"<!-- measured: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)

NOT_MEASURED: Mapping[Language, str] = {"en": "Not measured yet.", "zh": "尚未测量。"}

Document = Mapping[str, Any]

#: Words of tables whose scripts speak English only.
CHINESE = {
    "sizes of": "尺寸取自",
    "draft's token table": "草稿的词表",
    "none": "无",
    "copy of the original": "原模型词表的副本",
    "draft": "草稿",
    "draft uses": "草稿使用",
    "own embedding and head": "自己的词表与输出头",
    "target's embedding and head": "目标模型的词表与输出头",
    "sequences": "并发序列数",
    "draft step ms": "草稿步 ms",
    "ours µs": "本插件算子 µs",
    "share %": "占比 %",
    "calls per step": "每步调用次数",
    "uncorrected": "未校正",
    "refused": "拒绝启动",
    "fails": "启动失败",
}


def translated(text: str, language: Language) -> str:
    """The word of a table in the language of the page; names of the field stay."""
    if language == "en":
        return text
    prefix, colon, name = text.partition(": ")
    if colon and prefix in HEADS:
        return f"{HEADS[prefix]}{name}"
    return CHINESE.get(text, text)


HEADS = {"s": "耗时 s：", "peak MB": "峰值 MB：", "resident MB": "常驻 MB："}


def in_words(
    header: list[str], rows: list[list[str]], provenance: Document, language: Language
) -> str:
    """A table and where it is from."""
    words = [[translated(cell, language) for cell in row] for row in rows]
    head = [translated(cell, language) for cell in header]
    return f"{table(head, words)}\n\n{origin(provenance, language)}"


def load_table(document: Document, language: Language) -> str:
    """Cost while loading."""
    rows = [load.cells(row) for row in document["rows"]]
    return in_words(load.HEADER, rows, document["provenance"], language)


def overhead_table(document: Document, language: Language) -> str:
    """Share of a draft step."""
    rows = []
    for row in document["rows"]:
        known = {name: value for name, value in row.items() if name != "share"}
        rows.append(overhead.cells(overhead.Profile(**known)))
    return in_words(overhead.HEADER, rows, document["provenance"], language)


def quality_table(kind: str, targets: tuple[str, ...]) -> Callable[[Document, Language], str]:
    """Parity of one kind of draft."""

    def made(document: Document, language: Language) -> str:
        rows = [
            [row["draft"], *(quality.cell(row[name]) for name in targets)] for row in document[kind]
        ]
        return in_words(["draft", *targets], rows, document["provenance"], language)

    return made


ALT: Mapping[Language, str] = {
    "en": "Output tokens per second and mean acceptance length of every server",
    "zh": "各服务的输出吞吐与平均接受长度",
}


def serving_table(document: Document, language: Language) -> str:
    """Loads, where the numbers are from, and the picture."""
    loads = crowded_table(document, language)
    if not PICTURE.is_file():
        return loads
    return f"{loads}\n\n![{ALT[language]}](figures/{PICTURE.name})"


def crowded_table(document: Document, language: Language) -> str:
    """Loads, and where the numbers are from."""
    return f"{loads_table(document, language)}\n\n{origin(document['provenance'], language)}"


#: Name of a table: file of its numbers, and how it is made.
TABLES: Mapping[str, tuple[str, Callable[[Document, Language], str]]] = {
    "load": ("load.json", load_table),
    "overhead": ("overhead.json", overhead_table),
    "trained": ("quality.json", quality_table("trained", quality.TRAINED_COLUMNS)),
    "random": ("quality.json", quality_table("random", quality.CORRECTIONS)),
    "serving": ("serving.json", serving_table),
    "crowded": ("crowded/serving.json", crowded_table),
    "servers": (
        "serving.json",
        lambda document, language: (
            f"{servers_table(document, language)}\n\n{origin(document['provenance'], language)}"
        ),
    ),
}


def pages() -> dict[Path, str]:
    """The page of each language with the tables of the results that are there."""
    languages: tuple[Language, ...] = ("en", "zh")
    return {
        DOCS / language / "benchmarks.md": filled(DOCS / language / "benchmarks.md", language)
        for language in languages
    }


def filled(page: Path, language: Language) -> str:
    """The text of a page with its tables in it.

    Raises:
        KeyError: the page asks for a table that nothing makes.
    """

    def made(found: re.Match[str]) -> str:
        file, make = TABLES[found["name"]]
        body = NOT_MEASURED[language]
        if (RESULTS / file).is_file():
            body = make(json.loads((RESULTS / file).read_text(encoding="utf-8")), language)
        return f"<!-- measured: {found['name']} -->\n\n{body}\n\n<!-- end -->"

    return MEASURED.sub(made, page.read_text(encoding="utf-8"))


def take_over(folder: Path) -> None:
    """Copy results into the documentation; files that are not there stay as they are."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for file in {file for file, _ in TABLES.values()}:
        if (folder / file).is_file():
            (RESULTS / file).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / file, RESULTS / file)
    if (folder / PICTURE.name).is_file():
        shutil.copyfile(folder / PICTURE.name, PICTURE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
