"""A sample of an input: the beginnings of files, evenly spread, tokenized as a run would, in a second or two.

    text formats   the first bytes (decompressed), cut at a line's end, as a temporary file of half a megabyte
    columns        the first rows; how many there are is in the file's metadata
    stdin, hub     the first records; how many there are is not known

So of each piece it is known how many stored bytes it stands for: what it holds scales with those.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from packer import stage
from packer.corpus import Partition, PartitionReader, Slice, TextBatch, TokenBatch
from packer.corpus import partition as partition_sources
from packer.corpus.columns import PIECE_BYTES as COLUMN_BYTES
from packer.corpus.extent import rows_of
from packer.corpus.streams import open_bytes, stored_per_byte
from packer.encoding import Encoded, encode
from packer.errors import InputError
from packer.job import Job
from packer.plan import Int32Array

PIECES = 12  # of the input that are looked at
HEAD_BYTES = 256 << 10  # of one, decompressed
WARM_UP = ["warm up"] * 64  # what a tokenizer does the first time is not what it does later
SECONDS = 1.5
COLUMNS = ("parquet", "arrow")
UNSIZED = ("stdin", "hub")
HUB_RECORDS = 500
LINE_BYTES = 64 << 20  # a head that ends within a longer line ends there


@dataclass(frozen=True)
class Piece:
    """Documents at the beginning of a slice. size: the stored bytes they stand for, 0 of an input of unknown size;
    lengths: int32 (n,); ids: int32 (t,); records: read, documents or not; whole: all of the source."""

    size: float
    lengths: Int32Array
    ids: Int32Array
    masked: bool
    records: int
    whole: bool


@dataclass
class Sample:
    """seconds: of tokenizing it. whole: everything there is was read."""

    pieces: list[Piece] = field(default_factory=list)
    seconds: float = 0.0
    whole: bool = False

    @property
    def lengths(self) -> Int32Array:
        return np.concatenate([np.empty(0, np.int32), *(piece.lengths for piece in self.pieces)])

    @property
    def ids(self) -> Int32Array:
        return np.concatenate([np.empty(0, np.int32), *(piece.ids for piece in self.pieces)])


def take(partitions: Sequence[Partition], job: Job) -> Sample:
    """Pieces of the partitions until there are enough or the time is over. job: with the engine that it will use."""
    given = [piece for partition in partitions for piece in partition.slices if piece.source.size or _unsized(piece)]
    slices = [part for piece in given for part in _parts(piece, job, -(-PIECES // len(given)))]
    chosen = sorted({i * len(slices) // PIECES for i in range(PIECES)}) if slices else []
    sample = Sample()
    deep = max(1, PIECES // max(len(slices), 1))  # where there are few places to look at, more of each
    _encoded([TextBatch(np.arange(len(WARM_UP)), WARM_UP)] if job.tokenizer else [], 1, 0, False, job)
    began = perf_counter()
    for i in _spread(chosen):
        if sample.pieces and perf_counter() - began > SECONDS:
            break
        piece, seconds = _piece(slices[i], job, deep * HEAD_BYTES)
        if piece.records:
            sample.pieces.append(piece)
            sample.seconds += seconds
    sample.whole = len(slices) == len(given) == len(sample.pieces) and all(piece.whole for piece in sample.pieces)
    return sample


def _parts(piece: Slice, job: Job, count: int) -> list[Slice]:
    """A slice cut anew, where its format can be, into about `count` parts: places to look at."""
    source = piece.source
    if _unsized(piece) or count == 1 or source.size < 2 * HEAD_BYTES or piece.start or piece.stop is not None:
        return [piece]
    options = replace(job.read, partition_bytes=max(HEAD_BYTES, -(-source.size // count)))
    return [part for partition in partition_sources([source], options) for part in partition.slices]


def _unsized(piece: Slice) -> bool:
    return piece.source.format in UNSIZED


def _spread(places: Sequence[int]) -> Iterator[int]:
    """The first, the last, the middle, and so on: whenever the time is over, what was taken is spread."""
    left = list(places)
    for at in (0, -1):
        if left:
            yield left.pop(at)
    while left:
        yield left.pop(len(left) // 2)


def _piece(piece: Slice, job: Job, most: int) -> tuple[Piece, float]:
    """The piece, and the seconds that its tokenizing took."""
    source = piece.source
    if source.format in COLUMNS:
        batches, records = _first_batches(piece, job, COLUMN_BYTES)
        total = rows_of(source)
        part = records / max(total, records, 1)
        return _encoded(batches, records, source.size * part, part == 1, job)
    if source.format == "hub":
        batches, records = _first_batches(piece, replace(job, read=replace(job.read, limit=HUB_RECORDS)), COLUMN_BYTES)
        return _encoded(batches, records, 0, False, job)
    head, stored, whole = _head(piece, most)
    with tempfile.NamedTemporaryFile(prefix="packer-sample-") as file:
        file.write(head)
        file.flush()
        form = "jsonl" if source.format == "stdin" else source.format
        stand_in = replace(
            source, location=file.name, format=form, compression=None, size=len(head), modified=None, stamp=None
        )
        batches, records = _first_batches(Slice(stand_in), job, sys.maxsize)
    return _encoded(batches, records, 0 if source.format == "stdin" else stored, whole, job)


def _head(piece: Slice, most: int) -> tuple[bytes, float, bool]:
    """The first bytes of a slice, decompressed, to a line's end; the stored bytes they stand for; whether it is all."""
    source = piece.source
    with open_bytes(source) as stream:
        if piece.start:
            stream.seek(piece.start)
        left = sys.maxsize if piece.stop is None else piece.stop - piece.start
        head = stream.read(min(most, left))
        if len(head) < most or len(head) == left:
            return head, float(left if piece.stop is not None else source.size), piece.start == 0
        head += stream.readline(LINE_BYTES)
    if source.compression is None:
        return head, float(len(head)), False
    return head, len(head) * stored_per_byte(source), False


def _first_batches(piece: Slice, job: Job, size: int) -> tuple[list[TextBatch | TokenBatch], int]:
    """Batches until they hold about `size` bytes, or all; and the records that they are of. What is bad is left out:
    the end of a piece is often the middle of a record."""
    render, _ = stage.chats_of(job.tokenizer, job.chat)
    reader = PartitionReader(Partition(0, (piece,)), replace(job.read, on_error="skip"), render)
    batches: list[TextBatch | TokenBatch] = []
    held = 0
    with suppress(InputError):
        for batch in reader:
            batches.append(batch)
            held += sum(map(len, batch.texts)) if isinstance(batch, TextBatch) else 4 * len(batch.ids)
            if held >= size:
                return batches, int(batch.ordinals[-1]) + 1
    return batches, max([sum(reader.tally.records), *(int(batch.ordinals[-1]) + 1 for batch in batches)])


def _encoded(
    batches: Sequence[TextBatch | TokenBatch], records: int, size: float, whole: bool, job: Job
) -> tuple[Piece, float]:
    began = perf_counter()
    engine, ends, _ = stage.engine_of(job.tokenizer)
    _, chat_ends = stage.chats_of(job.tokenizer, job.chat)
    done: list[Encoded] = list(encode(batches, engine, ends, chat_ends))
    seconds = perf_counter() - began
    lengths = np.concatenate([np.empty(0, np.int64), *(np.diff(batch.offsets) for batch in done)]).astype(np.int32)
    ids = np.concatenate([np.empty(0, np.int32), *(batch.ids for batch in done)])
    return Piece(size, lengths, ids, any(bool(batch.masked.any()) for batch in done), records, whole), seconds
