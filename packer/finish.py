"""Finalisation: what is known only when every partition is done. Row order, document ordinals, shards, checksums.

staged blocks ─▶ (wrapped: cut the one stream over all blocks) ─▶ merge at random ─▶ columns ─▶ shards
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from packer.interleave import Stream, generator, in_order, shuffled
from packer.manifest import DATA, Totals, shard_name
from packer.packing.wrapped import cut_stream
from packer.plan import offsets_of
from packer.rows import Rows, columns, concatenate
from packer.schema import FORMATS, Layout
from packer.shards import ShardFile, ShardWriter, record_batch
from packer.stage import PartitionReport, write_block
from packer.staging import BlockReader
from packer.threads import ordered_ahead

GROUP_TOKENS = 500_000  # a row group: small enough to shuffle and to read at once, large enough to compress
SHARD_TOKENS = 64 << 20  # about 140 MB of Parquet
HEAD_ROWS = 64  # documents read at a time to complete a row that runs over a block's end
QUEUE = 2  # row groups that wait for the writer


@dataclass(frozen=True)
class StagedBlock:
    """Rows ready to be merged. key: (partition, block); first_doc: ordinal of its partition's first record."""

    folder: Path
    key: tuple[int, int]
    first_doc: int
    rows: int
    tokens: int
    masked: bool

    def reader(self) -> BlockReader:
        return BlockReader(self.folder, masked=self.masked)


@dataclass(frozen=True)
class Output:
    """How shards are written. rows_per_shard None: equal shards of about SHARD_TOKENS."""

    split: str
    file_format: str
    compression: str
    rows_per_shard: int | None


def staged_blocks(folder: Path, reports: Sequence[PartitionReport]) -> list[StagedBlock]:
    """All blocks in input order. folder: the one that holds a folder for each partition (see `partition_folder`)."""
    blocks = []
    first_docs = offsets_of(np.array([report.totals.records for report in reports], np.int64))
    for report, first_doc in zip(reports, first_docs.tolist(), strict=False):
        for index, block in enumerate(report.blocks):
            path = partition_folder(folder, report.index) / block.folder
            blocks.append(StagedBlock(path, (report.index, index), first_doc, block.rows, block.tokens, block.masked))
    return blocks


def partition_folder(folder: Path, index: int) -> Path:
    return folder / f"part-{index:05d}"


def cut_streams(
    blocks: Sequence[StagedBlock], max_length: int, seed: int, *, shuffle: bool
) -> tuple[list[StagedBlock], int]:
    """Blocks of documents become blocks of rows cut from the one stream over all of them, one short row in all.

    A row belongs to the block in which it starts, and takes what it lacks from the head of those that follow.
    Also returns how many documents were cut.
    """
    result = []
    split = 0
    starts = offsets_of(np.array([block.tokens for block in blocks], np.int64)).tolist()
    for i, block in enumerate(blocks):
        begin = -starts[i] % max_length
        source = block.reader().take(block.rows)
        places = starts[i] + source.row_offsets
        split += int((places[:-1] // max_length != (places[1:] - 1) // max_length).sum())
        if begin < block.tokens:
            overhang = -(block.tokens - begin) % max_length
            source = concatenate([source, *_head(blocks[i + 1 :], block.first_doc, overhang)])
            stops = source.segments["length"].copy()
            plan = cut_stream(stops, max_length, begin=begin, end=block.tokens)
            if shuffle:
                plan = plan.take_rows(generator(seed, Stream.ROWS, *block.key).permutation(plan.rows))
            folder = block.folder.with_name(block.folder.name + "-rows")
            write_block(source, plan, stops, folder)
            masked = source.trained is not None
            result.append(replace(block, folder=folder, rows=plan.rows, tokens=plan.tokens, masked=masked))
    return result, split


def _head(blocks: Sequence[StagedBlock], first_doc: int, tokens: int) -> Iterator[Rows]:
    """The first documents of the blocks that follow, until they hold so many tokens. Ordinals as from `first_doc`."""
    for block in blocks:
        reader, left = block.reader(), block.rows
        while tokens > 0 and left:
            rows = reader.take(min(HEAD_ROWS, left))
            rows.segments["doc"] += block.first_doc - first_doc
            yield rows
            tokens -= len(rows.tokens)
            left -= len(rows)


def write_shards(
    folder: Path,
    blocks: Sequence[StagedBlock],
    layout: Layout,
    output: Output,
    schema: pa.Schema,
    seed: int,
    order: str,
) -> tuple[list[ShardFile], Totals]:
    """Writes all rows to `folder`/data. Returns the shards, and the totals that only the final columns know."""
    data = folder / DATA
    data.mkdir()
    rows = sum(block.rows for block in blocks)
    tokens = sum(block.tokens for block in blocks)
    per_shard = output.rows_per_shard or math.ceil(rows / max(1, round(tokens / SHARD_TOKENS)))
    per_group = max(1, GROUP_TOKENS * rows // tokens)
    shard_groups = [_parts(n, per_group) for n in _parts(rows, per_shard)]
    groups = _merged(blocks, [n for part in shard_groups for n in part], seed, order)
    shards: list[ShardFile] = []
    totals = Totals()
    for index, sizes in enumerate(shard_groups):
        name = shard_name(output.split, index, len(shard_groups), FORMATS[output.file_format])
        with ShardWriter(data / name, schema, output.file_format, output.compression) as writer:
            write = partial(_write_group, writer, layout=layout, schema=schema)
            # Closed before the writer is, however this ends: the thread must not write to a closed file.
            with closing(
                ordered_ahead(write, islice(groups, len(sizes)), threads=1, ahead=QUEUE, wait=True)
            ) as written:
                totals = sum(written, totals)
        shards.append(writer.result(f"{DATA}/{name}"))
    return shards, totals


def _parts(total: int, size: int) -> list[int]:
    """[size, size, ..., rest]"""
    return [min(size, total - start) for start in range(0, total, size)]


def _merged(blocks: Sequence[StagedBlock], sizes: Sequence[int], seed: int, order: str) -> Iterator[Rows]:
    """Row groups of the final order, with ordinals counted over the whole input."""
    counts = [block.rows for block in blocks]
    draws = shuffled(counts, sizes, generator(seed, Stream.MERGE)) if order == "shuffle" else in_order(counts, sizes)
    readers = [block.reader() for block in blocks]
    for taken, arrangement in draws:
        parts = []
        for i in np.flatnonzero(taken).tolist():
            part = readers[i].take(int(taken[i]))
            part.segments["doc"] += blocks[i].first_doc
            parts.append(part)
        yield concatenate(parts).take(arrangement)


def _write_group(writer: ShardWriter, rows: Rows, layout: Layout, schema: pa.Schema) -> Totals:
    values = columns(rows, layout)
    writer.write(record_batch(values.lists, values.numbers, schema))
    return Totals(
        rows=len(rows),
        segments=len(rows.segments),
        placed_tokens=len(rows.tokens),
        loss_tokens=int(values.numbers["loss_tokens"].sum(dtype=np.int64)),
        attention_cost=int(values.numbers["attention_cost"].sum()),
        max_seqlen=int(values.numbers["max_seqlen"].max()),
    )
