# SPDX-License-Identifier: Apache-2.0
"""Draws the demo's table of README.md: ``python -m tools.docs.acceptance_figure``.

Left: acceptance at each position, with the plugin off and on and on the unrotated target. Right:
output tokens per second of the same servers and of the target alone. The background is white, so
that the figure is readable on a dark page as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FIGURE = ROOT / "docs" / "en" / "figures" / "acceptance.svg"

WIDTH, HEIGHT = 820, 330
TOP, BOTTOM = 78, 262
INK, RULE = "#334155", "#cbd5e1"
BAR, GAP = 38, 5

#: The table's columns: how many, those with acceptance by position, that with output tokens/s.
COLUMNS, POSITIONS, SPEED = 7, slice(1, 4), 5
NUMBER = re.compile(r"\d")

#: The table's first column, and the words and colour of the figure.
SERIES = {
    "unrotated W8A8 target + draft": ("unrotated target", "#64748b"),
    "QuaRot W8A8 target + draft, plugin off": ("QuaRot, plugin off", "#c2410c"),
    "QuaRot W8A8 target + draft, plugin on": ("QuaRot, plugin on", "#1d4ed8"),
}
ALONE = ("QuaRot W8A8 target, no draft", "QuaRot, no draft", "#94a3b8")


@dataclass(frozen=True)
class Measured:
    """One row of the table: acceptance by position (none without a draft), output tokens/s."""

    acceptance: tuple[float, ...]
    tokens_per_second: float


def table() -> dict[str, Measured]:
    """The rows of the demo's table in README.md by their first column."""
    rows = {}
    for line in README.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != COLUMNS or not NUMBER.match(cells[SPEED]):
            continue
        acceptance = tuple(float(cell) for cell in cells[POSITIONS] if cell != "-")
        rows[cells[0]] = Measured(acceptance, float(cells[SPEED]))
    return rows


def text(x: float, y: float, words: str, *, anchor: str = "middle", weight: str = "normal") -> str:
    """One line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}">'
        f"{words}</text>"
    )


def bar(left: float, share: float, colour: str, label: str) -> str:
    """A bar from the base line; ``share`` of the panel's height."""
    height = max(share * (BOTTOM - TOP), 1)
    top = BOTTOM - height
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{BAR}" height="{height:g}" fill="{colour}"/>'
        + text(left + BAR / 2, top - 5, label)
    )


def base_line(left: float, right: float) -> str:
    """The line on which bars stand."""
    return f'<line x1="{left:g}" y1="{BOTTOM}" x2="{right:g}" y2="{BOTTOM}" stroke="{RULE}"/>'


def acceptance_panel(rows: dict[str, Measured], left: float) -> list[str]:
    """Groups of bars, one group for each position."""
    parts = [text(left, 30, "acceptance rate by position", anchor="start", weight="bold")]
    group = len(SERIES) * (BAR + GAP)
    count = len(rows[next(iter(SERIES))].acceptance)
    for position in range(count):
        start = left + position * (group + 26)
        for index, (served, (_, colour)) in enumerate(SERIES.items()):
            value = rows[served].acceptance[position]
            parts.append(bar(start + index * (BAR + GAP), value, colour, f"{value:.3f}"))
        parts.append(text(start + group / 2, BOTTOM + 20, f"position {position + 1}"))
    return [*parts, base_line(left - 6, left + count * (group + 26) - 20)]


def speed_panel(rows: dict[str, Measured], left: float) -> list[str]:
    """One bar for each server."""
    parts = [text(left, 30, "output tokens/s", anchor="start", weight="bold")]
    served, _, colour = ALONE
    bars = [(rows[served].tokens_per_second, colour)]
    bars += [(rows[name].tokens_per_second, shade) for name, (_, shade) in SERIES.items()]
    highest = max(value for value, _ in bars)
    for index, (value, shade) in enumerate(bars):
        parts.append(bar(left + index * (BAR + 16), value / highest, shade, f"{value:.0f}"))
    return [*parts, base_line(left - 6, left + len(bars) * (BAR + 16) - 6)]


def legend(left: float) -> list[str]:
    """What the colours mean, below both panels."""
    parts = []
    for words, colour in [*SERIES.values(), ALONE[1:]]:
        parts.append(f'<rect x="{left:g}" y="300" width="13" height="13" fill="{colour}"/>')
        parts.append(text(left + 19, 311, words, anchor="start"))
        left += 45 + 7.4 * len(words)
    return parts


def figure() -> str:
    """The whole picture as SVG."""
    rows = table()
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="white"/>',
        *acceptance_panel(rows, 32),
        *speed_panel(rows, 565),
        *legend(72),
    ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    FIGURE.write_text(figure(), encoding="utf-8")
