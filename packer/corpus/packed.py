"""A packer data set's documents, once they have been put together again: ready-made ids, in the order of their input.

    <folder>/tokens    int32, documents end to end; ABSENT where a token is in no row
    <folder>/trained   int8, beside them if some document has a loss mask: 0, 1, or UNKNOWN where no label tells
    <folder>/sizes     int64, tokens of each record that are there; 0 for one that has none
    <folder>/places    int64, where among the tokens each record begins
    <folder>/cuts      int64, the records with which partitions begin: where the data set's own partitions were cut

`packer.stored.inputs` writes them. Read by ordinary reads, in pieces, so that memory stays small.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.corpus.batches import TOKEN_BATCH_IDS, Block, Tokens
from packer.corpus.columns import cut
from packer.corpus.records import Reading
from packer.corpus.sources import Source, Table
from packer.errors import InputError
from packer.plan import BoolArray, Int64Array, offsets_of

ABSENT = -1  # a token that no row holds
UNKNOWN = 2  # whether a token is trained cannot be seen: no label is of it
RECORDS = 1 << 16  # whose sizes are looked at together
T = TypeVar("T", bound=np.generic)


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of a range of records. A record without a token is an empty document."""
    table = table_of(reading.source)
    stop = table.records if reading.slice.stop is None else reading.slice.stop
    for first in range(reading.slice.start, stop, RECORDS):
        count = min(RECORDS, stop - first)
        sizes = _numbers(table, "sizes", np.dtype(np.int64), first, count)
        places = _numbers(table, "places", np.dtype(np.int64), first, count)
        for start, end in cut(sizes, TOKEN_BATCH_IDS):
            yield _block(table, sizes[start:end], places[start:end])


def cuts_of(source: Source) -> list[tuple[int, int]]:
    """The records of each partition, [start, stop)."""
    table = table_of(source)
    starts = np.fromfile(Path(table.folder) / "cuts", np.int64).tolist()
    return list(zip(starts, [*starts[1:], table.records], strict=True))


def table_of(source: Source) -> Table:
    if source.table is None:
        raise InputError(f"{source.path}: its documents must be put together before they are read")
    return source.table


def _block(table: Table, sizes: Int64Array, places: Int64Array) -> Tokens:
    start, stop = int(places[0]), int((places + sizes).max())
    ids = _numbers(table, "tokens", np.dtype(np.int32), start, stop - start)
    held = ids != ABSENT  # between documents lies what is not there, if a data set lost tokens
    offsets, masked = offsets_of(sizes), np.zeros(len(sizes), np.bool_)
    mask = None
    if table.masked != "no":
        trained = _numbers(table, "trained", np.dtype(np.int8), start, stop - start)[held]
        mask, masked = masks_of(trained, offsets, everywhere=table.masked == "all")
    return Tokens(len(sizes), np.arange(len(sizes)), ids[held], offsets, mask, masked)


def masks_of(trained: NDArray[np.int8], offsets: Int64Array, *, everywhere: bool) -> tuple[BoolArray, BoolArray]:
    """The loss masks of documents end to end, bool (t,), and which documents have one, bool (n,).

    Nothing predicts a document's first token, so its mask is often nowhere to be seen: it is taken to be that of the
    next token. A document has a mask if all do, or if a token of it is not trained.
    """
    mask = trained == 1
    lengths = np.diff(offsets)
    firsts = offsets[:-1][lengths > 0]
    unknown = trained[firsts] == UNKNOWN
    alone = lengths[lengths > 0] == 1
    mask[firsts[unknown & ~alone]] = mask[firsts[unknown & ~alone] + 1]
    mask[firsts[unknown & alone]] = not everywhere
    untrained = offsets_of(trained == 0)
    masked = (untrained[offsets[1:]] > untrained[offsets[:-1]]) | everywhere
    return mask, masked & (lengths > 0)


def _numbers(table: Table, name: str, dtype: np.dtype[T], start: int, count: int) -> NDArray[T]:
    path = Path(table.folder) / name
    values = np.fromfile(path, dtype, count, offset=start * dtype.itemsize)
    if len(values) != count:
        raise InputError(f"temporary file {path} is cut short; the disk may be full or failing: run again")
    return values
