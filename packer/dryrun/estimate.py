"""From a sample to the whole input.

What a stored byte holds is a ratio of sums over the pieces; its error is twice the standard error of that ratio, so the
truth lies within it about 19 times of 20, as far as the pieces are like what lies between them. There is no error where
everything was read. Rows are planned, by the strategy itself, of documents drawn from the sample.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from packer import attempts, corpus, manifest, stored
from packer.dryrun import sample as sampling
from packer.dryrun.sample import Sample
from packer.errors import InputError
from packer.finish import Output
from packer.interleave import Stream, generator
from packer.job import Job
from packer.manifest import Manifest
from packer.packing import by_length, overlong
from packer.plan import Int32Array
from packer.planning import strategy_of
from packer.remote import Place
from packer.running import BYTES_A_TOKEN
from packer.schema import Layout
from packer.shards import ZSTD_LEVEL
from packer.windowing import coverage

DRY_EFFORT = 5  # of optimal
PLANNED = 50_000  # documents of which rows are made
SEGMENT_BYTES, ROW_BYTES = 24, 16  # staged
SEGMENT_COLUMNS, ROW_COLUMNS = 28, 24  # bytes in a shard: of a segment's numbers, and of a row's
POSITION_BYTES = 0.03  # a token, compressed: they rise by one
COPYING = 2e-8  # seconds a token to put it where it belongs, measured
ALONE = 0.25  # relative error taken where there is one piece, which does not tell how much others would differ
MACHINE = 0.3  # how far time and disk may be off for other reasons than the sample, measured on several inputs


@dataclass(frozen=True)
class Figure:
    """An estimate, and how far off it may be. None: the input does not say how much it holds."""

    value: int | None
    error: int | None

    @classmethod
    def of(cls, value: float, ratio: float) -> Figure:
        return cls(round(value), round(value * ratio))


@dataclass(frozen=True)
class Estimate:
    """memory_bytes: of a process at its peak; staging_bytes: on disk while the run lasts, beside data_bytes; seconds:
    at the speed measured just now on this machine; rows: of one packing, as in a run's summary, and at least so many
    where groups, which are not counted, part them; unknown: inputs that do not say how much they hold, which no figure
    but those of the sample counts; left_out: files of folders that would not be read."""

    inputs: int
    stored_bytes: int
    partitions: int
    sampled_documents: int
    sampled_tokens: int
    documents: Figure
    tokens: Figure
    rows: Figure
    memory_bytes: int
    staging_bytes: Figure
    data_bytes: Figure
    tokens_per_second: int | None
    seconds: Figure
    engine: str | None
    grouped: bool = False
    unknown: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def estimate(inputs: Sequence[str], out: Place, job: Job, layout: Layout, output: Output) -> Estimate:
    """Looks at INPUT for a second or two. Raises the PackerError that a run would raise before it begins."""
    found = corpus.find_sources(inputs, job.read, out=str(out))
    stored.check(found.sources, job.tokenizer.source if job.tokenizer else None, job.read)
    choice = None
    if job.tokenizer is not None:
        options, choice = attempts.choose(job.tokenizer, found.sources, job.read.limit)
        job = replace(job, tokenizer=options)
    ready = [manifest.load(Path(source.location).parent) for source in found.sources if source.format == "packed"]
    sources = [source for source in found.sources if source.format != "packed"]
    partitions = corpus.partition(sources, job.read) if sources else []
    sample = sampling.take(partitions, job)
    stored_bytes = sum(source.size for source in sources)
    documents, tokens, spreads = _scaled(sample, stored_bytes, job.read.limit)
    lengths = sample.lengths if len(sample.lengths) else _lengths_of(ready)
    if not len(lengths):
        raise InputError("there is nothing to estimate: the sample of INPUT holds no document")
    held = sum(one.whole.tokens for one in ready)
    share, masked = tokens / max(tokens + held, 1), any(piece.masked for piece in sample.pieces)
    masked = masked or any(one.whole.masked_documents for one in ready)
    documents, tokens = documents + sum(one.whole.documents for one in ready), tokens + held
    document_spread, spread = (ratio * share for ratio in spreads)
    rows, placed, segments = (count * tokens for count in _per_token(lengths, job))
    per_id, compressing = _compressed(sample.ids, output)
    data = placed * _bytes_a_token(layout, output, per_id, masked=masked) + SEGMENT_COLUMNS * segments
    staging = (5 if masked else 4) * tokens * job.epochs + SEGMENT_BYTES * segments + ROW_BYTES * rows
    speed = len(sample.ids) / sample.seconds if sample.seconds and job.tokenizer else None
    writing = placed * (compressing * (2 if layout.columns == "full" else 1) / _cores() + COPYING)
    seconds = (tokens - held) / speed if speed else tokens * COPYING
    sized = tokens > 0

    def figure(value: float, further: float = 0.0) -> Figure:
        return Figure.of(value, spread + further) if sized else Figure(None, None)

    return Estimate(
        inputs=len(found.sources),
        stored_bytes=stored_bytes + sum(shard.bytes for one in ready for split in one.splits for shard in split.shards),
        partitions=len(partitions) + sum(sum(n > 0 for n in one.partitions) for one in ready),
        sampled_documents=len(sample.lengths),
        sampled_tokens=len(sample.ids),
        documents=Figure.of(documents, document_spread) if sized else Figure(None, None),
        tokens=figure(tokens),
        rows=figure(rows / job.epochs, 0.01),
        memory_bytes=_memory(tokens if sized else job.block_tokens, job),
        staging_bytes=figure(staging, 0.01),
        data_bytes=figure(data + ROW_COLUMNS * rows, 0.1),
        tokens_per_second=round(speed) if speed else None,
        seconds=figure(seconds + writing, MACHINE),
        engine=choice.version if choice else None,
        grouped=job.read.group_field is not None,
        unknown=[source.path for source in sources if source.format in sampling.UNSIZED],
        left_out=found.left_out,
    )


def _scaled(sample: Sample, stored_bytes: int, limit: int | None) -> tuple[float, float, list[float]]:
    """Documents and tokens of all sources that say their size, and the relative error of either."""
    pieces = [piece for piece in sample.pieces if piece.size]
    if not pieces:
        return 0.0, 0.0, [0.0, 0.0]
    sizes = np.array([piece.size for piece in pieces])
    counts = np.array([[len(piece.lengths), len(piece.ids), piece.records] for piece in pieces], np.float64)
    read = sizes.sum()
    documents, tokens, records = counts.sum(0) * (1.0 if sample.whole else stored_bytes / read)
    spread = [0.0, 0.0]
    if not sample.whole and len(pieces) == 1:
        spread = [ALONE, ALONE]
    elif not sample.whole:
        sums = np.maximum(counts[:, :2].sum(0), 1)
        residuals = counts[:, :2] - sizes[:, None] * sums / read
        spread = (2 * np.sqrt((residuals**2).sum(0) * len(pieces) / (len(pieces) - 1)) / sums).tolist()
    if limit is not None and records > limit:
        documents, tokens = documents * limit / records, tokens * limit / records
    return float(documents), float(tokens), spread


def _lengths_of(ready: Sequence[Manifest]) -> Int32Array:
    """Documents of data sets, all taken to be as long as on average."""
    return np.array([max(1, round(one.whole.tokens / max(one.whole.documents, 1))) for one in ready], np.int32)


def _per_token(lengths: Int32Array, job: Job) -> tuple[float, float, float]:
    """Rows, tokens in rows and segments of all packings, for each token of the input."""
    rng = generator(job.seed, Stream.SAMPLE)
    most = max(1, min(PLANNED, int(job.block_tokens / lengths.mean())))
    drawn = lengths[rng.integers(0, len(lengths), most)]
    total = int(drawn.sum(dtype=np.int64))
    if job.window is not None:
        covered = coverage(drawn, job.max_length, job.window)
        return covered.windows / total, covered.tokens / total, covered.windows / total
    policy = "split" if job.overlong == "error" else job.overlong
    kept = overlong.keep(drawn, job.max_length, policy, min_tokens=job.min_tokens)
    pieces = overlong.split(kept, job.max_length)
    counted = -(-pieces.length // job.segment_multiple) * job.segment_multiple
    strategy = strategy_of(job.strategy, effort=DRY_EFFORT)
    plans = by_length.pack(strategy, counted, job.row_lengths, gaps=job.gaps, max_segments=job.max_segments, rng=rng)
    per = job.epochs / total
    return (
        sum(plan.rows for plan in plans) * per,
        int(pieces.length.sum(dtype=np.int64)) * per,
        sum(len(plan.length) for plan in plans) * per,
    )


def _compressed(ids: Int32Array, output: Output) -> tuple[float, float]:
    """Bytes a token id takes in a shard, and the seconds that compressing it takes."""
    if output.compression == "none" or not len(ids):
        return 4.0 if output.compression == "none" else 1.1, 0.0
    zstd = output.compression == "zstd"
    codec = pa.Codec(output.compression, compression_level=ZSTD_LEVEL if zstd else None)
    data = ids[: 4 << 20].tobytes()
    began = perf_counter()
    size = len(codec.compress(data, asbytes=True))
    return 4 * size / len(data), 4 * (perf_counter() - began) / len(data)


def _bytes_a_token(layout: Layout, output: Output, per_id: float, *, masked: bool) -> float:
    """Of the columns that have a number for each token."""
    if layout.columns == "compact":
        return per_id + (0.05 if masked else 0.0)
    return 2 * per_id + (4.0 if output.compression == "none" else POSITION_BYTES)


def _memory(tokens: float, job: Job) -> int:
    """This process as it is now, with its tokenizer, and a block at its peak."""
    unit = 1 if sys.platform == "darwin" else 1024
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return now + round(BYTES_A_TOKEN * min(job.block_tokens, tokens))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
