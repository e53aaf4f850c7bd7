"""Batches of every kind against slow ones, made document by document from the same random numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packer.batching import WINDOW, Batches, bucketed, dynamic, token_budget, token_sum

Lists = list[list[int]]  # documents of each batch
lists = st.lists(st.integers(1, 30) | st.integers(1, 4000) | st.just(2**31 - 1), max_size=260)
sizes = st.integers(1, 5)
seeds = st.integers(0, 2**32 - 1)
budgets = st.integers(1, 200) | st.integers(1, 2**33)


def as_lists(batches: Batches, documents: int) -> Lists:
    """After the checks that hold for all batches: no document is missing, none twice, no batch empty."""
    assert batches.documents.dtype == batches.offsets.dtype == np.int64
    assert sorted(batches.documents.tolist()) == list(range(documents))
    bounds = batches.offsets.tolist()
    assert (bounds[0], bounds[-1], len(batches)) == (0, documents, len(bounds) - 1)
    found = [batches.documents[a:b].tolist() for a, b in pairwise(bounds)]
    assert all(found)
    return found


def chunked(order: list[int], size: int) -> Lists:
    return [order[i : i + size] for i in range(0, len(order), size)]


def windows(lengths: list[int], batch_size: int, rng: np.random.Generator) -> Lists:
    """A random order in windows, each longest first; equal ones stay in the random order."""
    order = rng.permutation(len(lengths)).tolist()
    return [sorted(window, key=lambda doc: -lengths[doc]) for window in chunked(order, WINDOW * batch_size)]


def reordered(batches: Lists, rng: np.random.Generator) -> Lists:
    return [batches[i] for i in rng.permutation(len(batches)).tolist()]


def slow_dynamic(lengths: list[int], batch_size: int, rng: np.random.Generator) -> Lists:
    return chunked(rng.permutation(len(lengths)).tolist(), batch_size)


def slow_bucketed(lengths: list[int], batch_size: int, rng: np.random.Generator) -> Lists:
    ordered = [doc for window in windows(lengths, batch_size, rng) for doc in window]
    return reordered(chunked(ordered, batch_size), rng)


def slow_token_budget(
    lengths: list[int], batch_size: int, budget: int, multiple: int, rng: np.random.Generator
) -> Lists:
    """As many as fit; a batch does not go on into the next window."""
    batches: Lists = []
    for window in windows(lengths, batch_size, rng):
        batches.append([])
        for doc in window:
            width = -(-lengths[(batches[-1] or [doc])[0]] // multiple) * multiple
            if batches[-1] and width * (len(batches[-1]) + 1) > budget:
                batches.append([])
            batches[-1].append(doc)
    return reordered(batches, rng)


def slow_token_sum(lengths: list[int], budget: int, rng: np.random.Generator) -> Lists:
    batches: Lists = []
    for doc in rng.permutation(len(lengths)).tolist():
        if not batches or sum(lengths[d] for d in batches[-1]) + lengths[doc] > budget:
            batches.append([])
        batches[-1].append(doc)
    return batches


@given(lists, sizes, seeds)
@example([], 3, 0)
@example([9], 3, 0)
@example([5] * 160, 1, 0)
def test_dynamic_and_bucketed(lengths: list[int], batch_size: int, seed: int) -> None:
    array = np.array(lengths, np.int32)
    for make, slow in ((dynamic, slow_dynamic), (bucketed, slow_bucketed)):
        found = as_lists(make(array, batch_size, np.random.default_rng(seed)), len(lengths))
        assert found == slow(lengths, batch_size, np.random.default_rng(seed))
        assert sorted(map(len, found))[1:] == [batch_size] * (len(found) - 1), "all but one are full"
    assert array.tolist() == lengths, "the lengths are the caller's"


@given(lists, sizes, budgets, st.integers(1, 8), seeds)
@example([], 3, 10, 1, 0)
@example([9], 3, 8, 1, 0)
@example([9] * 7, 1, 18, 4, 0)
def test_token_budget(lengths: list[int], batch_size: int, budget: int, multiple: int, seed: int) -> None:
    lengths = [min(n, 2**31 - 9) for n in lengths]
    array = np.array(lengths, np.int32)
    made = token_budget(array, batch_size, budget, multiple, np.random.default_rng(seed))
    found = as_lists(made, len(lengths))
    assert found == slow_token_budget(lengths, batch_size, budget, multiple, np.random.default_rng(seed))
    for batch in found:
        width = -(-max(lengths[doc] for doc in batch) // multiple) * multiple
        assert len(batch) == 1 or len(batch) * width <= budget


@given(lists, budgets, seeds)
@example([], 10, 0)
@example([9], 8, 0)
@example([3, 3, 4], 10, 0)
def test_token_sum(lengths: list[int], budget: int, seed: int) -> None:
    array = np.array(lengths, np.int32)
    found = as_lists(token_sum(array, budget, np.random.default_rng(seed)), len(lengths))
    assert found == slow_token_sum(lengths, budget, np.random.default_rng(seed))
    assert all(len(batch) == 1 or sum(lengths[doc] for doc in batch) <= budget for batch in found)


MAKERS: dict[str, Callable[[np.ndarray, np.random.Generator], Batches]] = {
    "dynamic": lambda lengths, rng: dynamic(lengths, 4, rng),
    "bucketed": lambda lengths, rng: bucketed(lengths, 4, rng),
    "token_budget": lambda lengths, rng: token_budget(lengths, 4, 400, 8, rng),
    "token_sum": lambda lengths, rng: token_sum(lengths, 400, rng),
}


@pytest.mark.parametrize("name", MAKERS)
def test_seeds_decide(name: str) -> None:
    lengths = np.random.default_rng(0).integers(1, 300, 1000, dtype=np.int32)
    first, again, other = (MAKERS[name](lengths, np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert first.documents.tolist() == again.documents.tolist()
    assert first.offsets.tolist() == again.offsets.tolist()
    assert first.documents.tolist() != other.documents.tolist()


def test_batches_of_like_lengths_hold_less_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 3000, 5000, dtype=np.int32)

    def padded(batches: Batches) -> int:
        return sum(len(batch) * int(lengths[batch].max()) for batch in as_lists(batches, len(lengths)))

    shuffled = padded(dynamic(lengths, 8, np.random.default_rng(0)))
    assert padded(bucketed(lengths, 8, np.random.default_rng(0))) < 0.6 * shuffled


def test_taking_batches_in_another_order() -> None:
    batches = Batches(np.array([4, 2, 0, 1, 3]), np.array([0, 2, 3, 5]))
    assert as_lists(batches.take(np.array([2, 0, 1])), 5) == [[1, 3], [4, 2], [0]]
