"""Strategies beside one another: the same documents packed by each, and what the finished rows are like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.clock import now
from benchmarks.inputs import SEED
from packer import manifest
from packer.cli import cli
from packer.manifest import Manifest
from packer.packing import SIMILARITY_THRESHOLD
from packer.plan import Int64Array, offsets_of
from packer.pricing.ranks import Steps
from packer.remote import place
from packer.similarity.likeness import Similarity, measured
from packer.similarity.tfidf import vectors_of
from packer.similarity.vectors import Int8Array

RANKS = (8, 64)
CONTENDERS = {
    "none": ["--strategy", "none"],
    "wrapped": ["--strategy", "wrapped"],
    "first-fit": ["--strategy", "first-fit"],
    "ffd": ["--strategy", "ffd"],
    "bfd": [],
    "optimal": ["--strategy", "optimal"],
    "semantic": ["--strategy", "semantic"],
    "bfd --equalize attention": ["--equalize", "attention"],
    "bfd --order balanced": ["--order", "balanced", "--world-size", str(RANKS[-1])],
}
TOPICS, TOPIC_TOKENS, COMMON_TOKENS = 40, 1000, 5000  # of the made-up documents: half of their tokens are the topic's
SHORTEST, LONGEST = 0.26, 0.45  # of max_length


@dataclass(frozen=True)
class Documents:
    """What all strategies are given. vectors: int8 (n, d); numbers: int64 (n,), as rows name them, rising; attention:
    sum of squared lengths of the documents, cut where max_length makes it necessary."""

    vectors: Int8Array
    numbers: Int64Array
    attention: int
    longer: int  # than max_length


@dataclass(frozen=True)
class Figures:
    """Of one strategy. seconds: of processor time, from token ids to the finished data set; attention: part of that of
    the documents that is left; busiest: by ranks, None with less than a step; in_row, near: similarity and pairs of
    near-duplicates, None where no two documents share a row."""

    rows: int
    full: float
    cut: int
    attention: float
    seconds: float
    busiest: dict[int, float | None]
    in_row: float | None
    near: float | None


def write_uniform(path: Path, count: int, max_length: int) -> None:
    """Parquet of token ids: lengths of 0.26 to 0.45 of max_length, so that only the right three fill a row."""
    rng = np.random.default_rng(SEED)
    lengths = rng.integers(int(SHORTEST * max_length), int(LONGEST * max_length) + 1, count)
    topic = np.repeat(rng.integers(0, TOPICS, count), lengths)
    own = rng.random(len(topic)) < 0.5
    drawn = rng.zipf(1.3, len(topic))
    ids = np.where(own, COMMON_TOKENS + topic * TOPIC_TOKENS + drawn % TOPIC_TOKENS, drawn % COMMON_TOKENS)
    lists = pa.ListArray.from_arrays(pa.array(offsets_of(lengths).astype(np.int32)), pa.array(ids.astype(np.int32)))
    pq.write_table(pa.table({"input_ids": lists}), path)


def pack(source: Path, out: Path, options: Sequence[str]) -> Manifest:
    cli.main(["pack", str(source), "--out", str(out), "--overwrite", "--quiet", *options], standalone_mode=False)
    return manifest.load(place(out))


def columns_of(out: Path, found: Manifest, names: Sequence[str]) -> pa.Table:
    """Of all rows, in stored order."""
    return pa.concat_tables([pq.read_table(out / shard.path, columns=list(names)) for shard in found.shards])


def flat(table: pa.Table, name: str) -> NDArray[Any]:
    return np.asarray(table[name].combine_chunks().flatten())


def documents_of(out: Path, found: Manifest) -> Documents:
    """Put together from any packing of them that leaves nothing out."""
    table = columns_of(out, found, ["input_ids", "seq_lengths", "doc_ids", "doc_starts"])
    lengths, doc = flat(table, "seq_lengths").astype(np.int64), flat(table, "doc_ids")
    order = np.lexsort((flat(table, "doc_starts"), doc))
    shift = offsets_of(lengths)[:-1][order] - offsets_of(lengths[order])[:-1]
    ids = flat(table, "input_ids")[np.repeat(shift, lengths[order]) + np.arange(lengths.sum())]
    numbers, firsts = np.unique(doc[order], return_index=True)
    whole = np.add.reduceat(lengths[order], firsts)
    full, rest = np.divmod(whole, found.max_length)
    attention = int((full * found.max_length**2 + rest**2).sum())
    longer = int((whole > found.max_length).sum())
    return Documents(vectors_of(ids, offsets_of(whole)), numbers, attention, longer)


def figures_of(out: Path, found: Manifest, documents: Documents, seconds: float) -> Figures:
    table = columns_of(out, found, ["doc_ids", "num_tokens", "attention_cost"])
    tokens, cost = (np.asarray(table[name]).astype(np.int64) for name in ("num_tokens", "attention_cost"))
    busiest: dict[int, float | None] = {}
    for ranks in RANKS:
        steps = Steps(ranks, None)
        steps.add(tokens, cost)
        busiest[ranks] = steps.attention[0] if steps.attention else None
    segments = np.asarray(table["doc_ids"].combine_chunks().value_lengths()).astype(np.int64)
    doc = np.searchsorted(documents.numbers, flat(table, "doc_ids"))
    rng = np.random.default_rng(SEED)
    pairs = measured(documents.vectors, doc, offsets_of(segments), SIMILARITY_THRESHOLD, rng)
    likeness = Similarity.of(pairs, "tokens", SIMILARITY_THRESHOLD)
    return Figures(
        rows=found.totals.rows,
        full=found.efficiency,
        cut=found.totals.split_documents,
        attention=found.totals.attention_cost / documents.attention,
        seconds=seconds,
        busiest=busiest,
        in_row=likeness.in_row,
        near=pairs.near if pairs.compared else None,
    )


def measure(source: Path, options: Sequence[str], max_length: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Each strategy in turn, `rounds` times, all from the token ids of one packing. options: how to read `source`."""
    length = ["--max-length", str(max_length)]
    given, out = folder / "given", folder / "out"
    found = pack(source, given, [*options, *length])
    documents = documents_of(given, found)
    pack(given, out, length)  # what is imported at the first run is not packing
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    figures = {}
    for turn in range(rounds):
        for name, own in CONTENDERS.items():
            start = now()
            packed = pack(given, out, [*length, *own])
            seconds[name].append((now() - start).cpu)
            if turn == rounds - 1:
                figures[name] = figures_of(out, packed, documents, min(seconds[name]))
    return {"totals": found.totals, "bound": found.lower_bound, "longer": documents.longer, "figures": figures}
