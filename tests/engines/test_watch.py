"""The sample that the reference encodes too: which documents, however they come, and what is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.engines import DifferenceError, EngineError, HfEngine, Watch
from packer.engines.engine import fault_in
from packer.engines.watch import FIRST_BYTES
from packer.plan import Int32Array, Int64Array
from packer.tokenizer import load

SAMPLE = str(Path(__file__).parents[2] / "sample_data" / "tokenizer")
VOCABULARY = 1000


class Letters:
    """An engine whose ids are the characters' code points."""

    name = "letters"

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        ids = np.array([ord(letter) for text in texts for letter in text], np.int32)
        return ids, np.cumsum([0, *map(len, texts)], dtype=np.int64)


class Changed(Letters):
    """The same, with its answer changed."""

    def __init__(self, change: Callable[[Int32Array, Int64Array], object]) -> None:
        self.change = change

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        return self.change(*super().encode(texts))  # type: ignore[return-value]


def watch(partition: int = 0, seed: int = 0) -> Watch:
    return Watch(Letters(), vocab_size=VOCABULARY, seed=seed, partition=partition)


def picks(watch: Watch, texts: list[str], cuts: Sequence[int]) -> list[int]:
    """Ordinals picked when the texts come in batches cut there."""
    bounds = [0, *sorted(cuts), len(texts)]
    return [a + place for a, b in pairwise(bounds) for place in watch.pick(np.arange(a, b, dtype=np.int64), texts[a:b])]


@given(st.lists(st.integers(0, 3000), max_size=20), st.integers(0, 5), st.integers(0, 3))
def test_batches_do_not_matter(cuts: list[int], seed: int, partition: int) -> None:
    texts = ["x" * 500] * 3000
    assert picks(watch(partition, seed), texts, cuts) == picks(watch(partition, seed), texts, [])


def test_the_first_megabyte_then_one_in_a_thousand() -> None:
    texts = ["x" * 1024] * 300_000
    picked = picks(watch(), texts, range(0, 300_000, 1000))
    first = FIRST_BYTES // 1024
    assert picked[:first] == [*range(first)]
    assert 240 < len(picked) - first < 360
    assert picked == sorted(set(picked))
    other = picks(watch(partition=1), texts, [])
    assert 240 < len(other) < 360
    assert other[:5] != picked[first : first + 5]
    assert picks(watch(seed=1), texts, [])[first:] != picked[first:]


def test_a_document_longer_than_the_first_megabyte_is_compared() -> None:
    assert picks(watch(), ["x" * (2 * FIRST_BYTES), "y"], []) == [0]


def test_ready_made_ids_in_between_leave_gaps_in_the_ordinals() -> None:
    ordinals = np.array([7, 9, 500], np.int64)
    assert watch().pick(ordinals, ["a", "b", "c"]) == [0, 1, 2]


def test_right_answers_pass() -> None:
    for picked in ([], [0, 2]):
        ids, offsets, sample = watch().encode(Letters(), np.arange(3), ["one", "", "two"], picked)
        assert ids.tolist() == [*map(ord, "onetwo")]
        assert offsets.tolist() == [0, 3, 3, 6]
        if sample is None:
            assert not picked
        else:
            assert sample.documents == picked
            sample.compare()


def compared(engine: Letters, ordinals: list[int], texts: list[str], picked: list[int]) -> None:
    *_, sample = watch().encode(engine, np.array(ordinals), texts, picked)
    assert sample is not None
    sample.compare()


def one_id(place: int) -> Callable[[Int32Array, Int64Array], object]:
    def change(ids: Int32Array, offsets: Int64Array) -> object:
        ids[place] += 1
        return ids, offsets

    return change


def test_a_wrong_id_is_noticed_in_picked_documents_only() -> None:
    texts, ordinals = ["one", "two", "three"], [10, 20, 30]
    with pytest.raises(DifferenceError) as raised:
        compared(Changed(one_id(5)), ordinals, texts, [0, 1])
    assert raised.value.document == 20
    assert "token 2 " in str(raised.value)
    compared(Changed(one_id(5)), ordinals, texts, [0, 2])


@pytest.mark.parametrize("keep", [slice(0, 2), slice(0, 0)])
def test_a_document_cut_short_is_a_difference(keep: slice) -> None:
    def change(ids: Int32Array, offsets: Int64Array) -> object:
        return ids[keep], offsets.clip(max=len(ids[keep]))

    with pytest.raises(DifferenceError, match=f"token {keep.stop} differs"):
        compared(Changed(change), [4], ["one"], [0])


MALFORMED: dict[str, Callable[[Int32Array, Int64Array], object]] = {
    "decreasing": lambda ids, offsets: (ids, np.array([0, 5, 3, 6, len(ids)])[: len(offsets)]),
    "too few": lambda ids, offsets: (ids, offsets[:-1]),
    "too many": lambda ids, offsets: (ids, np.append(offsets, offsets[-1])),
    "none": lambda ids, offsets: (ids, offsets[:0]),
    "two-dimensional": lambda ids, offsets: (ids, offsets[None]),
    "beyond the ids": lambda ids, offsets: (ids[:-1], offsets),
    "ids left over": lambda ids, offsets: (np.append(ids, ids[:1]), offsets),
    "first not 0": lambda ids, offsets: (ids, offsets + np.int64(1)),
    "ids as int64": lambda ids, offsets: (ids.astype(np.int64), offsets),
    "ids unsigned": lambda ids, offsets: (ids.view(np.uint32), offsets),
    "ids as rows": lambda ids, offsets: (ids[:, None], offsets),
    "offsets as int32": lambda ids, offsets: (ids, offsets.astype(np.int32)),
    "negative id": lambda ids, offsets: (np.append(ids[:-1], np.int32(-1)), offsets),
    "id beyond the vocabulary": lambda ids, offsets: (np.append(ids[:-1], np.int32(VOCABULARY)), offsets),
}


@pytest.mark.parametrize("picked", [[], [0]])
@pytest.mark.parametrize("how", MALFORMED)
def test_a_malformed_answer_is_noticed_picked_or_not(how: str, picked: list[int]) -> None:
    texts, ordinals = ["one", "two", "three"], np.array([10, 20, 30])
    with pytest.raises(DifferenceError, match="in the 3 documents from here on") as raised:
        watch().encode(Changed(MALFORMED[how]), ordinals, texts, picked)
    assert raised.value.document == 10


def test_an_engine_that_breaks_is_named_with_its_first_document() -> None:
    def breaks(*_: object) -> object:
        raise EngineError("boom")

    with pytest.raises(DifferenceError, match="boom") as raised:
        watch().encode(Changed(breaks), np.array([7]), ["one"], [])
    assert raised.value.document == 7


@given(st.lists(st.text(max_size=9), max_size=9))
def test_no_fault_in_a_right_answer(texts: list[str]) -> None:
    tokenizer = load(SAMPLE)
    assert fault_in(HfEngine(tokenizer).encode(texts), len(texts), tokenizer.vocab_size) is None
