"""Rows on their way: one folder a block, raw little-endian arrays, written once and read once, some rows at a time.

    tokens.bin    int32, the rows' tokens end to end, in the order in which they will be read
    trained.bin   bool, beside them, only where some document has a loss mask
    segments.bin  `packer.rows.SEGMENT`, in the same order
    rows.bin      int64 pairs, where each row begins among the segments and the tokens; one more pair for the end

Rows are read by ordinary reads: a memory map would make the process look as large as the corpus.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.errors import OutputError
from packer.rows import SEGMENT, Rows

T = TypeVar("T", bound=np.generic)
DIGEST = 16  # bytes


def partition_folder(folder: Path, index: int) -> Path:
    return folder / f"part-{index:05d}"


class BlockWriter:
    """Appends rows to a block's folder; `close` makes them durable. `digests`: of its files by name, as written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.rows = 0
        self._seen: dict[str, blake2b] = {}
        self._end = np.zeros(2, np.int64)  # segments and tokens so far
        self._append("rows.bin", self._end)

    def write(self, rows: Rows) -> None:
        self._append("tokens.bin", rows.tokens)
        if rows.trained is not None:
            self._append("trained.bin", rows.trained)
        self._append("segments.bin", rows.segments)
        ends = np.stack([rows.row_segments, rows.row_offsets], axis=1)[1:] + self._end
        self._append("rows.bin", ends)
        self._end = ends[-1]
        self.rows += len(rows)

    def close(self) -> None:
        sync_all(self.folder)

    @property
    def digests(self) -> dict[str, str]:
        return {name: seen.hexdigest() for name, seen in self._seen.items()}

    def _append(self, name: str, values: NDArray[np.generic]) -> None:
        append(self.folder / name, values)
        self._seen.setdefault(name, blake2b(digest_size=DIGEST)).update(np.ascontiguousarray(values).data)


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


def append(path: Path, values: NDArray[np.generic]) -> None:
    with open(path, "ab") as file:
        file.write(np.ascontiguousarray(values).data)


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
