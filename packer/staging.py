"""Rows on their way: one folder a block, raw little-endian arrays, written once and read once, some rows at a time.

    tokens.bin    int32, the rows' tokens end to end, in the order in which they will be read
    trained.bin   bool, beside them, only where some document has a loss mask
    segments.bin  `packer.rows.SEGMENT`, in the same order
    rows.bin      int64 pairs, where each row begins among the segments and the tokens; one more pair for the end

Rows are read by ordinary reads: a memory map would make the process look as large as the corpus.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from hashlib import sha256
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow
from numpy.typing import NDArray

from packer.errors import OutputError
from packer.plan import Int32Array, Int64Array, Plan, offsets_of
from packer.rows import SEGMENT, Rows, gather
from packer.threads import ordered_ahead

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

T = TypeVar("T", bound=np.generic)
CHUNK_TOKENS = 1 << 20  # gathered and written at a time


def partition_folder(folder: Path, index: int) -> Path:
    return folder / f"part-{index:05d}"


class BlockWriter:
    """Writes a block's folder. ends: int64 (R+1, 2), where each row begins among the segments and the tokens."""

    def __init__(self, folder: Path, ends: Int64Array) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._ends = ends
        self._seen: dict[str, Hash] = {}
        write_at(folder / "rows.bin", ends, 0)
        self._note("rows.bin", ends)

    def write(self, rows: Rows, first: int) -> None:
        """The rows from `first` on. From any thread and in any order."""
        segment, token = self._ends[first].tolist()
        for name, values in _parts(rows):
            write_at(self.folder / name, values, segment if name == "segments.bin" else token)

    def note(self, rows: Rows) -> None:
        """What is written, for the digests: in order."""
        for name, values in _parts(rows):
            self._note(name, values)

    def close(self) -> dict[str, str]:
        """Makes the block durable. Returns the digest of each of its files, by name, as written."""
        sync_all(self.folder)
        return {name: seen.hexdigest() for name, seen in self._seen.items()}

    def _note(self, name: str, values: NDArray[np.generic]) -> None:
        self._seen.setdefault(name, digest()).update(np.ascontiguousarray(values).data)


def _parts(rows: Rows) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """What a block's files hold of these rows."""
    yield "tokens.bin", rows.tokens
    if rows.trained is not None:
        yield "trained.bin", rows.trained
    yield "segments.bin", rows.segments


def write_block(source: Rows, plan: Plan, stops: Int32Array, folder: Path) -> dict[str, str]:
    """Gathers the plan's rows, a few at a time in several threads, into a staged block. Returns its files' digests."""
    ends = offsets_of(plan.row_lengths())
    writer = BlockWriter(folder, np.stack([plan.row_offsets, ends], axis=1))
    full = np.searchsorted(ends, np.arange(0, ends[-1], CHUNK_TOKENS))

    def write(chunk: tuple[int, int]) -> Rows:
        rows = gather(source, plan.take_rows(np.arange(*chunk)), stops)
        writer.write(rows, chunk[0])
        return rows

    chunks, threads = pairwise(np.unique(np.append(full, plan.rows)).tolist()), pyarrow.cpu_count()
    with closing(ordered_ahead(write, chunks, threads=threads, ahead=threads + 1, abort=lambda: None)) as written:
        for rows in written:
            writer.note(rows)
    return writer.close()


class BlockReader:
    """Reads any rows of a block. Holds no file open and no state."""

    def __init__(self, folder: Path, *, masked: bool) -> None:
        self.folder = folder
        self.masked = masked

    def read(self, start: int, count: int) -> Rows:
        """Rows start to start + count."""
        ends = self._read("rows.bin", np.dtype("<i8"), 2 * start, 2 * (count + 1)).reshape(-1, 2)
        (segment, token), (segments, tokens) = ends[0].tolist(), (ends[-1] - ends[0]).tolist()
        return Rows(
            self._read("tokens.bin", np.dtype("<i4"), token, tokens),
            self._read("trained.bin", np.dtype(np.bool_), token, tokens) if self.masked else None,
            self._read("segments.bin", SEGMENT, segment, segments),
            ends[:, 0] - segment,
        )

    def _read(self, name: str, dtype: np.dtype[T], start: int, count: int) -> NDArray[T]:
        values = np.empty(count, dtype)
        read_into(self.folder / name, [(values, start)])
        return values


def digest() -> Hash:
    """Of what is staged: sha256, for which processors have instructions."""
    return sha256()


def write_at(path: Path, values: NDArray[np.generic], place: int) -> None:
    """Writes values to a file, new or not, as its value number `place` and those after it."""
    with open(path, "wb", opener=_kept) as file:
        file.seek(place * values.itemsize)
        file.write(np.ascontiguousarray(values).data)


def _kept(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


def read_into(path: Path, parts: Iterable[tuple[NDArray[np.generic], int]]) -> None:
    """Fills each array (n,) with n values of the file, from that one on."""
    with open(path, "rb", buffering=0) as file:
        for values, start in parts:
            file.seek(start * values.itemsize)
            if not _filled(file, values.view(np.uint8).data):
                raise OutputError(f"staging file {path} is cut short; the disk may be full or failing: run again")


def _filled(file: FileIO, view: memoryview) -> bool:
    """A read gives at most 2 GB at once."""
    while view:
        count = file.readinto(view)
        if not count:
            return False
        view = view[count:]
    return True


def sync_all(folder: Path) -> None:
    """Forces a folder's files and entries to disk."""
    for path in sorted(folder.iterdir()):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Forces a file, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
