"""Sources to partitions of about the wished size: what is large and can be cut is cut, what is small is put together.

    target 100:   a.jsonl 250   b.parquet 30   c.txt 20   d.jsonl.gz 400
    ->            a[0:100) | a[100:200) | a[200:250) + b | c | d        (a's cuts moved on to the next line's start)

Depends on the sources' content and the options only, so that every run and every worker count has the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packer.corpus import arrow, packed, parquet
from packer.corpus.sources import Partition, ReadOptions, Slice, Source
from packer.corpus.streams import chunks, open_bytes


def partition(sources: Sequence[Source], options: ReadOptions) -> list[Partition]:
    """Every source once, in order."""
    partitions: list[Partition] = []
    gathered: list[Slice] = []
    total = 0
    for source in sources:
        for piece, size in _slices(source, options):
            # Stdin and hub data sets have no known size: each is alone, for it may be anything. A packer data set is
            # cut as it was when it was made, so that it gives the rows that its own INPUT would give.
            alone = source.format in ("stdin", "hub", "packed")
            if gathered and (alone or total + size > options.partition_bytes):
                partitions.append(Partition(len(partitions), tuple(gathered)))
                gathered, total = [], 0
            gathered.append(piece)
            total += options.partition_bytes if alone else size
    if gathered:
        partitions.append(Partition(len(partitions), tuple(gathered)))
    return partitions


def _slices(source: Source, options: ReadOptions) -> Iterator[tuple[Slice, int]]:
    """The source's slices, with their sizes in bytes as stored."""
    if source.table is not None:
        for start, stop in packed.cuts_of(source):
            yield Slice(source, start, stop), source.size
        return
    if source.size > options.partition_bytes and source.compression is None:
        if source.format == "jsonl" or (source.format == "text" and options.split_text == "line"):
            yield from _byte_ranges(source, options.partition_bytes)
            return
        if source.format == "parquet":
            yield from _grouped(source, parquet.group_sizes(source), options.partition_bytes)
            return
        if source.format == "arrow" and (count := arrow.batch_count(source)):
            # The sizes of the batches are not to be had without reading them; they are usually alike.
            yield from _grouped(source, [source.size // count] * count, options.partition_bytes)
            return
    yield Slice(source), source.size


def _byte_ranges(source: Source, target: int) -> Iterator[tuple[Slice, int]]:
    start = 0
    with open_bytes(source) as stream:
        while start < source.size:
            stop = min(start + target, source.size)
            if stop < source.size:
                # From the byte before: a cut that is at a line's start already stays there.
                stream.seek(stop - 1)
                stop = _line_end(chunks(stream, source.size - stop + 1), stop - 1, source.size)
            yield Slice(source, start, stop), stop - start
            start = stop


def _line_end(parts: Iterator[bytes], at: int, end: int) -> int:
    for part in parts:
        if (found := part.find(b"\n")) >= 0:
            return at + found + 1
        at += len(part)
    return end


def _grouped(source: Source, sizes: list[int], target: int) -> Iterator[tuple[Slice, int]]:
    start = total = 0
    for i, size in enumerate(sizes):
        if i > start and total + size > target:
            yield Slice(source, start, i), total
            start, total = i, 0
        total += size
    yield Slice(source, start, len(sizes)), total
