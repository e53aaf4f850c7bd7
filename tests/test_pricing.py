"""Every price against batches and rows that are really made: lists of tokens and padding, counted one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packer import batching
from packer.lengths import Histogram
from packer.metrics import lower_bound, packing_bound
from packer.packing import load, overlong
from packer.pricing import Corpus, Model, Price, Terms, prices
from packer.pricing.corpus import SAMPLE

PADDED = ("static", "dynamic", "bucketed", "token-budget")
PACKED = ("bfd", "ffd", "optimal", "first-fit", "wrapped")
TOKEN, PAD = 1, 0
Sequences = list[list[int]]  # what a kernel sees as sequences: lists of TOKEN and PAD
Batch = list[Sequences]  # rows of a batch


@dataclass
class Case:
    """A corpus that arrives in chunks, and the terms it is priced under."""

    chunks: list[list[int]]
    max_length: int
    terms: Terms

    @property
    def lengths(self) -> list[int]:
        return [n for chunk in self.chunks for n in chunk]

    def corpus(self) -> Corpus:
        chunks = [np.array(chunk, np.int32) for chunk in self.chunks]
        return Corpus(Histogram.of(np.concatenate(chunks)), lambda: iter(chunks))

    def prices(self) -> dict[str, Price]:
        return by_name(prices(self.corpus(), [self.max_length], self.terms))


def by_name(found: Iterator[Price]) -> dict[str, Price]:
    return {price.strategy: price for price in found}


def of_lengths(lengths: Sequence[int] | np.ndarray, max_length: int, terms: Terms) -> dict[str, Price]:
    return Case([list(lengths)], max_length, terms).prices()


def bare(lengths: np.ndarray, max_length: int, terms: Terms) -> dict[str, Price]:
    """Where only the histogram is known."""
    return by_name(prices(Corpus(Histogram.of(lengths), None), [max_length], terms))


# --- the slow way -----------------------------------------------------------------------------------------------------


def pieces_of(length: int, max_length: int, policy: str) -> list[int]:
    """What the policy leaves of one document."""
    if length <= max_length:
        return [length]
    if policy == "split":
        rest = length % max_length
        return [max_length] * (length // max_length) + [rest] * (rest > 0)
    return [] if policy == "drop" else [max_length]


def padded_to(length: int, width: int) -> list[int]:
    return [TOKEN] * length + [PAD] * (width - length)


def rounded(width: int, multiple: int) -> int:
    while width % multiple:
        width += 1
    return width


@dataclass
class Made:
    """What was made, and what was lost on the way. dealt: the batches that the ranks get, in order."""

    rows: int
    batches: list[Batch]
    bound: int
    documents: int
    split: int
    dropped: int
    shapes: int
    room: int | None = None  # tokens that packed rows could hold
    dealt: list[Batch] = field(default_factory=list)


def made_padded(case: Case, name: str) -> Made:
    terms, n = case.terms, case.max_length
    policy = terms.overlong or "truncate"
    documents = [pieces_of(length, n, policy) for length in case.lengths]
    rows = sum(map(len, documents))
    batches: list[Batch] = []
    for index, chunk in enumerate(case.chunks):
        lengths = [piece for length in chunk for piece in pieces_of(length, n, policy)]
        for chosen in chosen_batches(case, name, lengths, index):
            own = [lengths[i] for i in chosen]
            if name == "token-budget" and terms.budget == "sum":
                batches.append([[padded_to(length, length)] for length in own])
                continue
            width = rounded(n if name == "static" else max(own), terms.pad_to_multiple_of)
            batches.append([[padded_to(length, width)] for length in own])
    if name == "static":  # it knows no chunks
        everything = [row for batch in batches for row in batch]
        batches = [everything[i : i + terms.batch_size] for i in range(0, rows, terms.batch_size)]
    shapes = {(len(batch), len(batch[0][0])) for batch in batches}
    if name == "token-budget" and terms.budget == "sum":
        shapes = {(1, sum(map(tokens, batch))) for batch in batches}
    pieces = [piece for document in documents for piece in document]
    full = [batch for batch in batches if len(batch) == terms.batch_size]
    return Made(
        rows,
        batches,
        bound_of(pieces, n),
        documents=sum(map(bool, documents)),
        split=sum(len(document) > 1 for document in documents),
        dropped=sum(case.lengths) - sum(pieces),
        shapes=len(shapes),
        dealt=batches if name == "token-budget" else full,
    )


def chosen_batches(case: Case, name: str, lengths: list[int], index: int) -> list[list[int]]:
    terms, array = case.terms, np.array(lengths, np.int32)
    size, rng = terms.batch_size, terms.rng(index)
    budget = terms.tokens_per_batch or size * case.max_length
    if name == "static":
        return [[i] for i in range(len(lengths))]
    if name == "dynamic":
        batches = batching.dynamic(array, size, rng)
    elif name == "bucketed":
        batches = batching.bucketed(array, size, rng)
    elif terms.budget == "sum":
        batches = batching.token_sum(array, budget, rng)
    else:
        batches = batching.token_budget(array, size, budget, terms.pad_to_multiple_of, rng)
    return [batches.documents[a:b].tolist() for a, b in pairwise(batches.offsets.tolist())]


def made_packed(case: Case, name: str) -> Made:
    """As `packer pack` plans; the ranks get the rows in the order that the terms' seed draws."""
    terms, n = case.terms, case.max_length
    lengths = np.array(case.lengths, np.int32)
    if name == "wrapped":
        pieces = overlong.whole(overlong.keep(lengths, n, terms.overlong))
    else:
        pieces = overlong.split(overlong.keep(lengths, n, terms.overlong or "split"), n)
    plan = load(name)(pieces.length, n, rng=np.random.default_rng(9))
    rows: list[list[tuple[int, int]]] = []  # (document, length) of each segment
    for a, b in pairwise(plan.row_offsets.tolist()):
        rows.append(list(zip(pieces.doc[plan.doc[a:b]].tolist(), plan.length[a:b].tolist(), strict=True)))
    places: dict[int, list[int]] = {}
    for segments in rows:
        for document, length in segments:
            places.setdefault(document, []).append(length)
    kept = [length for document in places.values() for length in document]
    made = [[padded_to(length, length) for _, length in segments] for segments in rows]
    return Made(
        len(rows),
        [made[i : i + terms.batch_size] for i in range(0, len(made), terms.batch_size)],
        lower_bound(sum(kept), n) if name == "wrapped" else bound_of(kept, n),
        documents=len(places),
        split=sum(len(segments) > 1 for segments in places.values()),
        dropped=sum(case.lengths) - sum(kept),
        shapes=1,
        room=len(rows) * n,
        dealt=dealt(case, name, made),
    )


