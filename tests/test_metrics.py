"""What no packing can go below, against the definition, against optimal packings, and against real plans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packer.lengths import Histogram
from packer.metrics import efficiency, lower_bound, packing_bound
from packer.packing import load


@st.composite
def pieces(draw: st.DrawFn, longest: int = 60, size: int = 40) -> tuple[list[int], int]:
    """Lengths of at most max_length, often near its half, third and whole: where the bound has its steps."""
    max_length = draw(st.integers(1, longest))
    near = [max_length // n + extra for n in (1, 2, 3) for extra in (-1, 0, 1)]
    length = st.sampled_from([n for n in near if 1 <= n <= max_length] or [1]) | st.integers(1, max_length)
    return draw(st.lists(length, min_size=1, max_size=size)), max_length


def slow_bound(lengths: list[int], max_length: int) -> int:
    """L2 as Martello and Toth wrote it: every alpha from 0 to half, one after another."""
    best = 0
    for alpha in range(max_length // 2 + 1):
        alone = [n for n in lengths if n > max_length - alpha]
        large = [n for n in lengths if max_length - alpha >= n and 2 * n > max_length]
        small = [n for n in lengths if 2 * n <= max_length and n >= alpha]
        beyond = sum(small) - (len(large) * max_length - sum(large))
        best = max(best, len(alone) + len(large) + max(0, -(-beyond // max_length)))
    return best


def optimum(lengths: list[int], max_length: int) -> int:
    """The fewest rows, by trying every row for every piece, longest first."""
    ordered = sorted(lengths, reverse=True)
    best = len(ordered)

    def place(i: int, rooms: list[int]) -> None:
        nonlocal best
        if len(rooms) >= best:
            return
        if i == len(ordered):
            best = len(rooms)
            return
        for room in set(rooms):
            if room >= ordered[i]:
                row = rooms.index(room)
                place(i + 1, [*rooms[:row], room - ordered[i], *rooms[row + 1 :]])
        place(i + 1, [*rooms, max_length - ordered[i]])

    place(0, [])
    return best


def bound(lengths: list[int], max_length: int) -> int:
    return packing_bound(Histogram.of(np.array(lengths, np.int32)), max_length)


@given(pieces())
@example(([6] * 5, 10))
@example(([1], 1))
@example(([5, 5, 5, 6, 4], 10))
@example(([4, 4, 4, 7, 7], 11))
def test_packing_bound_is_the_definition(case: tuple[list[int], int]) -> None:
    assert bound(*case) == slow_bound(*case)


@given(pieces(longest=20, size=8))
def test_packing_bound_is_at_most_the_optimum(case: tuple[list[int], int]) -> None:
    lengths, max_length = case
    best = optimum(lengths, max_length)
    assert lower_bound(sum(lengths), max_length) <= bound(lengths, max_length) <= best <= 2 * bound(lengths, max_length)


@given(pieces(longest=5000, size=300))
def test_packing_bound_is_between_the_tokens_and_every_plan(case: tuple[list[int], int]) -> None:
    lengths, max_length = case
    array = np.array(lengths, np.int32)
    rows = [load(name)(array, max_length, rng=np.random.default_rng(0)).rows for name in ("bfd", "ffd", "first-fit")]
    assert lower_bound(sum(lengths), max_length) <= bound(lengths, max_length) <= min(rows)


def test_packing_bound_knows_pieces_that_cannot_share() -> None:
    assert bound([6] * 1000, 10) == 1000, "not the 600 rows that the tokens alone would fill"
    assert bound([6] * 1000 + [5] * 10, 10) == 1005, "the halves have only each other"
    assert bound([], 10) == 0


def test_packing_bound_of_many_pieces() -> None:
    """From counts alone: no more work than for few."""
    histogram = Histogram.of(np.array([300, 700, 701]), np.array([10**12, 10**12, 10**12]))
    assert packing_bound(histogram, 1000) == 2 * 10**12
    assert packing_bound(histogram, 1400) == 3 * 10**12 // 2, "701 has no room for 700"


@pytest.mark.parametrize(
    ("tokens", "max_length", "rows"), [(0, 8, 0), (1, 8, 1), (8, 8, 1), (9, 8, 2), (10**30, 1, 10**30)]
)
def test_lower_bound(tokens: int, max_length: int, rows: int) -> None:
    assert lower_bound(tokens, max_length) == rows


def test_efficiency() -> None:
    assert efficiency(6, 2, 4) == 0.75
    assert efficiency(0, 0, 4) == 0.0
