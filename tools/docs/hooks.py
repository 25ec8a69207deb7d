# SPDX-License-Identifier: Apache-2.0
"""Writes the hook table as a page, in English and Chinese: ``python -m tools.docs.hooks``.

The English page takes the reasons from the table; the Chinese one takes them from
``tools/docs/hooks_chinese.py``, and a reason that has no translation is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.docs import hooks_chinese
from vllm_eagle3_quarot.integrations.hooks import HOOKS, TESTED_VERSIONS, Hook

DOCS = Path(__file__).resolve().parents[2] / "docs"

INTRODUCTION = """\
# Hooks

Every object of vLLM and vllm-ascend that this package touches or counts on. The page is written
from `vllm_eagle3_quarot/integrations/hooks/` by `python -m tools.docs.hooks`; a test compares.

- **used**: called or read. **replaced**: subclassed, or ours is put in its place. If one of these
  is missing for every platform, no draft is corrected: `register()` logs one error that names it,
  and a draft of a rotated target is refused when it is built (with `strict: false`: served
  uncorrected, with a warning). Every other server runs as without the plugin.
- **assumed**: what the host does there by itself. **avoided**: a fault, or a correction of the
  host's own, which must not reach a draft that is corrected here.

`register()` reads the source of the installed hosts and imports nothing of them for that. A release
outside the tested range is no reason to stop, only a warning. Tests compare the whole table with
the source of the published releases: `make test-contract-all`, or `pytest tests/contract/wheels`
for those of every run. A new release is one line in `tests/contract/wheels/releases.py`.
"""

PACKAGE_NAMES = {"vllm": "vLLM", "vllm_ascend": "vllm-ascend"}


@dataclass(frozen=True)
class Words:
    """The words of one language around and in the table.

    Attributes:
        reasons: translation of each hook's ``why``; None: as the table has it.
        kinds: translation of each hook's ``kind``; None: as the table has it.
    """

    folder: str
    introduction: str
    tested: str
    on_cpu: str
    columns: tuple[str, str, str, str]
    all_releases: str
    since: str
    until: str
    kinds: Mapping[str, str] | None = None
    reasons: Mapping[str, str] | None = None


ENGLISH = Words(
    folder="en",
    introduction=INTRODUCTION,
    tested="## {host}, tested {oldest} to {newest}",
    on_cpu="### Only on vLLM's CPU platform",
    columns=("Object", "Releases", "What we do", "Why"),
    all_releases="all",
    since="from {}",
    until="before {}",
)

CHINESE = Words(
    folder="zh",
    introduction=hooks_chinese.INTRODUCTION,
    tested=hooks_chinese.TESTED,
    on_cpu=hooks_chinese.ON_CPU,
    columns=hooks_chinese.COLUMNS,
    all_releases=hooks_chinese.ALL_RELEASES,
    since=hooks_chinese.SINCE,
    until=hooks_chinese.UNTIL,
    kinds=hooks_chinese.KINDS,
    reasons=hooks_chinese.REASONS,
)


def page(words: Words) -> str:
    """The text of the page in one language.

    Raises:
        KeyError: a reason of the table that has no translation.
    """
    parts = [words.introduction]
    for package, (oldest, newest) in TESTED_VERSIONS.items():
        hooks = [hook for hook in HOOKS if hook.package == package]
        common = [hook for hook in hooks if hook.only_on is None]
        on_cpu = [hook for hook in hooks if hook.only_on == "cpu"]
        heading = words.tested.format(host=PACKAGE_NAMES[package], oldest=oldest, newest=newest)
        parts.append(f"{heading}\n")
        parts.append(_table(common, words))
        if on_cpu:
            parts.append(f"{words.on_cpu}\n")
            parts.append(_table(on_cpu, words))
    return "\n".join(parts)


def _table(hooks: Iterable[Hook], words: Words) -> str:
    lines = [f"| {' | '.join(words.columns)} |", "|---|---|---|---|"]
    for hook in hooks:
        call = "" if hook.parameters is None else f"({', '.join(hook.parameters)})"
        kind = hook.kind if words.kinds is None else words.kinds[hook.kind]
        reason = hook.why if words.reasons is None else words.reasons[hook.why]
        lines.append(
            f"| `{hook.module}`<br>`{hook.name}{call}` | {_releases(hook, words)} | {kind} "
            f"| {reason} |"
        )
    return "\n".join(lines) + "\n"


def _releases(hook: Hook, words: Words) -> str:
    since = words.since.format(hook.since) if hook.since else ""
    until = words.until.format(hook.until) if hook.until else ""
    return " ".join(part for part in (since, until) if part) or words.all_releases


def pages() -> dict[Path, str]:
    """Path and text of both pages."""
    return {DOCS / words.folder / "hooks.md": page(words) for words in (ENGLISH, CHINESE)}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
