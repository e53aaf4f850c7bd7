"""JSON Lines: one record a line. Lines end at LF only; they are read in big chunks, not one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

import orjson

from packer.corpus import schema as schemas
from packer.corpus.batches import Block
from packer.corpus.records import BadRecordError, Reading, parse_line, too_long
from packer.corpus.sources import ReadOptions, Slice
from packer.corpus.streams import CHUNK, chunks, lines, open_bytes

JSON_SPACE = b" \t\r\n"


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of a byte range, a whole file or stdin."""
    piece = reading.slice
    with open_bytes(piece.source, piece.start) as stream:
        length = None if piece.stop is None else piece.stop - piece.start
        parts = chunks(stream, length, drop_bom=piece.start == 0)
        if piece.source.schema is None:
            reading, parts = _look_ahead(reading, parts)
        yield from _Lines(reading).blocks(parts)


def _look_ahead(reading: Reading, parts: Iterator[bytes]) -> tuple[Reading, Iterator[bytes]]:
    """Finds the schema of a stream that cannot be read twice: reads on until it shows, and puts that back."""
    seen: list[bytes] = []

    def noting() -> Iterator[bytes]:
        for part in parts:
            seen.append(part)
            yield part

    schema = schemas.of_records(_head(noting(), reading.options), reading.source.path, reading.options)
    source = replace(reading.source, schema=schema)
    return reading.on(Slice(source, reading.slice.start, reading.slice.stop)), chain(seen, parts)


def head(stream: BinaryIO, options: ReadOptions) -> Iterator[tuple[str, object]]:
    """(place, record) of the first lines, at least one and about CHUNK bytes; bad ones are left to the reader."""
    return _head(chunks(stream, drop_bom=True), options)


def _head(parts: Iterator[bytes], options: ReadOptions) -> Iterator[tuple[str, object]]:
    first, seen = 1, 0
    for group in lines(parts, options.max_record_bytes):
        for number, line in enumerate(group, first):
            try:
                yield f"line {number}", orjson.loads(line or b"")
            except ValueError:
                try:
                    yield f"line {number}", parse_line(line or b"")
                except BadRecordError:
                    continue
        first += len(group)
        seen += sum(len(line or b"") for line in group)
        if seen >= CHUNK // 2:
            return


class _Lines:
    """The lines of one slice, numbered from 1 in it."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._convert = reading.converter(whole=False)
        self._convert_whole = reading.converter()

    def blocks(self, parts: Iterator[bytes]) -> Iterator[Block]:
        convert, loads = self._convert, orjson.loads
        first = 1
        for group in lines(parts, self._reading.options.max_record_bytes):
            documents: list[Any] = []
            for number, line in enumerate(group, first):
                try:
                    documents.append(convert(loads(line)))  # type: ignore[arg-type]  # None is refused too
                except ValueError:  # refused by orjson or a BadRecordError
                    if line is None or line.strip(JSON_SPACE):
                        documents.append(self._again(line, number))
            first += len(group)
            yield self._reading.block_of(documents)

    def _again(self, line: bytes | None, number: int) -> Any:
        """The document of a line that the fast way refused, or None after reporting what is wrong with it."""
        try:
            if line is None:
                raise BadRecordError(too_long(self._reading.options))
            return self._convert_whole(parse_line(line))
        except BadRecordError as error:
            self._reading.bad_at("line", number, str(error))
            return None