def dealt(case: Case, name: str, rows: list[Sequences]) -> list[Batch]:
    """Whole batches of rows in random order; of `wrapped` those that are full."""
    n, size = case.max_length, case.terms.batch_size
    if name == "first-fit":  # rows of a single full piece are listed last
        rows = sorted(rows, key=lambda row: len(row[0]) == n)
    parts = [rows]
    if name == "wrapped":
        parts = [rows[: sum(map(tokens, rows)) // n]]
    batches: list[Batch] = []
    for index, part in enumerate(parts):
        order = case.terms.rng(index).permutation(len(part)).tolist()
        shuffled = [part[i] for i in order]
        batches += [shuffled[i : i + size] for i in range(0, len(part) - size + 1, size)]
    return batches


def bound_of(pieces: list[int], max_length: int) -> int:
    return packing_bound(Histogram.of(np.array(pieces, np.int64)), max_length)


def tokens(row: Sequences) -> int:
    return sum(map(len, row))


def attention(batch: Batch) -> int:
    return sum(len(sequence) ** 2 for row in batch for sequence in row)


def imbalance(work: list[int], ranks: int) -> tuple[float | None, float | None]:
    """max / mean over the ranks, step by step: its mean and 95th percentile."""
    if ranks == 1:
        return None, None
    steps = [work[i : i + ranks] for i in range(0, len(work) - ranks + 1, ranks)]
    spreads = [max(step) / (sum(step) / ranks) for step in steps]
    return (sum(spreads) / len(spreads), float(np.percentile(spreads, 95))) if spreads else (None, None)


def close(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-12, abs=1e-15)


def check(price: Price, made: Made, case: Case) -> None:
    everything = [mark for batch in made.batches for row in batch for sequence in row for mark in sequence]
    real = everything.count(TOKEN)
    padding = everything.count(PAD) if made.room is None else made.room - real
    cost = sum(map(attention, made.batches))
    ranks = case.terms.world_size
    by_tokens = imbalance([sum(map(tokens, batch)) for batch in made.dealt], ranks)
    by_attention = imbalance([attention(batch) for batch in made.dealt], ranks)
    assert (price.lp_bound is not None) == (price.strategy in PACKED and price.strategy != "wrapped")
    assert price.lp_bound is None or price.lower_bound <= price.lp_bound <= price.rows
    expected = Price(
        strategy=price.strategy,
        max_length=case.max_length,
        rows=made.rows,
        batches=len(made.batches),
        lower_bound=made.bound,
        lp_bound=price.lp_bound,
        real_tokens=real,
        padded_tokens=padding,
        pad_ratio=close(padding / (padding + real)),
        documents_per_row=close(made.documents / made.rows),
        documents_split=made.split,
        tokens_dropped=made.dropped,
        attention_cost=cost,
        attention_cost_ratio=close(cost / sum(n * n for n in case.lengths)),
        shapes=made.shapes,
        rank_tokens_imbalance=close(by_tokens[0]),
        rank_tokens_imbalance_p95=close(by_tokens[1]),
        rank_attention_imbalance=close(by_attention[0]),
        rank_attention_imbalance_p95=close(by_attention[1]),
        flops_per_step=None,
        time_ratio=None,
        estimated=False,
    )
    assert price == expected
    assert real + price.tokens_dropped == sum(case.lengths), "every token is in a row or counted as lost"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    max_length = draw(st.integers(1, 12) | st.integers(1, 70))
    length = st.integers(1, 12) | st.integers(1, 90) | st.sampled_from([max_length, 2 * max_length, max_length + 1])
    chunks = draw(st.lists(st.lists(length, min_size=1, max_size=60), min_size=1, max_size=3))
    terms = Terms(
        batch_size=draw(st.integers(1, 5)),
        tokens_per_batch=draw(st.none() | st.integers(1, 300)),
        budget=draw(st.sampled_from(["padded", "sum"])),
        pad_to_multiple_of=draw(st.integers(1, 8)),
        world_size=draw(st.integers(1, 4)),
        overlong=draw(st.sampled_from([None, "split", "truncate", "truncate-left", "drop"])),
        seed=draw(st.integers(0, 2**70)),
    )
    return Case(chunks, max_length, terms)


@given(cases())
@settings(max_examples=100)
@example(Case([[3]], 4, Terms()))
@example(Case([[9, 9, 9]], 4, Terms(overlong="drop")))
@example(Case([[1] * 9, [4, 4, 1]], 4, Terms(batch_size=2, world_size=2)))
@example(Case([[9] * 15], 9, Terms(batch_size=4, world_size=2)))
@example(Case([[70] * 30], 1, Terms(batch_size=4, world_size=4, overlong="split")))
def test_prices_are_those_of_batches_and_rows_that_are_made(case: Case) -> None:
    found = case.prices()
    if all(n > case.max_length for n in case.lengths) and case.terms.overlong == "drop":
        assert not found, "nothing is left"
        return
    assert list(found) == [*PADDED, *PACKED]
    for name in PADDED:
        made = made_padded(case, name)
        if name in ("dynamic", "bucketed") and len(case.chunks) > 1:
            # A chunk's last batch may be short; they are counted as if it were not
            assert found[name].batches == -(-made.rows // case.terms.batch_size) <= len(made.batches)
            found[name] = replace(found[name], batches=len(made.batches))
        check(found[name], made, case)
    for name in PACKED:
        check(found[name], made_packed(case, name), case)


@given(cases())
@settings(max_examples=25)
def test_chunks_change_no_packed_price(case: Case) -> None:
    """Only who gets which row: ranks apart, all figures are those of the whole list at once."""
    case.terms = Terms(batch_size=case.terms.batch_size, overlong=case.terms.overlong)
    found, whole = case.prices(), of_lengths(case.lengths, case.max_length, case.terms)
    for name in ("static", *PACKED):
        assert found.get(name) == whole.get(name)


@given(cases())
@settings(max_examples=25)
def test_prices_at_several_lengths_are_those_at_each(case: Case) -> None:
    both = list(prices(case.corpus(), [case.max_length, 33], case.terms))
    each = [price for n in (case.max_length, 33) for price in prices(case.corpus(), [n], case.terms)]
    assert both == each


# --- ranks ------------------------------------------------------------------------------------------------------------


@given(cases())
@settings(max_examples=25)
def test_imbalance_is_between_even_and_all_on_one_rank(case: Case) -> None:
    ranks = case.terms.world_size
    for price in case.prices().values():
        for value in (price.rank_tokens_imbalance, price.rank_attention_imbalance):
            assert value is None or 1 <= value <= ranks + 1e-9
        assert (price.rank_tokens_imbalance is None) == (price.rank_attention_imbalance_p95 is None)
        assert ranks > 1 or price.rank_tokens_imbalance is None


def test_ranks_with_equal_rows_are_even() -> None:
    for price in of_lengths([64] * 96, 64, Terms(batch_size=3, world_size=4)).values():
        assert price.rank_tokens_imbalance == price.rank_tokens_imbalance_p95 == 1
        assert price.rank_attention_imbalance == price.rank_attention_imbalance_p95 == 1


def test_one_segment_costs_more_than_many() -> None:
    """Rows of the same tokens, but not of the same work: one document of 64, or 64 of 1."""
    price = of_lengths([64] * 50 + [1] * 3200, 64, Terms(batch_size=1, world_size=2))["bfd"]
    assert (price.rows, price.rank_tokens_imbalance) == (100, 1)
    assert price.rank_attention_imbalance is not None
    assert 1.3 < price.rank_attention_imbalance < 1.7
    assert price.rank_attention_imbalance_p95 == pytest.approx(2 * 4096 / (4096 + 64))


# --- FLOPs ------------------------------------------------------------------------------------------------------------


def test_flops_of_a_model() -> None:
    assert (Model(2, 3).per_token, Model(2, 3).per_square) == (6 * 3 * 12 * 4, 6 * 3 * 2)
    assert (Model(2, 3, 5).per_token, Model(2, 3, 5).per_square) == (6 * 3 * (4 * 4 + 3 * 2 * 5), 6 * 3 * 2)
    assert Model(4096, 32).per_token == 6 * 6_442_450_944, "6.4 billion weights"


def test_flops_and_time_by_hand() -> None:
    found = of_lengths([4, 2], 4, Terms(batch_size=1, model=Model(2, 3)))  # 864 a token, 36 a square
    assert found["static"].flops_per_step == (864 * 8 + 36 * 32) / 2
    for name in ("dynamic", "bucketed", *PACKED):
        assert found[name].flops_per_step == (864 * 6 + 36 * 20) / 2, "packed rows compute no padding"
        assert found[name].time_ratio == 1
    assert found["static"].time_ratio == pytest.approx(8064 / 5904)


def test_time_includes_waiting_for_the_slowest_rank() -> None:
    """With a rank for each document, the short one waits for the long one as long as padding would take."""
    found = of_lengths([4, 2], 4, Terms(batch_size=1, world_size=2, model=Model(2, 3)))
    assert found["static"].flops_per_step == 8064
    assert found["dynamic"].flops_per_step == found["bfd"].flops_per_step == 5904
    assert found["dynamic"].time_ratio == found["bfd"].time_ratio == pytest.approx(found["static"].time_ratio)


def test_truncated_tokens_make_nothing_faster() -> None:
    """Time is for each real token: what is cut away is not training done."""
    found = of_lengths([8, 8], 4, Terms(batch_size=1, model=Model(2, 3)))
    assert found["static"].real_tokens == 8
    assert found["bfd"].real_tokens == 16
    assert found["static"].time_ratio == found["bfd"].time_ratio == 1


# --- samples ----------------------------------------------------------------------------------------------------------


def many(documents: int, seed: int = 3) -> np.ndarray:
    return np.ceil(np.random.default_rng(seed).lognormal(5, 1, documents)).astype(np.int32)


ORDERED = {"dynamic", "bucketed", "token-budget", "first-fit", "wrapped"}  # figures depend on the order


@pytest.mark.parametrize("documents", [1, 50, 2000])
def test_without_an_order_only_some_prices_are_estimated(documents: int) -> None:
    terms = Terms(batch_size=4, world_size=2)
    lengths = many(documents)
    found, exact = bare(lengths, 512, terms), of_lengths(lengths, 512, terms)
    assert {name for name, price in found.items() if price.estimated} == ORDERED
    assert not any(price.estimated for price in exact.values())
    for name in ("static", "bfd", "ffd", "optimal"):
        assert found[name] == exact[name]
    for name, price in found.items():
        assert (price.real_tokens, price.tokens_dropped) == (exact[name].real_tokens, exact[name].tokens_dropped)
    assert found["wrapped"].rows == exact["wrapped"].rows


FIGURES = ("rows", "batches", "padded_tokens", "attention_cost", "documents_per_row")


@pytest.mark.parametrize(("policy", "budget"), [(None, "padded"), ("split", "padded"), ("drop", "sum")])
def test_estimates_are_near_the_truth(policy: str | None, budget: str) -> None:
    terms = Terms(batch_size=8, world_size=4, overlong=policy, budget=budget, model=Model(512, 8))
    lengths = many(2 * SAMPLE + 777)
    found, exact = bare(lengths, 1024, terms), of_lengths(lengths, 1024, terms)
    assert {name for name, price in exact.items() if price.estimated} == {"first-fit"}, "too many to place one by one"
    for name in ORDERED:
        for figure in FIGURES:
            truth = getattr(exact[name], figure)
            assert getattr(found[name], figure) == pytest.approx(truth, rel=0.03, abs=terms.batch_size), (name, figure)
        assert found[name].time_ratio == pytest.approx(exact[name].time_ratio, rel=0.03)
        assert found[name].rank_attention_imbalance == pytest.approx(exact[name].rank_attention_imbalance, rel=0.05)
        assert found[name].rows >= found[name].lower_bound
    assert found["wrapped"].documents_split == pytest.approx(exact["wrapped"].documents_split, rel=0.03)


def test_first_fit_of_very_many_documents_is_estimated_closely() -> None:
    lengths = many(2 * SAMPLE)
    price = of_lengths(lengths, 512, Terms())["first-fit"]
    pieces = overlong.split(overlong.keep(lengths, 512, "split"), 512).length
    rows = load("first-fit")(pieces, 512, rng=np.random.default_rng(0)).rows
    assert price.estimated
    assert price.rows == pytest.approx(rows, rel=0.005)
    assert not of_lengths(lengths[:SAMPLE], 512, Terms())["first-fit"].estimated


def test_a_sample_is_spread_over_all_chunks_and_drawn_by_seed() -> None:
    chunks = [np.arange(first, first + 50_000, dtype=np.int32) for first in range(1, 200_001, 50_000)]
    histogram = Histogram.of(np.concatenate(chunks))
    ordered = Corpus(histogram, lambda: iter(chunks)).sample(0)
    assert len(ordered) == SAMPLE
    assert set(np.diff(ordered).tolist()) == {3, 4}
    drawn = [Corpus(histogram, None).sample(seed).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    few = np.array([5, 1, 5, 9], np.int32)
    assert sorted(Corpus(Histogram.of(few), None).sample(4).tolist()) == [1, 5, 5, 9], (
        "few are all in it, in some order"
    )


def test_seeds_change_only_what_depends_on_the_order() -> None:
    first, other = (of_lengths(many(3000), 256, Terms(seed=seed)) for seed in (1, 2))
    assert {name for name in first if first[name] != other[name]} == {"dynamic", "bucketed", "token-budget"}
