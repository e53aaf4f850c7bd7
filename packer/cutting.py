"""Rows cut from staged documents: windows, and the one stream of `wrapped`. Cut when read, never written out.

    staged blocks        documents end to end; over all blocks they are one stream of tokens
    a block's cut        where in that stream each row lies, and its segments, in the order in which rows will be read
    reading rows         the tokens are read from the documents' blocks, wherever those are

So overlapping windows take no more disk or memory before the shards than the documents do: 4 bytes a token, and about
60 bytes a row. A row belongs to the block in which it begins, and may run on through those that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.interleave import Stream, generator
from packer.packing import wrapped
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of, runs
from packer.rows import SEGMENT, Rows, SegmentArray, slices
from packer.schema import IGNORE_INDEX
from packer.staging import BlockReader, read_into, sync_all, write_at
from packer.windowing import Coverage, Windowing, Windows, coverage, pieces, windows_of

T = TypeVar("T", bound=np.generic)
ROWS = 1 << 18  # cut at a time

CUT = np.dtype(
    [
        ("segment", "<i8"),  # first of its segments
        ("place", "<i8"),  # where in the stream it begins
        ("length", "<i4"),
        ("seen", "<i4"),  # leading labels that are not trained, for an earlier window has them
        ("followed", "?"),  # its last position has a label: the stream's next token
    ]
)


@dataclass(frozen=True)
class StagedBlock:
    """Rows ready to be merged. key: (partition, block); first_doc: ordinal of its partition's first record; stream:
    where the tokens are, if the rows are cut; part: which of several packings and row lengths they are of."""

    folder: Path
    key: tuple[int, int]
    first_doc: int
    rows: int
    tokens: int
    masked: bool
    stream: TokenStream | None = None
    part: tuple[int, int] = (0, 0)

    def reader(self) -> BlockReader | CutReader:
        return CutReader(self.folder, self.stream) if self.stream else BlockReader(self.folder, masked=self.masked)


@dataclass(frozen=True)
class TokenStream:
    """The tokens of all staged blocks end to end. folders: of the blocks; offsets: int64 (blocks+1,), where in the
    stream each begins; masked: which of them say what is trained; mask_overlap: labels seen before are not trained."""

    folders: tuple[Path, ...]
    offsets: Int64Array
    masked: tuple[bool, ...]
    mask_overlap: bool

    def read(self, places: Int64Array, lengths: Int64Array) -> tuple[Int32Array, BoolArray | None]:
        """Slices of the stream end to end, and which tokens are trained, or None where all are.

        Slices that overlap or lie close together are read together, at most about twice what was asked for.
        """
        order = np.argsort(places, kind="stable")
        reached = np.maximum.accumulate((places + lengths)[order])
        gap = int(lengths.mean()) if len(lengths) else 0
        apart = places[order][1:] > reached[:-1] + gap
        first = np.flatnonzero(np.append(True, apart))  # slice with which each span begins
        starts, stops = places[order][first], reached[np.append(first[1:], len(order)) - 1]
        span = np.empty(len(order), np.int64)
        span[order] = np.cumsum(np.append(False, apart))
        at = offsets_of(stops - starts)[span] + places - starts[span]
        tokens = slices(self._read("tokens.bin", np.dtype("<i4"), starts, stops - starts), at, at + lengths)
        if not any(self.masked):
            return tokens, None
        trained = self._read("trained.bin", np.dtype(np.bool_), starts, stops - starts)
        return tokens, slices(trained, at, at + lengths)

    def _read(self, name: str, dtype: np.dtype[T], starts: Int64Array, lengths: Int64Array) -> NDArray[T]:
        """Spans end to end, each from the blocks in which it lies."""
        values = np.empty(int(lengths.sum()), dtype)
        block, start, length, _ = pieces(self.offsets, starts, lengths)
        at = offsets_of(length)
        parts = zip(block.tolist(), start.tolist(), at[:-1].tolist(), at[1:].tolist(), strict=True)
        for index, group in groupby(parts, key=lambda part: part[0]):
            if name == "trained.bin" and not self.masked[index]:
                for _, _, first, last in group:
                    values[first:last] = True
            else:
                read_into(self.folders[index] / name, [(values[a:b], start) for _, start, a, b in group])
        return values


class CutReader:
    """Reads any rows of a block's cut, as `packer.staging.BlockReader` does. Ordinals are those of the whole input."""

    def __init__(self, folder: Path, stream: TokenStream) -> None:
        self.folder, self.stream = folder, stream

    def read(self, start: int, count: int) -> Rows:
        """Rows start to start + count."""
        cuts = np.empty(count + 1, CUT)
        read_into(self.folder / "cuts.bin", [(cuts, start)])
        first = cuts["segment"] - cuts["segment"][0]
        segments = np.empty(int(first[-1]), SEGMENT)
        read_into(self.folder / "segments.bin", [(segments, int(cuts["segment"][0]))])
        cuts = cuts[:-1]
        lengths, followed = cuts["length"].astype(np.int64), cuts["followed"]
        tokens, trained = self.stream.read(cuts["place"], lengths + followed)
        ends = offsets_of(lengths + followed)[1:][followed] - 1  # the token after each row that has one
        following = tokens[ends]
        if trained is not None:
            following[~trained[ends]] = IGNORE_INDEX
            trained = np.delete(trained, ends)
        segments["next"][first[1:][followed] - 1] = following
        tokens = np.delete(tokens, ends)
        if self.stream.mask_overlap:
            trained = np.ones(len(tokens), np.bool_) if trained is None else trained
            trained[runs(offsets_of(lengths)[:-1] + 1, cuts["seen"])] = False  # the label is of the token after it
        return Rows(tokens, trained, segments, first)


