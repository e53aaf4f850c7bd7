"""Rows on their way: one folder a block, raw little-endian arrays, written once and read forwards once.

    tokens.bin    int32, the rows' tokens end to end, in the order in which they will be read
    trained.bin   bool, beside them, only where some document has a loss mask
    segments.bin  `packer.rows.SEGMENT`, in the same order
    counts.bin    int64, segments of each row

Reading takes the next rows only, by ordinary reads: a memory map would make the process look as large as the corpus.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.errors import OutputError
from packer.plan import offsets_of
from packer.rows import SEGMENT, Rows

T = TypeVar("T", bound=np.generic)


class BlockWriter:
    """Appends rows to a block's folder; `close` makes them durable."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.rows = 0

    def write(self, rows: Rows) -> None:
        self._append("tokens.bin", rows.tokens)
        if rows.trained is not None:
            self._append("trained.bin", rows.trained)
        self._append("segments.bin", rows.segments)
        self._append("counts.bin", np.diff(rows.row_segments))
        self.rows += len(rows)

    def _append(self, name: str, values: NDArray[np.generic]) -> None:
        with open(self.folder / name, "ab") as file:
            file.write(np.ascontiguousarray(values).data)

    def close(self) -> None:
        for path in sorted(self.folder.iterdir()):
            sync(path)
        sync(self.folder)


class BlockReader:
    """Reads a block's rows from the first on, `take` by `take`."""

    def __init__(self, folder: Path, *, masked: bool) -> None:
        self.folder = folder
        self.masked = masked
        self._row = self._segment = self._token = 0

    def take(self, rows: int) -> Rows:
        """The next rows."""
        counts = self._read("counts.bin", np.dtype("<i8"), self._row, rows)
        segments = self._read("segments.bin", SEGMENT, self._segment, int(counts.sum()))
        tokens = int(segments["length"].sum(dtype=np.int64))
        result = Rows(
            self._read("tokens.bin", np.dtype("<i4"), self._token, tokens),
            self._read("trained.bin", np.dtype(np.bool_), self._token, tokens) if self.masked else None,
            segments,
            offsets_of(counts),
        )
        self._row, self._segment, self._token = self._row + rows, self._segment + len(segments), self._token + tokens
        return result

    def _read(self, name: str, dtype: np.dtype[T], start: int, count: int) -> NDArray[T]:
        values = np.fromfile(self.folder / name, dtype, count, offset=start * dtype.itemsize)
        if len(values) != count:
            raise OutputError(
                f"staging file {self.folder / name} is cut short; the disk may be full or failing: run again"
            )
        return values


def sync(path: Path) -> None:
    """Forces a file, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
