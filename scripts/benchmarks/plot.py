"""Horizontal bars as SVG, written by hand: readable on a light and on a dark page, and small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, LABELS, VALUES = 760, 290, 90
ROW, TOP = 30, 46
NAMES, PANEL, LINE = 200, 200, 42  # of several panels: labels, each panel, each line
COLOURS = ("own", "other")
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 12px }
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


def panels(
    title: str, titles: Sequence[str], series: Sequence[str], values: Mapping[str, Sequence[Sequence[float | None]]]
) -> str:
    """A line for each label, a panel for each title, in it a bar for each of the series (at most two); every panel has
    a scale of its own, from zero. values: by label, panel and series; None where there is nothing to show."""
    top, bottom = 96, 8
    height = top + LINE * len(values) + bottom
    width = NAMES + PANEL * len(titles)
    longest = [
        max((v for of in values.values() for v in of[i] if v is not None), default=0) for i in range(len(titles))
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{_quoted(title)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="8" y="24">{escape(title)}</text>',
    ]
    for i, name in enumerate(series):
        x = NAMES + 2 * PANEL * i
        lines.append(f'<rect class="{COLOURS[i]}" x="{x}" y="38" width="12" height="12" rx="2"/>')
        lines.append(f'<text x="{x + 18}" y="49">{escape(name)}</text>')
    lines += [
        f'<text class="title" x="{NAMES + PANEL * i}" y="82">{escape(name)}</text>' for i, name in enumerate(titles)
    ]
    for line, (label, of) in enumerate(values.items()):
        y = top + LINE * line
        lines.append(f'<text x="{NAMES - 12}" y="{y + 21}" text-anchor="end">{escape(label)}</text>')
        for i, bars_of in enumerate(of):
            for j, value in enumerate(bars_of):
                if value is not None:
                    length = max(1.0, (PANEL - 64) * value / longest[i]) if value else 0.0
                    lines += _thin(COLOURS[j], NAMES + PANEL * i, y + 15 * j, length, value)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _thin(colour: str, x: int, y: int, length: float, value: float) -> list[str]:
    shown = f"{value:.{1 if value >= 10 else 2}f}" if value else "0"
    return [
        f'<rect class="{colour}" x="{x}" y="{y + 2}" width="{length:.1f}" height="11" rx="2"/>',
        f'<text class="small" x="{x + length + 6:.1f}" y="{y + 12}">{shown}</text>',
    ]


def _quoted(text: str) -> str:
    return escape(text, {'"': "&quot;"})
