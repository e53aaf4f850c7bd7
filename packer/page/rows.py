"""Rows of a data set as one page of HTML to share: their text, what is trained of it, and each token's id and label.

    Row ──inspection──▶ units of text ──┐
                    ids, labels as JSON ┴─ rows.html.j2 (page.css, rows.css, rows.js inside) ─▶ str

The text, the marks and the figures are there without JavaScript; the script tells of the token under the pointer. It
loads nothing and sends nothing, and every text of the data is escaped, so that it shows and does nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from packer.inspection import Row, Segment, Vocabulary, units
from packer.inspection.notation import escape_of, escaped
from packer.manifest import Manifest
from packer.page import _file, _json, fill, verbatim
from packer.plan import BoolArray, Int64Array
from packer.report import counted

CLASSES = {"text": "", "control": "c", "unknown": "c u"}
SHOWN_AS_GLYPH = {"\n": "n", "\t": "t"}  # the glyph is the style sheet's, so that copying gives the character itself


@dataclass(frozen=True)
class Token:
    """One element of the page: so many tokens, and their text in parts: (class of an escape or None, text)."""

    tokens: int
    trained: bool
    classes: str
    parts: list[tuple[str | None, str]]


def render(out: str, manifest: Manifest, rows: Iterable[Row], vocabulary: Vocabulary | None, command: str) -> str:
    """The whole page. vocabulary: None shows ids; command: shown as what made it."""
    return fill(
        "rows.html.j2",
        css=verbatim(_file("page.css") + _file("rows.css")),
        js=verbatim(_file("rows.js")),
        out=escaped(out),
        command=command,
        facts=list(_facts(manifest)),
        shifted=manifest.layout.labels == "shifted",
        decoded=vocabulary is not None,
        max_length=manifest.max_length,
        rows=rows,
        strip=_strip,
        share=_share,
        figures=lambda segment: verbatim(_json(_figures(segment))),
        tokens=lambda segment: _tokens(vocabulary, segment.ids, segment.trained),
        beyond=lambda i: _tokens(vocabulary, np.array([i]), np.ones(1, np.bool_)),
        counted=counted,
        escaped=escaped,
    )


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    totals, layout = manifest.totals, manifest.layout
    yield "rows in all", f"{totals.rows:,}"
    yield "max_length", f"{manifest.max_length:,}"
    yield "full", f"{manifest.efficiency:.2%}"
    yield "trained", f"{_share(totals.loss_tokens, totals.placed_tokens)}"
    yield "labels", layout.labels
    yield "attention by", layout.boundaries
    yield "positions by", layout.positions
    template = ((manifest.options.chat or {}).get("rendered_by") or {}).get("template")
    if template:
        yield "template", escaped(str(template))
    yield "tokenizer", escaped(manifest.tokenizer.source) if manifest.tokenizer else "none: ready-made ids"


def _share(part: int, whole: int) -> str:
    """A percentage; what is neither none nor all never reads as it."""
    if not 0 < part < whole:
        return "100%" if part else "0%"
    return f"{min(max(part / whole, 0.0001), 0.9999):.{2 if part < whole / 10 or part > whole * 0.99 else 1}%}"


def _strip(row: Row) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """For each segment, offset and length in the row, and its trained stretches as (offset, length)."""
    for segment in row.segments:
        edges = np.flatnonzero(np.diff(segment.trained, prepend=False, append=False)) + segment.offset
        starts, stops = edges[::2].tolist(), edges[1::2].tolist()
        yield segment.offset, len(segment.ids), [(a, b - a) for a, b in zip(starts, stops, strict=True)]


def _figures(segment: Segment) -> dict[str, Any]:
    """What the script tells of a segment's tokens."""
    return {
        "ids": segment.ids.tolist(),
        "labels": segment.labels.tolist(),
        "offset": segment.offset,
        "position": segment.position,
        "start": segment.start,
    }


def _tokens(vocabulary: Vocabulary | None, ids: Int64Array, trained: BoolArray) -> Iterator[Token]:
    if vocabulary is None:
        for i, flag in zip(ids.tolist(), trained.tolist(), strict=True):
            yield Token(1, flag, "", [(None, f"{i} ")])
        return
    for unit in units(vocabulary, ids, trained):
        yield Token(unit.stop - unit.first, unit.trained, CLASSES[unit.kind], list(_parts(unit.text)))


def _parts(text: str) -> Iterator[tuple[str | None, str]]:
    plain = ""
    for c in text:
        escape = escape_of(c)
        if escape is None:
            plain += c
            continue
        if plain:
            yield None, plain
            plain = ""
        yield ("e", escape) if c not in SHOWN_AS_GLYPH else (SHOWN_AS_GLYPH[c], c)
    if plain:
        yield None, plain
