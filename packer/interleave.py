"""The global order of rows, in bounded memory: blocks shuffled one by one, then merged at random.

If each block's rows are in random order, and the sequence that says which block gives the next row is a random
arrangement of as many names of each block as it has rows, the merged order is a uniformly random permutation of all
rows. A chunk of it takes consecutive rows from each block, so reading goes forwards, a few rows at a time:

    block A = a2 a0 a1, block B = b1 b0; names B A A B A      merged: b1 a2 a0 b0 a1

Whole chunks are drawn at once: as many of the rows that are left as the chunk holds, and counted by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array

RUN = 32  # rows of like cost that stand together


class Stream(IntEnum):
    """Names of the random streams of a run, so that no two share numbers."""

    TIES = 0  # (partition, block): equal lengths in a plan
    ROWS = 1  # (partition, block): rows within a block
    SHARDS = 2  # which rows of each block go into which shard
    GROUPS = 3  # (shard): the order within it
    SAMPLE = 4  # documents that stand for all in a price
    RUNS = 6  # (shard): the order of runs of rows of like cost, or of steps
    BATCHES = 5  # (chunk): the order of training that a price assumes
    LIKENESS = 9  # (partition, block): the pairs of documents that are compared for the report


def generator(seed: int, stream: Stream, *key: int) -> np.random.Generator:
    """A generator of its own for each seed, stream and key."""
    return np.random.default_rng(np.random.SeedSequence([seed, stream, *key]))


def in_like_runs(cost: NDArray[np.integer], rng: np.random.Generator) -> Int64Array:
    """An order of these rows in which rows of like cost (n,) stand together: sorted, cut into runs, the runs shuffled.
    Ranks that take consecutive rows then have like work."""
    order = np.argsort(cost, kind="stable")
    runs = [order[start : start + RUN] for start in range(0, len(order), RUN)]
    return np.concatenate([runs[i] for i in rng.permutation(len(runs)).tolist()])


def shuffled(
    rows: Sequence[int], chunks: Sequence[int], rng: np.random.Generator
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """For each chunk: how many rows to read next from each block, int64 (blocks,), and the order in which to put what
    was read, int64 (chunk,). rows: rows of each block; chunks: rows of each chunk, which sum to the same."""
    left = np.array(rows, np.int64)
    for size in chunks:
        ends = np.cumsum(left)
        chosen = rng.choice(int(ends[-1]), size, replace=False, shuffle=False)
        counts = np.bincount(np.searchsorted(ends, chosen, side="right"), minlength=len(left))
        left -= counts
        yield counts, rng.permutation(size)


def in_order(rows: Sequence[int], chunks: Sequence[int]) -> Iterator[tuple[Int64Array, Int64Array]]:
    """The same for blocks one after another, rows as they are."""
    left = np.array(rows, np.int64)
    for size in chunks:
        before = np.cumsum(left) - left
        counts = np.clip(size - before, 0, left)
        left -= counts
        yield counts, np.arange(size)
