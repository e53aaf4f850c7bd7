"""Horizontal bars as SVG, written by hand: readable on a light and on a dark page, and small."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES = 760, 290, 90
ROW, TOP = 30, 46
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .own { fill: #1a7f37 } .other { fill: #8c959f }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .own { fill: #3fb950 } .other { fill: #6e7681 } }
"""


def bars(title: str, values: Sequence[tuple[str, float, bool]]) -> str:
    """values: label, value, and whether it is packer's own; drawn in the order given, from a common zero."""
    longest = max(value for _, value, _ in values)
    height = TOP + ROW * len(values) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_quoted(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)}</text>',
    ]
    for i, (label, value, own) in enumerate(values):
        y = TOP + ROW * i
        width = max(1.0, (WIDTH - LABELS - VALUES) * value / longest)
        lines += [
            f'<text x="{LABELS - 10}" y="{y + 16}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{"own" if own else "other"}" x="{LABELS}" y="{y}" width="{width:.1f}" height="22" rx="3"/>',
            f'<text x="{LABELS + width + 8:.1f}" y="{y + 16}">{value:.{1 if value >= 1 else 2}f}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _quoted(text: str) -> str:
    return escape(text, {'"': "&quot;"})