@dataclass(frozen=True)
class Cut:
    """The blocks that have rows now; the documents that are in some row, and those in several; what the rows cover."""

    blocks: list[StagedBlock]
    placed_documents: int
    split_documents: int
    coverage: Coverage


def cut(blocks: Sequence[StagedBlock], size: int, windowing: Windowing | None, seed: int, *, shuffle: bool) -> Cut:
    """Blocks of documents become blocks of rows of at most `size` tokens. windowing None: `--strategy wrapped`.

    The rows depend on the documents alone; which block they are in, and so their order, on the blocks too.
    """
    over_documents = windowing is not None and windowing.scope == "corpus"  # a label may be of the next document
    shortest = 2 if windowing else wrapped.SHORTEST
    windowing = windowing or wrapped.end_to_end(size)
    stream = TokenStream(
        tuple(block.folder for block in blocks),
        offsets_of(np.array([block.tokens for block in blocks], np.int64)),
        tuple(block.masked for block in blocks),
        windowing.mask_overlap,
    )
    end = int(stream.offsets[-1])
    whole = windows_of(np.array([end]), size, windowing, shortest=shortest) if windowing.scope == "corpus" else None
    lengths, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    result, placed, split = [], 0, 0
    for i, block in enumerate(blocks):
        base = int(stream.offsets[i])
        documents = _documents(block)
        if whole is None:
            part = _of_documents(documents, base, size, windowing)
        else:
            part = _of_stream(whole, documents, base)
            documents = _up_to(part.end - base, documents, blocks[i + 1 :])
        lengths, counts = _merged(lengths, counts, documents["length"][: block.rows])
        placed += int((part.rows_of > 0).sum())
        split += int((part.rows_of > 1).sum())
        if not len(part.numbers):
            continue
        numbers = part.numbers
        if shuffle:
            numbers = numbers[generator(seed, Stream.ROWS, *block.key).permutation(len(numbers))]
        folder = block.folder.with_name(block.folder.name + "-rows")
        part = replace(part, numbers=numbers)
        tokens = _write(folder, part, documents, base, end if over_documents else None)
        result.append(replace(block, folder=folder, first_doc=0, rows=len(numbers), tokens=tokens, stream=stream))
    return Cut(result, placed, split, coverage(lengths, size, windowing, counts=counts))


