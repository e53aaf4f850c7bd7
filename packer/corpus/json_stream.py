"""JSON that is not one record a line: an array of records, or objects one after the other, pretty-printed or not.

Read through a window of text that grows only while one record does not fit:

    [{"text": "a"}, {"te        record 1 is whole; of record 2 only the beginning is there,
           {"text": "b"}]       so the window drops record 1 and reads on: record 2, then the end
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from packer.corpus.batches import Block
from packer.corpus.records import BadRecordError, Reading, too_long
from packer.corpus.sources import ReadOptions
from packer.corpus.streams import chunks, open_bytes
from packer.errors import InputError

SPACE = " \t\r\n"
WINDOW = 1 << 18  # bytes read at a time, at first
MARGIN = 16  # a number, literal or escape may go on past the window's end: nothing this close to it is taken as final


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of one record each."""
    path = reading.source.path
    convert = reading.converter()
    with open_bytes(reading.source) as stream:
        for number, record in enumerate(values(stream, path, reading.options), 1):
            document: Any = None
            try:
                if isinstance(record, BadRecordError):
                    raise record
                document = convert(record)
            except BadRecordError as error:
                reading.bad(f"record {number}", str(error))
            yield reading.block_of([document])


def head(stream: BinaryIO, path: str, options: ReadOptions) -> Iterator[tuple[str, object]]:
    """(place, record) of the first 100 records."""
    for number, record in zip(range(1, 101), values(stream, path, options), strict=False):
        yield f"record {number}", record


def values(stream: BinaryIO, path: str, options: ReadOptions, window: int = WINDOW) -> Iterator[object]:
    """The records, parsed; a BadRecordError in place of one that is not UTF-8.

    Raises InputError at a syntax error, past which no record can be found, and at a record above the bound: with
    memory for a window and one record, there is no way to tell where such a record ends.
    """
    text = _Window(stream, path, options, window)
    text.skip_space()
    if not text.rest_starts_with("["):
        while not text.at_end():
            yield text.value()
            text.skip_space()
        return
    text.take("[")
    text.skip_space()
    if text.rest_starts_with("]"):
        text.take("]")
    else:
        while True:
            yield text.value()
            text.skip_space()
            if text.rest_starts_with("]"):
                text.take("]")
                break
            text.take(",")
            text.skip_space()
    text.skip_space()
    if not text.at_end():
        raise text.broken("there is more after the array's closing bracket")


class _Window:
    """The text read and not yet consumed. Invalid bytes are kept as surrogates, to be told with their record."""

    def __init__(self, stream: BinaryIO, path: str, options: ReadOptions, window: int) -> None:
        self._stream, self._path, self._options, self._window = stream, path, options, window
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._at, self._ended, self._records = "", 0, False, 0
        self._first = True

    def at_end(self) -> bool:
        return self._at == len(self._text) and self._ended

    def rest_starts_with(self, mark: str) -> bool:
        return self._text.startswith(mark, self._at)

    def skip_space(self) -> None:
        """On to the next character that is not white space, or the end."""
        while True:
            rest = self._text[self._at : self._at + 64].lstrip(SPACE)
            self._at = min(self._at + 64, len(self._text)) - len(rest)
            if rest or (self._at == len(self._text) and not self._grow()):
                return

    def take(self, mark: str) -> None:
        if not self.rest_starts_with(mark):
            if self.at_end():
                raise self.broken("the file ends inside the array; fetch it again")
            found = self._text[self._at]
            raise self.broken(f"not valid JSON: {found!r} where {mark!r} was expected")
        self._at += 1

    def value(self) -> object:
        """The record that begins here."""
        self._records += 1
        while True:
            try:
                record, end = self._scan(self._text, self._at)
                if self._ended or end < len(self._text) - MARGIN:
                    break
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - MARGIN
                if self._ended or not cut:
                    at_end = "; the file may be cut off" if self._ended and cut else ""
                    raise self.broken(f"not valid JSON: {error.msg}{at_end}") from None
                if len(self._text) - self._at > self._options.max_record_bytes:
                    raise self.broken(too_long(self._options)) from None
            except ValueError as error:  # an integer of more digits than Python converts
                raise self.broken(f"not valid JSON: {error}") from None
            except RecursionError:
                raise self.broken("not valid JSON: nested too deeply") from None
            self._grow()
        source, self._at = self._text[self._at : end], end
        if len(source) > self._options.max_record_bytes:
            return BadRecordError(too_long(self._options))
        return record if _is_utf8(source) else BadRecordError("not UTF-8; convert the file first, e.g. with iconv")

    def broken(self, reason: str) -> InputError:
        number = max(self._records, 1)
        return InputError(f"{self._path}, record {number}: {reason} (the records after it cannot be found)")

    def _grow(self) -> bool:
        """Drops what is consumed and reads as much as is left, at least a window: a long record is parsed few times."""
        self._text = self._text[self._at :]
        self._at = 0
        if self._ended:
            return False
        data = b"".join(chunks(self._stream, max(self._window, len(self._text))))
        self._ended = not data
        self._text += self._decoder.decode(data, final=self._ended)
        if self._first and self._text:
            self._text, self._first = self._text.removeprefix("\ufeff"), False
        return True


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
