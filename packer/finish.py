"""Finalisation: what is known only when every partition is done. Row order, document ordinals, shards, checksums.

staged blocks ─▶ (windows, wrapped: packer.cutting) ─▶ merge at random ─▶ columns ─▶ shards
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

from packer.cutting import StagedBlock
from packer.interleave import RUN, Stream, generator, in_like_runs, in_order, shuffled
from packer.manifest import DATA, Totals, shard_name
from packer.plan import Int64Array, offsets_of
from packer.rows import Rows, attention_cost, columns, concatenate
from packer.schema import FORMATS, Layout
from packer.shards import ShardFile, ShardWriter, record_batch
from packer.stage import PartitionReport
from packer.staging import partition_folder
from packer.threads import ordered_ahead

GROUP_TOKENS = 500_000  # a row group: small enough to shuffle and to read at once, large enough to compress
SHARD_TOKENS = 64 << 20  # about 140 MB of Parquet
FEW_SHARDS, FEW_TOKENS = 8, 1 << 20  # a small set has so many shards, if each then has as many tokens


@dataclass(frozen=True)
class Output:
    """How shards are written. rows_per_shard None: equal shards of about SHARD_TOKENS."""

    split: str
    file_format: str
    compression: str
    rows_per_shard: int | None


def staged_blocks(folder: Path, reports: Sequence[PartitionReport], *, held: bool = False) -> list[StagedBlock]:
    """All blocks in input order, or those that are held out. folder: the one that holds a folder for each partition
    (see `partition_folder`)."""
    blocks = []
    first_docs = offsets_of(np.array([report.totals.records for report in reports], np.int64))
    for report, first_doc in zip(reports, first_docs.tolist(), strict=False):
        for index, block in enumerate(report.held.blocks if held else report.blocks):
            path = partition_folder(folder, report.index) / block.folder
            blocks.append(StagedBlock(path, (report.index, index), first_doc, block.rows, block.tokens, block.masked))
    return blocks


@dataclass(frozen=True)
class ShardTask:
    """One shard: rows starts[i] to starts[i] + counts[i] of block i, in the order that its own random stream gives."""

    index: int
    starts: Int64Array
    counts: Int64Array


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
    data.mkdir(exist_ok=True)
    rows = sum(block.rows for block in blocks)
    tokens = sum(block.tokens for block in blocks)
    per_shard = math.ceil(rows / _shard_count(rows, tokens))
    per_group = max(1, GROUP_TOKENS * rows // tokens)
    if order == "balanced":  # a run that ended early would put all after it out of step with the ranks
        per_shard, per_group = (-(-size // RUN) * RUN for size in (per_shard, per_group))
    sizes = _parts(rows, output.rows_per_shard or per_shard)
    stop = Event()

    def write(task: ShardTask) -> tuple[ShardFile, Totals]:
        name = shard_name(output.split, task.index, len(sizes), FORMATS[output.file_format])
        totals, runs = Totals(), generator(seed, Stream.RUNS, task.index)
        with ShardWriter(data / name, schema, output.file_format, output.compression) as writer:
            for group in _groups(blocks, task, per_group, seed, order):
                if order == "balanced":
                    group = group.take(in_like_runs(attention_cost(group, layout), runs))
                totals += _write_group(writer, group, layout, schema)
                if stop.is_set():
                    break
        return writer.result(f"{DATA}/{name}"), totals

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(len(sizes), cores + 1)  # one more: some wait for the disk
    tasks = _tasks(blocks, sizes, seed, order)
    with closing(ordered_ahead(write, tasks, threads=threads, ahead=threads + 1, abort=stop.set)) as written:
        results = list(written)
    return [shard for shard, _ in results], sum((totals for _, totals in results), Totals())


def _shard_count(rows: int, tokens: int) -> int:
    """Shards of about SHARD_TOKENS; of a small set a few, so that several readers find work."""
    return min(rows, max(1, round(tokens / SHARD_TOKENS), min(FEW_SHARDS, tokens // FEW_TOKENS)))


def _parts(total: int, size: int) -> list[int]:
    """[size, size, ..., rest]"""
    return [min(size, total - start) for start in range(0, total, size)]


def _tasks(blocks: Sequence[StagedBlock], sizes: Sequence[int], seed: int, order: str) -> Iterator[ShardTask]:
    starts = np.zeros(len(blocks), np.int64)
    draws = _draws([block.rows for block in blocks], sizes, generator(seed, Stream.SHARDS), order)
    for index, (counts, _) in enumerate(draws):
        yield ShardTask(index, starts.copy(), counts)
        starts += counts


def _groups(blocks: Sequence[StagedBlock], task: ShardTask, per_group: int, seed: int, order: str) -> Iterator[Rows]:
    """The shard's row groups, with ordinals counted over the whole input."""
    starts = task.starts.copy()
    sizes = _parts(int(task.counts.sum()), per_group)
    for counts, arrangement in _draws(task.counts.tolist(), sizes, generator(seed, Stream.GROUPS, task.index), order):
        parts = []
        for i in np.flatnonzero(counts).tolist():
            part = blocks[i].reader().read(int(starts[i]), int(counts[i]))
            part.segments["doc"] += blocks[i].first_doc
            parts.append(part)
        starts += counts
        yield concatenate(parts).take(arrangement)


def _draws(
    rows: Sequence[int], sizes: Sequence[int], rng: np.random.Generator, order: str
) -> Iterator[tuple[Int64Array, Int64Array]]:
    return in_order(rows, sizes) if order == "plan" else shuffled(rows, sizes, rng)


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
