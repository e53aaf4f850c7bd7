"""Vectors and similarities against slow references in exact arithmetic, and their independence of any order."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.plan import offsets_of
from packer.similarity import Traits, likeness, tfidf, vectors
from packer.similarity.likeness import STEPS, Likeness, Similarity, measured, pair_of
from packer.similarity.traits import joined
from packer.similarity.vectors import EXACT, MOST_WIDTH, TOP, compact, inverse_norms, pair_similarities, quantized

documents = st.lists(st.lists(st.integers(0, 5) | st.integers(0, 2**31 - 1), max_size=12), min_size=1, max_size=9)


def flat(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([token for text in texts for token in text], np.int32), offsets_of(
        np.array([len(text) for text in texts], np.int64)
    )


def naive_log2(value: float) -> float:
    """By halving, then a straight line."""
    whole = 0
    while value >= 2:
        value, whole = value / 2, whole + 1
    return whole + value - 1


def naive_hash(value: int) -> int:
    value = (value ^ (value >> 15)) * 0xC2B2AE3D % 2**32
    return (value ^ (value >> 13)) % 2**19


def naive_terms(text: list[int]) -> Counter[int]:
    single = [naive_hash(token * 0x9E3779B1 % 2**32) for token in text]
    double = [naive_hash((a * 0x9E3779B1 + (b + 1) * 0x85EBCA77) % 2**32) + 2**19 for a, b in pairwise(text)]
    return Counter(single + double)


def naive_vectors(texts: list[list[int]], width: int) -> list[list[int]]:
    """A term at a time."""
    found = [naive_terms(text) for text in texts]
    frequency = Counter(term for terms in found for term in terms)
    component, sign = tfidf.components()
    made = []
    for terms in found:
        sums = [0] * width
        for term, count in terms.items():
            rarity = int(16 * naive_log2(1 + len(texts) / frequency[term])) // (4 if term >= 2**19 else 1)
            weight = int(4 * (1 + naive_log2(count))) * (rarity if frequency[term] > 1 else 0)
            for k in range(2):
                sums[component[k, term] % width] += int(sign[k, term]) * weight
        largest = max(map(abs, sums))
        made.append([round(value * (TOP / largest)) if largest else 0 for value in sums])
    return made


@settings(max_examples=20)
@given(documents, st.sampled_from([1, 5, 1 << 20]))
def test_tfidf(texts: list[list[int]], chunk: int) -> None:
    """Whatever the chunks that documents are looked at in."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tfidf, "CHUNK_TOKENS", chunk)
        found = tfidf.vectors_of(*flat(texts))
    assert found.dtype == np.int8
    assert found.tolist() == naive_vectors(texts, MOST_WIDTH)


def test_tfidf_of_many_documents_is_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[i % 7, i % 3, i % 7] for i in range(40)]
    monkeypatch.setattr(tfidf, "VECTOR_BYTES", 40 * 256)
    assert tfidf.vectors_of(*flat(texts)).tolist() == naive_vectors(texts, 256)
    assert [tfidf.width_for(n) for n in (1, 20, 21, 10**9)] == [1024, 512, 256, 256]


def test_tfidf_of_nothing() -> None:
    assert tfidf.vectors_of(*flat([])).shape == (0, MOST_WIDTH)
    assert not tfidf.vectors_of(*flat([[], [1, 2, 3], []])).any(), "what only one document has tells nothing"


@given(st.integers(1, 2**60))
def test_log2(value: int) -> None:
    [found] = tfidf.log2(np.array([value]))
    assert found <= np.log2(value) + 1e-9
    assert found > np.log2(value) - 0.09


def test_tfidf_of_what_is_partly_the_same() -> None:
    """The similarity of two documents is about the part that they share."""
    rng = np.random.default_rng(0)
    texts = rng.integers(0, 20_000, (60, 500))
    for share in (0.5, 0.9):
        cut = int(500 * share)
        others = np.concatenate([texts[:, :cut], np.roll(texts, 1, axis=0)[:, cut:]], axis=1)
        both = tfidf.vectors_of(*flat([*texts.tolist(), *others.tolist()]))
        found = pair_similarities(both, inverse_norms(both), np.arange(60), np.arange(60, 120))
        assert abs(found.mean() - share) < 0.06


numbers = st.floats(-(2.0**99), 2.0**99, width=32) | st.integers(-3, 3).map(float)


@given(st.integers(1, 6).flatmap(lambda d: st.lists(st.lists(numbers, min_size=d, max_size=d), min_size=1, max_size=5)))
def test_quantized_keeps_proportions(values: list[list[float]]) -> None:
    given_ = np.array(values)
    found = quantized(given_)
    largest = np.abs(given_).max(axis=1, keepdims=True)
    assert (np.abs(found).max(axis=1) == np.where(largest[:, 0] > 0, TOP, 0)).all()
    assert (np.abs(found * (largest / TOP) - given_) <= largest / TOP * 0.501).all()


