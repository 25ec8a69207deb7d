# SPDX-License-Identifier: Apache-2.0
"""The shell commands of the documentation: every ``bash`` and ``console`` block, in its words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

BLOCK = re.compile(r"^```(?:bash|console)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
CONTINUED = re.compile(r"\\\n\s*")
ASSIGNMENT = re.compile(r"^[A-Z][A-Z0-9_]*=")


@dataclass(frozen=True)
class Command:
    """One command line.

    Attributes:
        page: where it stands, relative to the repository.
        line: as it is written, continuation lines joined.
        assignments: environment variables that it begins with, ``NAME=value``.
        words: the rest, as a shell would split it.
    """

    page: str
    line: str
    assignments: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """Its first word; of a block of options only, the first option."""
        return self.words[0] if self.words else ""


def pages() -> list[Path]:
    """Every page that a reader may take a command from."""
    return [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def commands() -> list[Command]:
    """Every command of the documentation once, with the first page that has it."""
    found: dict[str, Command] = {}
    for page in pages():
        for command in commands_of(page):
            found.setdefault(command.line, command)
    return list(found.values())


def commands_of(page: Path) -> Iterator[Command]:
    """The commands of one page in their order."""
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        for line in CONTINUED.sub(" ", block["body"]).splitlines():
            text = line.removeprefix("$ ").strip()
            words = shlex.split(text, comments=True)
            if not words:
                continue
            first = next(
                (index for index, word in enumerate(words) if not ASSIGNMENT.match(word)),
                len(words),
            )
            name = page.relative_to(ROOT).as_posix()
            yield Command(name, text, tuple(words[:first]), tuple(words[first:]))