@dataclass(frozen=True)
class _Part:
    """The windows of a block. numbers: int64 (w,), those that begin in it; bases: int64 (d,), where in the stream what
    `windows` counts from begins; end: of the stream's part in which they lie; rows_of: int64 (n,), the windows that
    hold something of each of the block's documents."""

    windows: Windows
    numbers: Int64Array
    bases: Int64Array
    end: int
    rows_of: Int64Array


def _of_documents(documents: SegmentArray, base: int, size: int, windowing: Windowing) -> _Part:
    windows = windows_of(documents["length"], size, windowing)
    places = base + offsets_of(documents["length"])
    return _Part(windows, np.arange(windows.total), places, int(places[-1]), windows.counts)


def _of_stream(windows: Windows, documents: SegmentArray, base: int) -> _Part:
    places = base + offsets_of(documents["length"])
    first, stop = windows.begun_before(places[[0, -1]]).tolist()
    last = windows.take(np.arange(first, stop)[-1:])
    return _Part(
        windows,
        np.arange(first, stop),
        np.zeros(1, np.int64),
        int((last.start + last.length).sum()),
        windows.begun_before(places[1:]) - windows.ended_by(places[:-1]),
    )


def _documents(block: StagedBlock) -> SegmentArray:
    """The block's documents, one segment each, with ordinals of the whole input."""
    documents = np.empty(block.rows, SEGMENT)
    read_into(block.folder / "segments.bin", [(documents, 0)])
    documents["doc"] += block.first_doc
    return documents


def _up_to(end: int, documents: SegmentArray, following: Sequence[StagedBlock]) -> SegmentArray:
    """More documents, until they hold `end` tokens."""
    parts = [documents]
    held = int(documents["length"].sum(dtype=np.int64))
    for block in following:
        if held >= end:
            break
        parts.append(_documents(block))
        held += block.tokens
    return np.concatenate(parts)


def _merged(lengths: Int64Array, counts: Int64Array, more: Int32Array) -> tuple[Int64Array, Int64Array]:
    """A histogram of lengths with more of them: it has few entries, however many documents there are."""
    found, times = np.unique(more, return_counts=True)
    both, place = np.unique(np.concatenate([lengths, found]), return_inverse=True)
    total = np.zeros(len(both), np.int64)
    np.add.at(total, place, np.concatenate([counts, times]))
    return both, total


def _write(folder: Path, part: _Part, documents: SegmentArray, base: int, end: int | None) -> int:
    """Writes the part's windows in the order of their numbers. documents: those in which they lie, from `base` of the
    stream on; end: of the stream, if labels go over documents. Returns how many tokens the rows hold."""
    folder.mkdir()
    places = base + offsets_of(documents["length"])
    segment = tokens = 0
    for first in range(0, len(part.numbers), ROWS):
        taken = part.windows.take(part.numbers[first : first + ROWS])
        place = part.bases[taken.doc] + taken.start
        doc, start, length, row_offsets = pieces(places, place, taken.length)
        segments = documents[doc]
        segments["start"] += start.astype(np.int32)
        last = row_offsets[1:] - 1
        cuts = np.zeros(len(place) + 1, CUT)  # one more, for the end
        cuts["segment"] = segment + row_offsets
        for name, values in (("place", place), ("length", taken.length), ("seen", taken.seen)):
            cuts[name][:-1] = values
        goes_on = start[last] + length[last] < documents["length"][doc[last]]
        cuts["followed"][:-1] = goes_on if end is None else place + taken.length < end
        segments["length"] = length
        write_at(folder / "segments.bin", segments, segment)
        write_at(folder / "cuts.bin", cuts, first)  # the end is written over by what comes after it
        segment += len(segments)
        tokens += int(taken.length.sum())
    sync_all(folder)
    return tokens
