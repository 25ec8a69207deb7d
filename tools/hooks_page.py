# SPDX-License-Identifier: Apache-2.0
"""Write docs/hooks.md, the hook table as a page.

python -m tools.hooks_page
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vllm_eagle3_quarot.integrations.hooks import HOOKS, TESTED_VERSIONS, Hook

PAGE = Path(__file__).parents[1] / "docs" / "hooks.md"

INTRODUCTION = """\
# Hooks

Every object of vLLM and vllm-ascend that this package touches or counts on. The page is written
from `vllm_eagle3_quarot/integrations/hooks.py` by `python -m tools.hooks_page`; a test compares.

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


def page() -> str:
    """The text of the page."""
    parts = [INTRODUCTION]
    for package, (oldest, newest) in TESTED_VERSIONS.items():
        hooks = [hook for hook in HOOKS if hook.package == package]
        common = [hook for hook in hooks if hook.only_on is None]
        on_cpu = [hook for hook in hooks if hook.only_on == "cpu"]
        parts.append(f"## {PACKAGE_NAMES[package]}, tested {oldest} to {newest}\n")
        parts.append(_table(common))
        if on_cpu:
            parts.append("### Only on vLLM's CPU platform\n")
            parts.append(_table(on_cpu))
    return "\n".join(parts)


def _table(hooks: Iterable[Hook]) -> str:
    lines = ["| Object | Releases | What we do | Why |", "|---|---|---|---|"]
    for hook in hooks:
        call = "" if hook.parameters is None else f"({', '.join(hook.parameters)})"
        lines.append(
            f"| `{hook.module}`<br>`{hook.name}{call}` | {_releases(hook)} | {hook.kind} "
            f"| {hook.why} |"
        )
    return "\n".join(lines) + "\n"


def _releases(hook: Hook) -> str:
    since = f"from {hook.since}" if hook.since else ""
    until = f"before {hook.until}" if hook.until else ""
    return " ".join(part for part in (since, until) if part) or "all"


if __name__ == "__main__":
    PAGE.write_text(page())
