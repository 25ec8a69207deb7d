# SPDX-License-Identifier: Apache-2.0
"""Writes the configuration reference: ``python -m tools.docs.configuration``.

It is made from the settings model. The English text is the description of each field; the Chinese
one is kept here, and a field without it is an error, so that neither tree misses a setting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from vllm_eagle3_quarot.ops.native import KERNEL_CHOICES, KERNEL_VARIABLE
from vllm_eagle3_quarot.settings import DISABLE_VARIABLE, SETTINGS_KEY, Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"

KERNELS = ", ".join(f"`{choice}`" for choice in KERNEL_CHOICES)

CHINESE = {
    "mode": "`runtime`：每一步都把旋转目标的辅助隐藏状态还原；"
    "`fold`：在严格等价的情况下，加载时一次性改写草稿的投影层；`off`：草稿保持宿主加载后的原样。",
    "strict": "目标已旋转而草稿无法校正，或无法按所选模式校正时，拒绝启动；为 `false` 时只告警，"
    "并在未校正的状态下服务；若只是无法 `fold`，则改为在运行时校正。",
    "rotation": "旋转矩阵文件（safetensors，张量 `global_rotation`，fp32 `[H, H]`），"
    "用于自身不带旋转矩阵的目标。",
    "original_model": "未旋转模型的目录或 hub id。读取它的最终 norm，"
    "用于没有自己的 lm_head 或以 post-norm 状态为输入的草稿；"
    "读取它的词嵌入，用于确认靠假设重建的旋转矩阵。",
    "guard": "服务运行中，何时告警草稿从未被接受。",
    "guard.min_acceptance": "首个 token 被接受的草稿所占的最低比例；"
    "低于它时告警一次。0 关闭该检查。",
    "guard.after_drafts": "每累计多少个草稿检查一次该比例。",
}


@dataclass(frozen=True)
class Page:
    """The words of one language around the table."""

    folder: str
    title: str
    introduction: str
    columns: tuple[str, str, str, str]
    unknown: str
    environment: str
    variable: tuple[str, str, str]
    variables: Mapping[str, tuple[str, str]]


ENGLISH_PAGE = Page(
    folder="en",
    title="Configuration",
    introduction="Settings are one object in vLLM's own option; all of them are optional:",
    columns=("Setting", "Values", "Default", "Meaning"),
    unknown="A key that is not known is an error that lists the known ones.",
    environment="Environment variables",
    variable=("Variable", "Values", "Meaning"),
    variables={
        DISABLE_VARIABLE: ("`1`", "The plugin registers nothing."),
        KERNEL_VARIABLE: (
            KERNELS,
            "Which CPU kernels are used; `off` is plain torch.",
        ),
        "CXX": ("program", "The compiler for the CPU kernels, where they are not installed built."),
        "XDG_CACHE_HOME": (
            "folder",
            "Where compiled CPU kernels are kept, in `vllm-eagle3-quarot`; `~/.cache` unless set.",
        ),
        "VLLM_PLUGINS": (
            "list",
            "vLLM's allow-list for plugins of every kind: "
            "[getting started](getting-started.md#vllm_plugins).",
        ),
    },
)

CHINESE_PAGE = Page(
    folder="zh",
    title="配置参考",
    introduction="所有设置放在 vLLM 自己的选项里，都是可选的：",
    columns=("设置", "取值", "默认值", "含义"),
    unknown="未知的键会报错，并列出已知的键。",
    environment="环境变量",
    variable=("变量", "取值", "含义"),
    variables={
        DISABLE_VARIABLE: ("`1`", "插件不注册任何东西。"),
        KERNEL_VARIABLE: (
            KERNELS,
            "使用哪种 CPU 算子；`off` 为纯 torch。",
        ),
        "CXX": ("程序", "没有随包安装编译好的 CPU 算子时，用来编译它们的编译器。"),
        "XDG_CACHE_HOME": (
            "目录",
            "编译好的 CPU 算子存放在其下的 `vllm-eagle3-quarot` 中；未设置时为 `~/.cache`。",
        ),
        "VLLM_PLUGINS": (
            "列表",
            "vLLM 对所有插件的白名单：见[快速开始](getting-started.md#vllm_plugins)。",
        ),
    },
)


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every field by its dotted name, nested models after the field that holds them."""
    for name, field in model.model_fields.items():
        yield prefix + name, field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{prefix}{name}.")


def page(words: Page, meanings: Mapping[str, str]) -> str:
    """The page in one language."""
    example = {SETTINGS_KEY: {"strict": True, "rotation": "/models/q.safetensors"}}
    lines = [
        "<!-- written by `python -m tools.docs.configuration`; do not edit -->",
        f"# {words.title}",
        "",
        words.introduction,
        "",
        "```bash",
        f"--additional-config '{json.dumps(example)}'",
        "```",
        "",
        f"| {' | '.join(words.columns)} |",
        "|---|---|---|---|",
    ]
    for name, field in fields(Settings):
        lines.append(f"| `{name}` | {values(field)} | {default(field)} | {meanings[name]} |")
    lines += ["", words.unknown, "", f"## {words.environment}", ""]
    lines += [f"| {' | '.join(words.variable)} |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {allowed} | {meaning} |"
        for name, (allowed, meaning) in words.variables.items()
    ]
    return "\n".join([*lines, ""])


def values(field: Any) -> str:
    """What may be given, as JSON."""
    annotation = field.annotation
    choices = [f"`{json.dumps(choice)}`" for choice in get_args(annotation) if _is_value(choice)]
    if choices:
        return ", ".join(choices)
    kinds = {bool: "`true`, `false`", int: "integer", float: "number", str: "string"}
    for candidate in (annotation, *get_args(annotation)):
        if candidate in kinds:
            return kinds[candidate]
    return "object"


def default(field: Any) -> str:
    """The default, as JSON."""
    value = field.default
    return f"`{json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)}`"


def _is_value(choice: object) -> bool:
    return isinstance(choice, (str, int, bool))


def pages() -> dict[Path, str]:
    """Path and text of both pages."""
    english = {name: field.description for name, field in fields(Settings)}
    return {
        DOCS / words.folder / "configuration.md": page(words, meanings)
        for words, meanings in ((ENGLISH_PAGE, english), (CHINESE_PAGE, CHINESE))
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
