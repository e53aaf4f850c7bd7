"""CSV and TSV by the standard library's csv, strictly: fields may hold quoted newlines, the first row is the header."""

from __future__ import annotations

import csv
import io
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, BinaryIO

from packer.corpus.batches import Block
from packer.corpus.records import BadRecordError, Reading
from packer.corpus.schema import EXTRA_FIELDS
from packer.corpus.sources import ReadOptions, Source
from packer.corpus.streams import open_bytes
from packer.errors import InputError


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of one row each. A row's place is the line where it begins."""
    convert = reading.converter(whole=False)
    extra = EXTRA_FIELDS if reading.schema.rendered else ()
    wanted = frozenset((*reading.schema.fields, *reading.traits.fields, *extra))
    with open_bytes(reading.source) as stream, closing(_rows(stream, reading.source, reading.options)) as rows:
        _, header = next(rows, (1, []))
        for line, row in rows:
            document: Any = None
            try:
                document = convert(_record(header, row, wanted))
            except BadRecordError as error:
                reading.bad(f"line {line}", str(error))
            yield reading.block_of([document])


def columns(source: Source, options: ReadOptions) -> list[str]:
    """The header's names; empty for an empty file."""
    with open_bytes(source) as stream:
        _, header = next(_rows(stream, source, options), (1, []))
        return header


def _record(header: list[str], row: list[str], wanted: frozenset[str]) -> dict[str, str]:
    """The row's fields by name, of those that are wanted."""
    if len(row) != len(header):
        raise BadRecordError(f"has {len(row)} fields, but the header has {len(header)}")
    record = {name: text for name, text in zip(header, row, strict=True) if name in wanted}
    for name, text in record.items():
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise BadRecordError(f"field {name}: invalid UTF-8; convert the file first, e.g. with iconv") from None
    return record


def _rows(stream: BinaryIO, source: Source, options: ReadOptions) -> Generator[tuple[int, list[str]]]:
    """(first line, fields) of each row that is not blank. Raises InputError where quoting goes wrong, since what
    follows could then be taken for the wrong rows."""
    with _text_lines(stream) as text:
        # The limit is the whole process's: set at each reading, it can only be the one asked for.
        csv.field_size_limit(options.max_record_bytes)
        reader = csv.reader(
            _bounded(text, source.path, options.max_record_bytes),
            delimiter="\t" if source.format == "tsv" else ",",
            strict=True,
        )
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise InputError(
                    f"{source.path}, line {line}: {error} (the rows after it cannot be told apart)"
                ) from None
            if row is None:
                return
            if row:
                yield line, row


@contextmanager
def _text_lines(stream: BinaryIO) -> Iterator[io.TextIOWrapper]:
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield text
    finally:
        text.detach()  # the stream is closed by whoever opened it


def _bounded(text: io.TextIOWrapper, path: str, limit: int) -> Iterator[str]:
    number = 0
    while line := text.readline(limit + 2):
        number += 1
        if len(line.rstrip("\r\n")) > limit:
            raise InputError(f"{path}, line {number}: line is above {limit} bytes (--max-record-bytes)")
        yield line
