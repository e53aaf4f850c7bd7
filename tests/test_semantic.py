"""Rows of like documents: each document once, groups apart, near-duplicates apart, at a bounded loss of fill."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.packing import bfd, semantic
from packer.packing.buckets import buckets
from packer.packing.grouped import rows_by_group
from packer.packing.walk import walk
from packer.plan import Plan
from packer.relating import planned
from packer.similarity import Traits
from packer.similarity.likeness import STEPS, measured
from packer.similarity.vectors import inverse_norms, pair_similarities, quantized

Case = tuple[np.ndarray, np.ndarray, np.ndarray]  # lengths, vectors, groups


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Vectors of which many are equal, opposite, or null."""
    count = draw(st.integers(1, 40))
    lengths = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    kinds = np.random.default_rng(0).integers(-3, 4, (6, 4))
    kinds[0] = 0
    kinds[1] = -kinds[2]
    chosen = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    groups = draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    return np.array(lengths, np.int32), quantized(kinds[chosen].astype(np.float64)), np.array(groups, np.int64)


def rows_of(plan: Plan) -> list[list[int]]:
    return [plan.doc[a:b].tolist() for a, b in pairwise(plan.row_offsets.tolist())]


@settings(max_examples=40)
@given(cases(), st.none() | st.integers(1, 4), st.booleans(), st.sampled_from([2, 5, 1024]), st.floats(0.01, 1))
def test_each_document_once(case: Case, max_segments: int | None, grouped: bool, bucket: int, threshold: float) -> None:
    lengths, vectors, groups = case
    traits = Traits(vectors, groups if grouped else None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(semantic, "BUCKET", bucket)
        options = {"max_segments": max_segments, "traits": traits, "threshold": threshold}
        plan = semantic.pack(lengths, 20, rng=np.random.default_rng(1), **options)
        again = semantic.pack(lengths, 20, rng=np.random.default_rng(1), **options)
    plan.validate(lengths, 20)
    rows = rows_of(plan)
    assert sorted(doc for row in rows for doc in row) == list(range(len(lengths)))
    assert plan.length.tolist() == lengths[plan.doc].tolist()
    assert max(map(len, rows)) <= (max_segments or 40)
    assert rows == rows_of(again)
    if grouped:
        assert all(len(set(groups[row].tolist())) == 1 for row in rows)
    best_fit = planned("bfd", lengths, 20, max_segments, np.random.default_rng(0), Traits(None, traits.groups), 0.9)
    assert plan.rows <= best_fit.rows * (1 + semantic.LOSS)


@given(cases(), st.none() | st.integers(1, 3), st.sampled_from(["bfd", "ffd", "first-fit", "semantic"]))
def test_groups_never_share_a_row(case: Case, max_segments: int | None, strategy: str) -> None:
    """Each group by itself, in as many rows as the strategy makes of it alone."""
    lengths, _, groups = case
    plan = planned(strategy, lengths, 20, max_segments, np.random.default_rng(0), Traits(None, groups), 0.9)
    plan.validate(lengths, 20)
    rows = rows_of(plan)
    assert sorted(doc for row in rows for doc in row) == list(range(len(lengths)))
    found: dict[int, int] = defaultdict(int)
    for row in rows:
        [group] = set(groups[row].tolist())
        found[group] += 1
    single = "bfd" if strategy == "semantic" else strategy
    for group, count in found.items():
        own = lengths[groups == group]
        assert count == planned(single, own, 20, max_segments, np.random.default_rng(0), None, 0.9).rows
    tokens = [int(lengths[groups == groups[row[0]]].sum()) for row in rows]
    assert tokens == sorted(tokens, reverse=True), "the largest group first"


def test_none_needs_no_groups() -> None:
    lengths = np.array([3, 2, 4], np.int32)
    plan = planned("none", lengths, 8, None, np.random.default_rng(0), Traits(None, np.array([1, 0, 1])), 0.9)
    assert rows_of(plan) == [[0], [1], [2]]


def test_a_million_small_groups() -> None:
    """Those that fit in a row cost nothing but their number."""
    lengths = np.full(1 << 20, 3, np.int32)
    called = []

    def one_row(documents: np.ndarray) -> np.ndarray:
        called.append(documents)
        return np.arange(len(documents))

    groups = np.arange(1 << 20) // 2
    groups[:4] = -1
    row = rows_by_group(one_row, lengths, groups, 8)
    assert [one.tolist() for one in called] == [[0, 1, 2, 3]]
    assert row.max() + 1 == 4 + (1 << 19) - 2


def naive_walk(
    alike: np.ndarray, lengths: list[int], max_length: int, max_segments: int, threshold: np.float32
) -> list[list[int]]:
    """One bucket, one document at a time."""
    left = sorted(range(len(lengths)), key=lambda doc: -lengths[doc])
    rows: list[list[int]] = []
    while left:
        row = rows[-1] if rows else None
        fits = []
        if row is not None and len(row) < max_segments:
            room = max_length - sum(lengths[doc] for doc in row)
            fits = [doc for doc in left if lengths[doc] <= room]
            fits = [doc for doc in fits if max(alike[other, doc] for other in row) <= threshold]
        if row is None or not fits:
            rows.append([left.pop(0)])
            continue
        total = {doc: np.float32(0) for doc in fits}
        for doc in fits:
            for other in row:
                total[doc] += alike[other, doc]
        chosen = max(fits, key=total.__getitem__)
        row.append(chosen)
        left.remove(chosen)
    return rows


@settings(max_examples=30)
@given(st.lists(cases(), min_size=1, max_size=4), st.none() | st.integers(1, 4), st.sampled_from([0.01, 0.5, 0.9, 1.0]))
def test_walk(parts: list[Case], max_segments: int | None, threshold: float) -> None:
    """Several buckets of different sizes at once, with batches of all and of one."""
    lengths = np.concatenate([part[0] for part in parts])
    vectors = np.concatenate([part[1] for part in parts])
    ends = np.cumsum([len(part[0]) for part in parts])
    members = np.split(np.arange(len(lengths)), ends[:-1])
    inverse = inverse_norms(vectors)
    for held in (1, 64 << 20):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("packer.packing.walk.BATCH_BYTES", held)
            row = walk(vectors, inverse, lengths, members, 20, max_segments, threshold)
        assert (row >= 0).all()
        seen: set[int] = set()
        for bucket in members:
            grid = np.meshgrid(bucket, bucket, indexing="ij")
            alike = pair_similarities(vectors, inverse, *(axis.ravel() for axis in grid)).reshape(grid[0].shape)
            wanted = naive_walk(alike, lengths[bucket].tolist(), 20, max_segments or 40, np.float32(threshold))
            found: dict[int, set[int]] = defaultdict(set)
            for place, number in enumerate(row[bucket].tolist()):
                found[number].add(place)
            assert [found[number] for number in sorted(found)] == [set(one) for one in wanted]
            assert not seen & set(found), "rows of two buckets have numbers of their own"
            seen |= set(found)


@given(cases(), st.integers(1, 9))
def test_buckets(case: Case, size: int) -> None:
    """All documents, in buckets that are at least half full."""
    _, vectors, _ = case
    documents = np.arange(len(vectors))[::-1]
    found = buckets(vectors, inverse_norms(vectors), documents, size, np.random.default_rng(0))
    assert sorted(np.concatenate(found).tolist()) == sorted(documents.tolist())
    sizes = [len(bucket) for bucket in found]
    assert max(sizes) <= size
    assert len(found) == 1 or min(sizes) >= size // 2


def topics(count: int, each: int, seed: int, spread: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """The topic of each document, and its vector: the topic's, and as much of its own."""
    rng = np.random.default_rng(seed)
    topic = rng.permutation(np.repeat(np.arange(count), each))
    centres = rng.normal(size=(count, 64))
    return topic, quantized(centres[topic] + spread * rng.normal(size=(len(topic), 64)))


@pytest.mark.parametrize("each", [40, 400])
def test_topics_end_up_together(each: int) -> None:
    """In one bucket, and in several."""
    topic, vectors = topics(12, each, 0)
    lengths = np.random.default_rng(1).integers(20, 400, len(topic)).astype(np.int32)
    shares, likenesses = [], []
    for traits in (Traits(vectors), None):
        plan = semantic.pack(lengths, 1000, rng=np.random.default_rng(0), traits=traits)
        pairs = [topic[a] == topic[b] for row in rows_of(plan) for i, a in enumerate(row) for b in row[:i]]
        shares.append(np.mean(pairs))
        found = measured(vectors, plan.doc, plan.row_offsets, 0.9, np.random.default_rng(0))
        likenesses.append((found.similarity / found.compared - found.random_similarity / found.random_compared) / STEPS)
    assert shares[0] > 0.8
    assert shares[1] < 0.2
    assert likenesses[0] > 0.5
    assert abs(likenesses[1]) < 0.1


def test_near_duplicates_are_kept_apart() -> None:
    """Each document three times, nearly: in best fit's rows many meet, here none."""
    _, vectors = topics(20, 10, 2, spread=0.8)
    copies = np.concatenate([vectors, vectors, vectors]).copy()
    copies[200:, 0] //= 2
    lengths = np.tile(np.random.default_rng(3).integers(20, 400, 200).astype(np.int32), 3)
    near = []
    for traits in (Traits(copies), None):
        plan = semantic.pack(lengths, 1000, rng=np.random.default_rng(0), traits=traits, threshold=0.9)
        near.append(measured(copies, plan.doc, plan.row_offsets, 0.9, np.random.default_rng(0)).near)
    assert near[0] <= 2
    assert near[1] > 50


@pytest.mark.parametrize("value", [0, 5])
def test_equal_documents_are_placed_once(value: int) -> None:
    """Every candidate is rejected, or all are like nothing: the rows are as full as best fit's."""
    lengths = np.random.default_rng(0).integers(1, 50, 3000).astype(np.int32)
    traits = Traits(np.full((3000, 8), value, np.int8))
    plan = semantic.pack(lengths, 200, rng=np.random.default_rng(0), traits=traits)
    plan.validate(lengths, 200)
    assert sorted(plan.doc.tolist()) == list(range(3000))
    best_fit = bfd.pack(lengths, 200, rng=np.random.default_rng(0))
    assert plan.rows <= best_fit.rows * (1 + semantic.LOSS)


def test_seeds_give_other_rows() -> None:
    """At about the same count, of documents of one length at the same."""
    _, vectors = topics(5, 30, 0)
    lengths = np.full(150, 25, np.int32)
    plans = [semantic.pack(lengths, 100, rng=np.random.default_rng(s), traits=Traits(vectors)) for s in range(5)]
    assert len({tuple(plan.doc.tolist()) for plan in plans}) == 5
    assert {plan.rows for plan in plans} == {38}


def test_lengths_that_leave_no_choice() -> None:
    """Two lengths that only go together: the walk would part them, so the plan is best fit's."""
    lengths = np.tile(np.array([60, 40], np.int32), 500)
    vectors = np.tile(np.array([[9, 0], [0, 9]], np.int8), (500, 1))
    plan = semantic.pack(lengths, 100, rng=np.random.default_rng(0), traits=Traits(vectors))
    assert plan.rows <= 510
