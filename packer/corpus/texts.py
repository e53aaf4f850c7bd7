"""Free text: one document a file, a line, or a block of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from packer.corpus.batches import Block
from packer.corpus.records import BadRecordError, Reading, too_long
from packer.corpus.streams import BOM, chunks, lines, not_utf8, open_bytes


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of a text file, or of a byte range of one that is split by lines."""
    split = {"file": _whole, "line": _by_line, "paragraph": _by_paragraph}
    return split[reading.options.split_text](reading)


def _whole(reading: Reading) -> Iterator[Block]:
    limit = reading.options.max_record_bytes
    with open_bytes(reading.source) as stream:
        data = b"".join(chunks(stream, limit + len(BOM) + 1))
    if not data:
        return
    text = None
    try:
        data = data.removeprefix(BOM)
        text = _decoded(data if len(data) <= limit else None, reading)
    except BadRecordError as error:
        reading.bad("the whole file", str(error))
    yield [text]


def _by_line(reading: Reading) -> Iterator[Block]:
    first = 1
    for group in _line_groups(reading):
        documents: list[Any] = []
        for number, line in enumerate(group, first):
            content = line and line.removesuffix(b"\r")
            if content == b"":
                continue
            try:
                documents.append(_decoded(content, reading))
            except BadRecordError as error:
                reading.bad_at("line", number, str(error))
                documents.append(None)
        first += len(group)
        yield documents


def _by_paragraph(reading: Reading) -> Iterator[Block]:
    """Blank lines go, all else is kept as it is, the line feed at the file's end too."""
    paragraph = _Paragraph(reading)
    last = b""

    def noted(parts: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal last
        for part in parts:
            last = part[-1:]
            yield part

    first = 1
    for group in _line_groups(reading, noted):
        documents: list[Any] = []
        for number, line in enumerate(group, first):
            if line is None or not _is_blank(line):
                paragraph.add(line, number)
            elif paragraph.begun:
                documents.append(paragraph.end())
        first += len(group)
        yield documents
    if paragraph.begun:
        if last == b"\n":
            paragraph.add(b"", first)
        yield [paragraph.end()]


class _Paragraph:
    """The lines of a block so far, kept only while they are within the bound."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._limit = reading, reading.options.max_record_bytes
        self._lines: list[bytes] = []
        self._size = self._first = 0
        self.begun = False

    def add(self, line: bytes | None, number: int) -> None:
        if not self.begun:
            self.begun, self._first, self._size = True, number, -1  # -1: the last line's LF does not count
        self._size += self._limit + 2 if line is None else len(line) + 1
        if line is None or self._size > self._limit:
            self._lines.clear()
        else:
            self._lines.append(line.removesuffix(b"\r"))

    def end(self) -> str | None:
        """The paragraph, or None after reporting why it is a bad record."""
        whole = b"\n".join(self._lines) if self._size <= self._limit else None
        self._lines, self.begun = [], False
        try:
            return _decoded(whole, self._reading)
        except BadRecordError as error:
            self._reading.bad_at("line", self._first, str(error))
            return None


def _line_groups(
    reading: Reading, through: Callable[[Iterator[bytes]], Iterator[bytes]] = iter
) -> Iterator[list[bytes | None]]:
    piece = reading.slice
    with open_bytes(piece.source, piece.start) as stream:
        length = None if piece.stop is None else piece.stop - piece.start
        parts = chunks(stream, length, drop_bom=piece.start == 0)
        yield from lines(through(parts), reading.options.max_record_bytes)


def _is_blank(line: bytes) -> bool:
    return not line.strip() or not line.decode("utf-8", "replace").strip()


def _decoded(data: bytes | None, reading: Reading) -> str:
    """The text. Raises BadRecordError; `data` None stands for more than the bound."""
    if data is None:
        raise BadRecordError(too_long(reading.options))
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRecordError(not_utf8(data, error.start)) from None
