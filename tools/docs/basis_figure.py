# SPDX-License-Identifier: Apache-2.0
"""Draws the figure of "How it works": ``python -m tools.docs.basis_figure``.

The target on the left, in its rotated basis; the draft on the right, in the original one; between
them the three places where something crosses, each with the formula that takes it across.
"""

from __future__ import annotations

from pathlib import Path

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "en" / "figures" / "basis.svg"

WIDTH, HEIGHT = 820, 420
ROTATED, ORIGINAL, INK = "#c2410c", "#1d4ed8", "#334155"

#: Top of each row of boxes, from the token to the logits.
ROWS = {"embedding": 340, "early": 280, "middle": 220, "late": 160, "head": 50}

TARGET_BOXES = {
    "embedding": "embedding  E' = E Q",
    "early": "early layer  h' = h Q",
    "middle": "middle layer  h' = h Q",
    "late": "late layer  h' = h Q",
    "head": "head  W' = W diag(g) Q",
}
DRAFT_BOXES = {"embedding": "embedding", "middle": "norms, fc, layer", "head": "logits"}

#: Row, formula.
CROSSINGS = {
    "embedding": "E[ids] = E'[ids] Qᵀ",
    "early": "h = h' Qᵀ",
    "middle": "h = h' Qᵀ",
    "late": "h = h' Qᵀ",
    "head": "((x / g) Q) W'ᵀ = x Wᵀ",
}

TARGET_LEFT, TARGET_WIDTH = 40, 230
DRAFT_LEFT, DRAFT_WIDTH = 600, 180
BOX_HEIGHT = 40


def box(left: int, top: int, width: int, text: str, colour: str, height: int = BOX_HEIGHT) -> str:
    """A rounded box with centred text."""
    middle = top + height // 2 + 5
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="white" '
        f'stroke="{colour}" stroke-width="2"/>'
        f'<text x="{left + width // 2}" y="{middle}" text-anchor="middle" fill="{colour}">{text}'
        "</text>"
    )


def crossing(row: str, formula: str) -> str:
    """An arrow between the models with its formula; the head's runs both ways."""
    y = ROWS[row] + BOX_HEIGHT // 2
    left, right = TARGET_LEFT + TARGET_WIDTH, DRAFT_LEFT
    start = ' marker-start="url(#tip)"' if row == "head" else ""
    return (
        f'<line x1="{left + 12}" y1="{y}" x2="{right - 12}" y2="{y}" stroke="{INK}" '
        f'stroke-width="2" marker-end="url(#tip)"{start}/>'
        f'<text x="{(left + right) // 2}" y="{y - 8}" text-anchor="middle" fill="{INK}">{formula}'
        "</text>"
    )


def figure() -> str:
    """The whole picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="15">',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{INK}"/>'
        "</marker></defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{TARGET_LEFT}" y="28" fill="{ROTATED}" font-weight="bold">'
        "target, rotated basis</text>",
        f'<text x="{DRAFT_LEFT}" y="28" fill="{ORIGINAL}" font-weight="bold">'
        "draft, original basis</text>",
    ]
    parts += [
        box(TARGET_LEFT, ROWS[row], TARGET_WIDTH, text, ROTATED)
        for row, text in TARGET_BOXES.items()
    ]
    span = ROWS["early"] - ROWS["late"] + BOX_HEIGHT
    for row, text in DRAFT_BOXES.items():
        top, height = (ROWS["late"], span) if row == "middle" else (ROWS[row], BOX_HEIGHT)
        parts.append(box(DRAFT_LEFT, top, DRAFT_WIDTH, text, ORIGINAL, height))
    parts += [crossing(row, formula) for row, formula in CROSSINGS.items()]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    FIGURE.write_text(figure(), encoding="utf-8")
