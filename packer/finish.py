"""Finalisation: what is known only when every partition is done. Row order, document ordinals, shards, checksums.

staged blocks ─▶ (windows, wrapped: packer.cutting) ─▶ merge at random ─▶ columns ─▶ shards
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

from packer.balancing import Balance, Spreads
from packer.cutting import StagedBlock
from packer.errors import UsageError
from packer.interleave import RUN, Stream, generator, in_like_runs, in_order, shuffled
from packer.job import PartitionReport
from packer.manifest import DATA, Totals, shard_name
from packer.plan import Int64Array, offsets_of
from packer.rows import Rows, attention_cost, columns, concatenate
from packer.schema import FORMATS, Layout
from packer.shards import ShardFile, ShardWriter, record_batch
from packer.staging import partition_folder
from packer.threads import ordered_ahead

GROUP_TOKENS = 500_000  # a row group: small enough to shuffle and to read at once, large enough to compress
SHARD_TOKENS = 64 << 20  # about 140 MB of Parquet
FEW_SHARDS, FEW_TOKENS = 8, 1 << 20  # a small set has so many shards, if each then has as many tokens
BALANCED_TOKENS, BALANCED_RUNS = 16 << 20, 16  # what is sorted at once to balance steps: so much, but so many runs


@dataclass(frozen=True)
class Output:
    """How shards are written. rows_per_shard None: equal shards of about SHARD_TOKENS. balance: what the steps are to
    be that `--order balanced` stores; None: runs of like rows, for any ranks."""

    split: str
    file_format: str
    compression: str
    rows_per_shard: int | None
    balance: Balance | None = None

    def __post_init__(self) -> None:
        if self.balance and self.rows_per_shard and self.rows_per_shard % self.balance.step_rows:
            raise UsageError(
                f"--rows-per-shard {self.rows_per_shard} would cut steps in two: give a multiple of their "
                f"{self.balance.step_rows} rows (--world-size times --rows-per-batch)"
            )


@dataclass(frozen=True)
class Part:
    """Shards that are written together, one of several packings (`epoch`) and row lengths (`length`, from 0). first,
    count: the number of its first shard, and of how many that are numbered together."""

    epoch: int = 0
    length: int = 0
    first: int = 0
    count: int | None = None

    @property
    def key(self) -> tuple[int, ...]:
        """For random streams: nothing more for the first, which is all there is in most data sets."""
        return (self.epoch, self.length) if self.epoch or self.length else ()


@dataclass(frozen=True)
class Written:
    """totals: those that only the final columns know; spreads: of the ranks' work, where it was balanced."""

    shards: list[ShardFile] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    spreads: Spreads | None = None


def staged_blocks(folder: Path, reports: Sequence[PartitionReport], *, held: bool = False) -> list[StagedBlock]:
    """All blocks in input order, or those that are held out. folder: the one that holds a folder for each partition
    (see `partition_folder`)."""
    blocks = []
    first_docs = offsets_of(np.array([report.totals.records for report in reports], np.int64))
    for report, first_doc in zip(reports, first_docs.tolist(), strict=False):
        for index, block in enumerate(report.held.blocks if held else report.blocks):
            path = partition_folder(folder, report.index) / block.folder
            key, part = (report.index, index), (block.epoch, block.length)
            blocks.append(StagedBlock(path, key, first_doc, block.rows, block.tokens, block.masked, part=part))
    return blocks


@dataclass(frozen=True)
class ShardTask:
    """One shard: rows starts[i] to starts[i] + counts[i] of block i, in the order that its own random stream gives."""

    index: int
    starts: Int64Array
    counts: Int64Array


