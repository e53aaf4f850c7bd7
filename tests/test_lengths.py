"""Histograms against lists of the same lengths; percentiles against NumPy, to the last bit."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packer.lengths import DENSE, Histogram, exact_sum

LONGEST = 2**31 - 1
length = st.integers(0, 12) | st.integers(0, 3000) | st.integers(DENSE - 3, DENSE + 40) | st.integers(0, LONGEST)
lists = st.lists(length, max_size=60)
dtypes = st.sampled_from([np.int32, np.int64])


def naive(lengths: list[int]) -> dict[int, int]:
    return dict(sorted(Counter(n for n in lengths if n).items()))


def as_dict(histogram: Histogram) -> dict[int, int]:
    assert histogram.lengths.dtype == histogram.counts.dtype == np.int64
    return dict(zip(histogram.lengths.tolist(), histogram.counts.tolist(), strict=True))


def bits(values: list[float]) -> list[bytes]:
    return [struct.pack("<d", value) for value in values]


# --- counting ---------------------------------------------------------------------------------------------------------


@given(lists, dtypes)
@example([], np.int32)
@example([0, 0], np.int64)
@example([LONGEST, 1, LONGEST], np.int32)
@example([DENSE - 1, DENSE, DENSE + 1], np.int32)
def test_counts_lengths(lengths: list[int], dtype: type) -> None:
    array = np.array(lengths, dtype)
    found = Histogram.of(array)
    expected = naive(lengths)
    assert list(as_dict(found).items()) == list(expected.items()), "ascending"
    assert array.tolist() == lengths, "the lengths are the caller's"
    assert found.documents == sum(expected.values())
    assert found.tokens == sum(lengths)
    assert found.squares == sum(n * n for n in lengths)


@given(st.lists(st.tuples(length, st.integers(0, 1 << 40)), max_size=30))
@example([(5, 1), (5, 2), (0, 9), (7, 0)])
def test_counts_lengths_with_their_counts(pairs: list[tuple[int, int]]) -> None:
    expected: Counter[int] = Counter()
    for n, count in pairs:
        expected[n] += count
    lengths, counts = np.array(pairs, np.int64).reshape(-1, 2).T
    found = Histogram.of(lengths, counts)
    assert as_dict(found) == {n: count for n, count in sorted(expected.items()) if n and count}
    assert found.documents == sum(count for n, count in pairs if n)
    assert found.tokens == sum(n * count for n, count in pairs), "beyond int64 too"
    assert found.squares == sum(n * n * count for n, count in pairs)


@given(st.lists(lists, max_size=5))
def test_merging_is_counting_all_at_once(parts: list[list[int]]) -> None:
    merged = Histogram.of(np.empty(0, np.int32))
    for part in parts:
        merged = merged.merge(Histogram.of(np.array(part, np.int32)))
    assert as_dict(merged) == naive([n for part in parts for n in part])


def test_sums_beyond_int64_are_exact() -> None:
    found = Histogram.of(np.array([LONGEST, 3]), np.array([1 << 40, 1]))
    assert found.tokens == (LONGEST << 40) + 3
    assert found.squares == (LONGEST * LONGEST << 40) + 9
    assert found.longer_than(3) == (1 << 40, (LONGEST - 3) << 40)


@given(st.lists(st.tuples(*[st.integers(0, 2**62)] * 3), max_size=8), st.integers(1, 3))
def test_exact_sums(rows: list[tuple[int, int, int]], factors: int) -> None:
    arrays = [np.array([row[i] for row in rows], np.int64) for i in range(factors)]
    expected = 0
    for row in rows:
        product = 1
        for value in row[:factors]:
            product *= value
        expected += product
    assert exact_sum(*arrays) == expected


# --- questions --------------------------------------------------------------------------------------------------------


@given(lists.filter(any))
def test_at_gives_the_sorted_lengths(lengths: list[int]) -> None:
    histogram = Histogram.of(np.array(lengths, np.int32))
    ordered = sorted(n for n in lengths if n)
    assert histogram.at(np.arange(len(ordered))).tolist() == ordered
    assert histogram.at(np.array([len(ordered) - 1, 0])).tolist() == [ordered[-1], ordered[0]]


@given(lists, length)
@example([5], 5)
@example([5], 4)
def test_longer_than(lengths: list[int], limit: int) -> None:
    long = [n for n in lengths if n > limit]
    expected = (len(long), sum(long) - limit * len(long))
    assert Histogram.of(np.array(lengths, np.int32)).longer_than(limit) == expected


# --- percentiles ------------------------------------------------------------------------------------------------------

wanted = [0.0, 50.0, 90.0, 95.0, 99.0, 100.0]
quantiles = st.lists(st.floats(0, 100), max_size=6).map(lambda more: wanted + more)


def agree(array: np.ndarray, asked: list[float]) -> None:
    expected = [float(np.percentile(array, q)) for q in asked]
    assert bits(Histogram.of(array).percentiles(asked)) == bits(expected)
    assert bits(np.percentile(array, asked).tolist()) == bits(expected)


@given(st.lists(st.integers(1, LONGEST) | st.integers(1, 2000), min_size=1, max_size=40), dtypes, quantiles)
@example([1], np.int32, [])
@example([1, LONGEST], np.int32, [33.3, 66.6, 49.999999999999])
def test_percentiles_of_few_lengths(lengths: list[int], dtype: type, asked: list[float]) -> None:
    agree(np.array(lengths, dtype), asked)


@given(
    st.integers(1, 2000),
    st.sampled_from([3, 100, 5000, 1 << 21, LONGEST]),
    st.integers(0, 2**32 - 1),
    dtypes,
    quantiles,
)
def test_percentiles_of_many_lengths(size: int, longest: int, seed: int, dtype: type, asked: list[float]) -> None:
    agree(np.random.default_rng(seed).integers(1, longest, size, dtype=dtype, endpoint=True), asked)


def test_percentiles_to_the_last_bit() -> None:
    """Lengths far apart, where interpolating from the lower side only gives another double now and then."""
    rng = np.random.default_rng(5)
    differ = 0
    for size in range(1, 300):
        array = np.ceil(np.exp(rng.uniform(0, 20, size))).astype(np.int64)
        asked = [*wanted, *rng.uniform(0, 100, 4).tolist()]
        agree(array, asked)
        for q in asked:
            below, share = divmod((size - 1) * (q / 100), 1)
            low, high = np.sort(array)[[int(below), min(int(below) + 1, size - 1)]].tolist()
            differ += low + (high - low) * share != np.percentile(array, q)
    assert differ > 20, "these lengths tell the two apart"


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_smallest_mean_and_greatest(dtype: type) -> None:
    array = np.random.default_rng(1).integers(1, LONGEST, 2000, dtype=dtype)
    found = Histogram.of(array)
    assert (found.lengths[0], found.lengths[-1]) == (array.min(), array.max())
    assert found.tokens / found.documents == sum(array.tolist()) / len(array)
