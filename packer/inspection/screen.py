"""A row on a terminal: in colours where it has them, else in the notation of `packer.inspection.notation`.

What is trained is the same in both. In colours, escapes have a colour of their own, so no backslash needs another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
from rich.console import Console
from rich.text import Text

from packer.inspection.notation import Signs, escape_of, escaped, id_line, lines, signs_for, text_lines
from packer.inspection.pieces import Unit, Vocabulary, units
from packer.inspection.rows import Row, Segment
from packer.plan import BoolArray, Int64Array
from packer.report import counted

SHOWN_IDS = 12  # of a segment, where text is not decoded
INDENT = 4
STYLES = {  # of text, control tokens and escapes: all that is trained is green, and nothing else is
    True: {"text": "green", "control": "black on green", "escape": "bold green"},
    False: {"text": "dim", "control": "cyan", "escape": "dim yellow"},
}


class Screen:
    """Rows to lines of text for a console. vocabulary: None shows ids."""

    def __init__(self, console: Console, vocabulary: Vocabulary | None) -> None:
        self._console, self._vocabulary = console, vocabulary
        self.coloured = console.is_terminal and console.color_system is not None and not console.no_color
        self._signs: Signs = signs_for(console.encoding)

    def row(self, row: Row, max_length: int) -> Iterator[str]:
        """Its lines, with what is escaped that a terminal would obey."""
        head = f"row {row.number}"
        rest = (
            f" ({row.shard}, row {row.place}): {row.tokens:,} of at most {max_length:,} tokens, {row.trained:,} trained"
            f", longest sequence {row.longest:,}"
        )
        yield from self._lines(Text.assemble((head, "bold"), rest), 0)
        for i, segment in enumerate(row.segments):
            yield ""
            yield from self._segment(i, segment)

    def legend(self) -> str:
        """What the colours or signs mean."""
        if self.coloured:
            parts = [Text("trained", STYLES[True]["text"]), Text("not trained", STYLES[False]["text"])]
            if self._vocabulary:
                parts.append(Text("control tokens", STYLES[False]["control"]))
                parts.append(Text("trained ones", STYLES[True]["control"]))
                parts.append(Text("\\n escaped", STYLES[False]["escape"]))
            return "".join(self._lines(Text("   ").join(parts), 0))
        meaning = " trained ".join(self._signs.trained)
        if self._vocabulary:
            meaning += f"  {' control token '.join(self._signs.control)}  \\ escapes"
        return meaning

    def _segment(self, number: int, segment: Segment) -> Iterator[str]:
        head = f"segment {number}: document {segment.document}"
        counts = f"{counted(len(segment.ids), 'token')}, {segment.trained.sum():,} trained"
        rest = f" ({escaped(segment.source, self._signs.encoding)}), {segment.part}, {counts}"
        yield from self._lines(Text.assemble((head, "bold"), rest), 2)
        yield from self._tokens(segment.ids, segment.trained)
        if segment.beyond is not None:
            yield from self._lines(Text("its last label, a token that follows in its document or stream:", "dim"), 2)
            yield from self._tokens(np.array([segment.beyond]), np.ones(1, np.bool_))

    def _tokens(self, ids: Int64Array, trained: BoolArray) -> Iterator[str]:
        found = units(self._vocabulary, ids, trained) if self._vocabulary else []
        if self.coloured:
            for line in map(self._styled, lines(found)) if found else [_styled_ids(ids.tolist(), trained.tolist())]:
                yield from self._lines(line, INDENT)
        else:
            plain = text_lines(found, self._signs)
            for text in plain if found else [id_line(ids.tolist(), trained.tolist(), SHOWN_IDS, self._signs)]:
                yield " " * INDENT + text

    def _styled(self, line: list[Unit]) -> Text:
        stretches = groupby(chain.from_iterable(map(self._characters, line)), key=itemgetter(1))
        return Text.assemble(*(("".join(text for text, _ in same), style) for style, same in stretches))

    def _characters(self, unit: Unit) -> Iterator[tuple[str, str]]:
        """Each character as it is shown, with its style."""
        styles = STYLES[unit.trained]
        for c in unit.text:
            escape = escape_of(c, self._console.encoding)
            yield escape or c, styles["control" if unit.kind != "text" else "escape" if escape else "text"]

    def _lines(self, text: Text, indent: int) -> Iterator[str]:
        """A line of text; in colours it is wrapped, since a terminal would not keep the indent."""
        if not self.coloured:
            yield " " * indent + text.plain
            return
        for line in text.wrap(self._console, max(self._console.width - indent, 20), overflow="fold"):
            with self._console.capture() as captured:
                self._console.print(Text(" " * indent).append_text(line), soft_wrap=True, end="")
            yield captured.get()


def _styled_ids(ids: Sequence[int], trained: Sequence[bool]) -> Text:
    result = Text(" ").join(
        Text(str(i), STYLES[flag]["text"]) for i, flag in zip(ids[:SHOWN_IDS], trained[:SHOWN_IDS], strict=True)
    )
    return result.append(f" ... {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else "")