@dataclass(frozen=True)
class Sizes:
    """Rows of each shard, of what is ordered at once, and of each row group."""

    shards: list[int]
    window: int
    group: int

    @classmethod
    def of(cls, blocks: Sequence[StagedBlock], output: Output, order: str) -> Sizes:
        rows = sum(block.rows for block in blocks)
        tokens = sum(block.tokens for block in blocks)
        per_shard = math.ceil(rows / _shard_count(rows, tokens))
        group = window = max(1, GROUP_TOKENS * rows // tokens)
        if order == "balanced":  # a run that ended early would put all after it out of step with the ranks
            unit = output.balance.step_rows if output.balance else RUN
            group = window = -(-group // unit) * unit
            if output.balance:
                runs = max(BALANCED_RUNS * output.balance.world_size, BALANCED_TOKENS * rows // tokens)
                window = -(-runs // group) * group
                per_shard = max(per_shard, min(window, rows))  # several small ones would each have few runs
            per_shard = -(-per_shard // unit) * unit
        return cls(_parts(rows, output.rows_per_shard or per_shard), window, group)


def write_shards(
    folder: Path,
    blocks: Sequence[StagedBlock],
    layout: Layout,
    output: Output,
    schema: pa.Schema,
    seed: int,
    order: str,
    part: Part = Part(),
) -> Written:
    """Writes all rows to `folder`/data."""
    data = folder / DATA
    data.mkdir(exist_ok=True)
    sizes = Sizes.of(blocks, output, order)
    stop = Event()

    def write(task: ShardTask) -> Written:
        number = part.first + task.index
        name = shard_name(output.split, number, part.count or len(sizes.shards), FORMATS[output.file_format])
        totals, rng, spreads = Totals(), generator(seed, Stream.RUNS, task.index, *part.key), []
        with ShardWriter(data / name, schema, output.file_format, output.compression) as writer:
            for rows in _windows(blocks, task, sizes.window, seed, order, part):
                if order == "balanced":
                    rows, seen = _balanced(rows, layout, output.balance, rng)
                    spreads.append(seen)
                for start in range(0, len(rows), sizes.group):
                    group = rows
                    if len(rows) > sizes.group:
                        group = rows.take(np.arange(start, min(start + sizes.group, len(rows))))
                    totals += _write_group(writer, group, layout, schema)
                if stop.is_set():
                    break
        return Written([writer.result(f"{DATA}/{name}")], totals, Spreads.joined(spreads))

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(len(sizes.shards), cores + 1)  # one more: some wait for the disk
    tasks = _tasks(blocks, sizes.shards, seed, order, part)
    with closing(ordered_ahead(write, tasks, threads=threads, ahead=threads + 1, abort=stop.set)) as written:
        results = list(written)
    return Written(
        [shard for one in results for shard in one.shards],
        sum((one.totals for one in results), Totals()),
        Spreads.joined(one.spreads for one in results if one.spreads) if output.balance else None,
    )


def _balanced(rows: Rows, layout: Layout, balance: Balance | None, rng: np.random.Generator) -> tuple[Rows, Spreads]:
    """The rows in steps for these ranks, and how far the work of ranks differs; without ranks in like runs."""
    attention = attention_cost(rows, layout)
    if balance is None:
        return rows.take(in_like_runs(attention, rng)), Spreads(np.zeros(0), np.zeros(0))
    cost = balance.cost_of(np.diff(rows.row_offsets), attention)
    order = balance.order(cost, rng)
    return rows.take(order), Spreads(balance.spreads(cost[order]), balance.spreads(cost))


def _shard_count(rows: int, tokens: int) -> int:
    """Shards of about SHARD_TOKENS; of a small set a few, so that several readers find work."""
    return min(rows, max(1, round(tokens / SHARD_TOKENS), min(FEW_SHARDS, tokens // FEW_TOKENS)))


def _parts(total: int, size: int) -> list[int]:
    """[size, size, ..., rest]"""
    return [min(size, total - start) for start in range(0, total, size)]


def _tasks(
    blocks: Sequence[StagedBlock], sizes: Sequence[int], seed: int, order: str, part: Part
) -> Iterator[ShardTask]:
    starts = np.zeros(len(blocks), np.int64)
    draws = _draws([block.rows for block in blocks], sizes, generator(seed, Stream.SHARDS, *part.key), order)
    for index, (counts, _) in enumerate(draws):
        yield ShardTask(index, starts.copy(), counts)
        starts += counts


def _windows(
    blocks: Sequence[StagedBlock], task: ShardTask, at_once: int, seed: int, order: str, part: Part
) -> Iterator[Rows]:
    """The shard's rows, so many at once, with ordinals counted over the whole input."""
    starts = task.starts.copy()
    sizes = _parts(int(task.counts.sum()), at_once)
    rng = generator(seed, Stream.GROUPS, task.index, *part.key)
    for counts, arrangement in _draws(task.counts.tolist(), sizes, rng, order):
        parts = []
        for i in np.flatnonzero(counts).tolist():
            rows = blocks[i].reader().read(int(starts[i]), int(counts[i]))
            rows.segments["doc"] += blocks[i].first_doc
            parts.append(rows)
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
