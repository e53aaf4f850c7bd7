"""The merged order of rows: complete, uniformly random, repeatable, and drawn without holding it in memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, permutations, repeat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.interleave import Stream, generator, in_order, shuffled
from packer.plan import Int64Array

Row = tuple[int, int]  # block, number in it
Draws = Iterator[tuple[Int64Array, Int64Array]]


def merged(blocks: Sequence[Sequence[Row]], draws: Draws) -> list[list[Row]]:
    """What each chunk holds, reading every block forwards."""
    readers = [iter(block) for block in blocks]
    chunks = []
    for counts, order in draws:
        taken = [row for reader, n in zip(readers, counts.tolist(), strict=True) for row in islice(reader, n)]
        assert sorted(order.tolist()) == list(range(len(taken)))
        chunks.append([taken[i] for i in order])
    assert not any(list(reader) for reader in readers), "rows left unread"
    return chunks


def as_blocks(rows: Sequence[int]) -> list[list[Row]]:
    return [[(block, row) for row in range(count)] for block, count in enumerate(rows)]


def whole_order(rows: Sequence[int], chunks: Sequence[int], seed: int) -> list[Row]:
    """The final order: blocks shuffled one by one, then merged."""
    blocks = [
        [(block, int(row)) for row in generator(seed, Stream.ROWS, 0, block).permutation(count)]
        for block, count in enumerate(rows)
    ]
    return [row for chunk in merged(blocks, shuffled(rows, chunks, generator(seed, Stream.GROUPS))) for row in chunk]


@st.composite
def sizes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Rows of each block, and rows of each chunk: the same sum, cut differently."""
    rows = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6))
    total = sum(rows)
    cuts = sorted(draw(st.sets(st.integers(1, total - 1)))) if total > 1 else []
    return rows, np.diff([0, *cuts, total]).tolist()


@pytest.mark.parametrize("name", ["shuffled", "in_order"])
@given(sizes(), st.integers(0, 1 << 40))
def test_every_row_once(name: str, case: tuple[list[int], list[int]], seed: int) -> None:
    rows, chunks = case
    draws = shuffled(rows, chunks, generator(seed, Stream.GROUPS)) if name == "shuffled" else in_order(rows, chunks)
    found = merged(as_blocks(rows), draws)
    assert [len(chunk) for chunk in found] == chunks
    assert sorted(row for chunk in found for row in chunk) == [row for block in as_blocks(rows) for row in block]


@given(sizes())
def test_in_order(case: tuple[list[int], list[int]]) -> None:
    rows, chunks = case
    found = merged(as_blocks(rows), in_order(rows, chunks))
    assert [row for chunk in found for row in chunk] == [row for block in as_blocks(rows) for row in block]


@pytest.mark.parametrize("chunks", [[4], [1, 3], [2, 2], [1, 1, 1, 1]])
@pytest.mark.parametrize("rows", [[1, 3], [2, 2], [1, 1, 2]])
def test_uniform(rows: list[int], chunks: list[int]) -> None:
    """All 24 orders of four rows equally often, whatever the blocks and chunks.

    Chi-square of 23 degrees of freedom: above 60 about once in 30,000 times; the seeds are fixed.
    """
    tries = 2400
    seen = Counter(tuple(whole_order(rows, chunks, seed)) for seed in range(tries))
    orders = list(permutations(row for block in as_blocks(rows) for row in block))
    assert sum(seen[order] for order in orders) == tries
    expected = tries / len(orders)
    assert sum((seen[order] - expected) ** 2 / expected for order in orders) < 60


@pytest.mark.parametrize("rows", [[1500, 500], [10] * 200, [1, 1998, 1]])
def test_rank_correlation_near_zero(rows: list[int]) -> None:
    """Neither does a row keep its place, nor does it stay beside its neighbour (streaming 796, webdataset 71)."""
    ranks = {row: rank for rank, row in enumerate(row for block in as_blocks(rows) for row in block)}
    order = [ranks[row] for row in whole_order(rows, [300] * 6 + [200], seed=5)]
    assert abs(np.corrcoef(order, np.arange(2000))[0, 1]) < 4 / np.sqrt(2000)
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 4 / np.sqrt(2000)


def test_seeds() -> None:
    orders = [tuple(whole_order([8, 4], [5, 7], seed)) for seed in range(30)]
    assert len(set(orders)) == 30
    assert orders == [tuple(whole_order([8, 4], [5, 7], seed)) for seed in range(30)]


def test_streams_share_no_numbers() -> None:
    keys = [(seed, stream, *key) for seed in (0, 1, 2) for stream in Stream for key in ((), (0, 1), (1, 0), (1, 1))]
    first = {generator(*key).integers(1 << 62) for key in keys}
    assert len(first) == len(keys)


@pytest.mark.parametrize("draw", [lambda rows, n: shuffled(rows, n, generator(0, Stream.GROUPS)), in_order])
def test_state_does_not_grow_with_the_rows(draw: Callable[..., Draws]) -> None:
    """Nine hundred million rows: what a chunk needs is all that is held."""
    list(islice(draw([60, 40], repeat(10)), 2))
    tracemalloc.start()
    try:
        counts = [taken for taken, _ in islice(draw([600_000_000, 300_000_000], repeat(1000)), 20)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [int(taken.sum()) for taken in counts] == [1000] * 20
    assert peak < 200_000


def test_more_than_a_billion_rows() -> None:
    counts, order = next(shuffled([1_500_000_000, 500_000_000], [1000], generator(0, Stream.GROUPS)))
    assert counts.sum() == len(order) == 1000
    assert abs(counts[0] - 750) < 5 * np.sqrt(1000 * 0.75 * 0.25)