@pytest.mark.parametrize("width", [513, 768, 4096])
def test_wide_vectors_are_reduced_exactly(width: int) -> None:
    """The product is that of integers, and similarities stay nearly the same."""
    rng = np.random.default_rng(width)
    values = rng.normal(size=(40, width))
    values[20:] = values[:20] + 0.2 * rng.normal(size=(20, width))
    found = compact(values)
    whole = vectors.scaled(values, min(EXACT // width - 1, 1 << 14)).astype(np.int64)
    assert (found == quantized((whole @ vectors._signs(width).astype(np.int64)).astype(np.float64))).all()
    units = values / np.linalg.norm(values, axis=1, keepdims=True)
    a, b = map(np.array, zip(*combinations(range(40), 2), strict=True))
    assert np.abs(pair_similarities(found, inverse_norms(found), a, b) - (units @ units.T)[a, b]).max() < 0.25
    close = pair_similarities(found, inverse_norms(found), np.arange(20), np.arange(20, 40))
    assert np.abs(close - (units[:20] * units[20:]).sum(axis=1)).max() < 0.02


def test_sums_are_exact_at_the_bound() -> None:
    """All components as large as can be, at the most width: no order of adding can round."""
    most = np.full((3, MOST_WIDTH), TOP, np.int8)
    product = most.astype(np.float32) @ most.astype(np.float32).T
    assert (product == MOST_WIDTH * TOP**2).all()
    assert MOST_WIDTH * TOP**2 < EXACT
    rng = np.random.default_rng(0)
    values = rng.integers(-TOP, TOP + 1, (50, MOST_WIDTH)).astype(np.int8)
    shuffled = values[:, rng.permutation(MOST_WIDTH)]
    assert (values.astype(np.float32) @ values.astype(np.float32).T == shuffled.astype(np.int64) @ shuffled.T).all()


def test_the_null_vector_is_like_nothing() -> None:
    values = np.array([[0, 0], [3, 4], [0, 0], [6, 8]], np.int8)
    found = pair_similarities(values, inverse_norms(values), np.array([0, 0, 1, 1]), np.array([2, 1, 1, 3]))
    assert found.tolist() == pytest.approx([0, 0, 1, 1])


def test_pair_of() -> None:
    low, high = pair_of(np.arange(500_000))
    wanted = [(i, j) for j in range(1, 1001) for i in range(j)][:500_000]
    assert list(zip(low.tolist(), high.tolist(), strict=True)) == wanted
    large = 2**30 * (2**30 - 1) // 2 + np.array([-1, 0, 5])
    low, high = pair_of(large)
    assert (high * (high - 1) // 2 + low == large).all()
    assert ((low >= 0) & (low < high)).all()


rows_of_documents = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=6), min_size=1, max_size=6)


@given(rows_of_documents)
def test_measured(rows: list[list[int]]) -> None:
    """All pairs of a row; two pieces of one document are none."""
    values = np.random.default_rng(0).integers(-3, 4, (8, 5)).astype(np.int8)
    values[1] = values[0]
    document, offsets = flat(rows)
    found = measured(values, document.astype(np.int64), offsets, 0.5, np.random.default_rng(0))
    inverse = inverse_norms(values)
    pairs = [(a, b) for row in rows for a, b in combinations(row, 2)]
    alike = [float(pair_similarities(values, inverse, np.array([a]), np.array([b]))[0]) for a, b in pairs if a != b]
    assert (found.rows, found.pairs, found.compared) == (len(rows), len(pairs), len(alike))
    assert found.near == sum(one > 0.5 for one in alike)
    assert found.similarity == sum(round(np.float32(one) * STEPS) for one in alike)


def test_measured_of_many_pairs_is_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).integers(-127, 128, (400, 16)).astype(np.int8)
    order, offsets = np.arange(400), np.array([0, 100, 400])
    exact = measured(values, order, offsets, 0.3, np.random.default_rng(0))
    monkeypatch.setattr(likeness, "PAIRS", 20_000)
    drawn = measured(values, order, offsets, 0.3, np.random.default_rng(0))
    assert drawn.compared == 20_000
    assert drawn.pairs == exact.pairs == exact.compared
    assert drawn.near == pytest.approx(exact.near, rel=0.1)
    assert abs(drawn.similarity / drawn.compared - exact.similarity / exact.compared) < 0.01 * STEPS


def test_likeness_adds_up() -> None:
    one = Likeness(1, 2, 3, 4, 5, 6, 7, 8)
    assert one + one == Likeness(2, 4, 6, 8, 10, 12, 14, 16)
    assert Similarity.of(one, "field v", 0.9) == Similarity("field v", 0.9, 1, 2, 6 / STEPS / 5, 8 / STEPS / 7, 4.0)
    assert Similarity.of(Likeness(rows=3, best_fit_rows=2), "groups alone", 0.9).in_row is None


def test_traits_are_taken_and_joined() -> None:
    first = Traits(np.zeros((2, 3), np.int8), np.array([4, 5]))
    second = Traits(np.ones((1, 3), np.int8), np.array([6]))
    both = joined([first, None, Traits(np.zeros((0, 1), np.int8), np.zeros(0, np.int64)), second])
    assert both is not None
    taken = both.take(np.array([2, 0]))
    assert taken.vectors is not None
    assert taken.groups is not None
    assert taken.vectors.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert taken.groups.tolist() == [6, 4]
    assert joined([None, None]) is None
    assert joined([Traits(groups=np.array([1]))]) is not None
