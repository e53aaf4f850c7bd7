"""Bytes of a stored file: opened, decompressed, cut into chunks and lines, always within a bound of memory."""

from __future__ import annotations

import bz2
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from packer.corpus.sources import Source
from packer.errors import InputError
from packer.remote import RemoteFile, Stat

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK = 1 << 20  # bytes read at a time
BOM = b"\xef\xbb\xbf"
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, zstd.ZstdError)


class _Gzip:
    """zlib with the interface that the other decompressors share. zlib checks each member's CRC and length."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
    "zstd": zstd.ZstdDecompressor,
}


class _Decompressed(io.RawIOBase):
    """All members (frames) of a compressed file, one after the other.

    The standard library's bz2 and lzma files take whatever follows a member for padding and stop there, so a damaged
    second member would be lost without a word. Here only zeros may follow.
    """

    def __init__(self, stored: BinaryIO, path: str, compression: str) -> None:
        self._stored, self._path, self._compression = stored, path, compression
        self._member = DECOMPRESSORS[compression]()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stored.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._read(len(buffer))
        except EOFError:
            raise InputError(f"{self._path}: {self._compression} stream is cut off; fetch the file again") from None
        except DAMAGE as error:
            reason = str(error) or type(error).__name__
            raise InputError(
                f"{self._path}: {self._compression} stream is corrupt ({reason}); fetch it again"
            ) from None
        buffer[: len(data)] = data
        return len(data)

    def _read(self, size: int) -> bytes:
        while True:
            if self._member.eof:
                stored = self._next_member()
                if not stored:
                    return b""
                self._member = DECOMPRESSORS[self._compression]()
            else:
                stored = self._stored.read(CHUNK) if self._member.needs_input else b""
            wanted = self._member.needs_input
            data: bytes = self._member.decompress(stored, size)
            if data:
                return data
            if wanted and not stored and not self._member.eof:
                raise EOFError

    def _next_member(self) -> bytes:
        stored = self._member.unused_data.lstrip(b"\0")
        while not stored:
            chunk = self._stored.read(CHUNK)
            if not chunk:
                return b""
            stored = chunk.lstrip(b"\0")
        return bytes(stored)


@contextmanager
def input_errors(path: str) -> Iterator[None]:
    """Turns what the operating system says about a file into an InputError that names it."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def open_bytes(source: Source, start: int = 0) -> Iterator[BinaryIO]:
    """The source's content as it was before compression, from byte `start` of it (only where not compressed)."""
    with input_errors(source.path):
        if source.format == "stdin":
            yield sys.stdin.buffer
            return
        with _stored(source) as stored:
            if source.compression is None:
                stored.seek(start)
                yield stored
                return
            with io.BufferedReader(_Decompressed(stored, source.path, source.compression), CHUNK) as stream:
                yield stream


def remote_file(source: Source, *, random: bool = False) -> RemoteFile:
    """A source in a store, as long as it is the one that was found. random: reads will jump."""
    return RemoteFile(source.location, expected=Stat(source.size, source.stamp), random=random)


def _stored(source: Source) -> BinaryIO:
    return io.BufferedReader(remote_file(source), CHUNK) if source.remote else open(source.location, "rb")


def stored_per_byte(source: Source, most: int = 32 << 20) -> float:
    """Bytes of a compressed file for each that comes out of it, measured at its beginning."""
    with input_errors(source.path), _stored(source) as stored:
        stream, buffer, out = _Decompressed(stored, source.path, source.compression or ""), bytearray(CHUNK >> 4), 0
        while out < most:
            before = stored.tell()
            count = stream.readinto(buffer)
            if not count:
                return source.size / max(out, 1)
            if CHUNK <= before < stored.tell():  # all that was read before has come out
                return before / out
            out += count
        return stored.tell() / out


def chunks(stream: BinaryIO, length: int | None = None, *, drop_bom: bool = False) -> Iterator[bytes]:
    """At most `length` bytes of the stream (None: all), about CHUNK at a time."""
    left = sys.maxsize if length is None else length
    while chunk := stream.read(min(CHUNK, left)):
        left -= len(chunk)
        if drop_bom:
            chunk, drop_bom = chunk.removeprefix(BOM), False
        yield chunk


def lines(parts: Iterator[bytes], limit: int) -> Iterator[list[bytes | None]]:
    """Lines without their LF, some at a time. A line above `limit` bytes is None and is not kept in memory.

    [b"a\\nb", b"c\\n\\nd"] -> [b"a"], [b"bc", b""], [b"d"]
    """
    begun: list[bytes] = []  # pieces of the line that has not ended yet
    size = 0
    for part in parts:
        first, *rest = part.split(b"\n")
        size += len(first)
        if size <= limit:
            begun.append(first)
        else:
            begun.clear()
        if not rest:
            continue
        whole: list[bytes | None] = [b"".join(begun) if size <= limit else None]
        last = rest.pop()
        if limit < len(part):
            whole += [line if len(line) <= limit else None for line in rest]
        else:
            whole += rest
        begun, size = [last] if len(last) <= limit else [], len(last)
        yield whole
    if size:
        yield [b"".join(begun) if size <= limit else None]


def count_newlines(source: Source, stop: int) -> int:
    """Line feeds in the first `stop` bytes: what an error needs to name the line of a slice."""
    with open_bytes(source) as stream:
        return sum(chunk.count(b"\n") for chunk in chunks(stream, stop))


def not_utf8(data: bytes, offset: int) -> str:
    """The reason why `data`, whose byte `offset` is wrong, is a bad record."""
    boms = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
    for bom, name in boms.items():
        if data.startswith(bom):
            return f"{name}, not UTF-8; convert it first, e.g. with iconv"
    return f"not UTF-8 at byte {offset}; convert it first, e.g. with iconv"
