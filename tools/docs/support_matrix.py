# SPDX-License-Identifier: Apache-2.0
"""Writes the support matrix in both languages: ``python -m tools.docs.support_matrix``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.docs.support_rows import SECTIONS, Mark, Row

DOCS = Path(__file__).resolve().parents[2] / "docs"

#: What the rows' tests lie below.
TESTS = "tests"


@dataclass(frozen=True)
class Words:
    """What is written around the tables in one language."""

    folder: str
    title: str
    introduction: str
    marks: dict[Mark, str]
    legend: str
    columns: tuple[str, str, str, str, str]
    more: str


ENGLISH = Words(
    folder="en",
    title="Support matrix",
    introduction="Each mark stands on tests, by their numbers in the list at the end; a check sees "
    "that they exist. No row was run on an NPU: the vllm-ascend column is the engine of its "
    "unmodified 0.23.0 wheel over a runtime that imitates CANN, which shows that plugin and host "
    "fit together and what our operators mean, not an NPU's numerics or speed.",
    marks={
        Mark.SERVED: "run in vLLM's CPU engine, in process or served over HTTP",
        Mark.ASCEND: "run in vllm-ascend's engine over the imitated runtime",
        Mark.UNTESTED: "not tested in that engine; tests named beside it cover a part",
        Mark.NO: "does not work there, or is refused; the note says why",
    },
    legend="Mark",
    columns=("What", "CPU", "vllm-ascend", "Note", "Tests"),
    more="Details: [drafts](drafts.md), [targets](targets.md), "
    "[parallelism and serving](parallelism.md), [kernels](kernels.md), [hooks](hooks.md).",
)

CHINESE = Words(
    folder="zh",
    title="支持矩阵",
    introduction="每个标记都以测试为据，编号见文末列表；有检查保证这些测试存在。"
    "没有任何一行在 NPU 上运行过：vllm-ascend 一列是其未经修改的 0.23.0 wheel 的引擎，"
    "跑在模拟 CANN 的运行时上；它说明插件与宿主相合、算子含义正确，不说明 NPU 的数值与速度。",
    marks={
        Mark.SERVED: "在 vLLM 的 CPU 引擎中运行过（进程内，或经 HTTP 服务）",
        Mark.ASCEND: "在 vllm-ascend 的引擎中、模拟运行时上运行过",
        Mark.UNTESTED: "未在该引擎中测试；旁边若列有测试，只覆盖其中一部分",
        Mark.NO: "在那里不可用，或会被拒绝；备注写明原因",
    },
    legend="标记",
    columns=("项目", "CPU", "vllm-ascend", "备注", "测试"),
    more="详见[草稿](drafts.md)、[目标](targets.md)、[并行与服务特性](parallelism.md)、[算子](kernels.md)、"
    "[挂接点](hooks.md)。",
)


def page(words: Words) -> str:
    """The page in one language."""
    english = words is ENGLISH
    numbers = {test: number for number, test in enumerate(tests(), start=1)}
    lines = [
        "<!-- written by `python -m tools.docs.support_matrix`; do not edit -->",
        f"# {words.title}",
        "",
        words.introduction,
        "",
        f"| {words.legend} | |",
        "|---|---|",
        *(f"| {mark.value} | {meaning} |" for mark, meaning in words.marks.items()),
        "",
        words.more,
    ]
    for section in SECTIONS:
        lines += [
            "",
            f"## {section.english if english else section.chinese}",
            "",
            f"| {' | '.join(words.columns)} |",
            "|---|:-:|:-:|---|---|",
            *(_line(row, english, numbers) for row in section.rows),
        ]
    lines += ["", f"## {words.columns[-1]}", ""]
    lines += [f"{number}. `{TESTS}/{test}`" for test, number in numbers.items()]
    return "\n".join([*lines, ""])


def tests() -> list[str]:
    """All tests that a row names, each once, in the order of the rows."""
    named = (test for section in SECTIONS for row in section.rows for test in row.tests)
    return list(dict.fromkeys(named))


def pages() -> dict[Path, str]:
    """Path and text of both pages."""
    return {DOCS / words.folder / "support.md": page(words) for words in (ENGLISH, CHINESE)}


def _line(row: Row, english: bool, numbers: dict[str, int]) -> str:
    cells = (
        row.english if english else row.chinese,
        row.cpu.value,
        row.ascend.value,
        row.note if english else row.chinese_note,
        ", ".join(str(numbers[test]) for test in row.tests),
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
