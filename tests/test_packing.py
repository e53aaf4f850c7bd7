"""Every strategy against a slow, obvious reference that looks at each row for each document."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from packer.cli import cli
from packer.errors import UsageError
from packer.metrics import lower_bound
from packer.packing import STRATEGIES, load
from packer.packing.placing import descending
from packer.plan import Plan, offsets_of, runs

WHOLE = ("bfd", "ffd", "first-fit")  # one segment a document, several a row
BOUNDARIES = [63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 4097, 65535, 65536, 65537, 131072, 131073]
Choose = Callable[[list[int], list[int]], int]
Segment = tuple[int, int, int]  # document, start, length


def planned(
    name: str, lengths: list[int], max_length: int, max_segments: int | None = None, seed: int = 0
) -> list[list[Segment]]:
    """The strategy's rows as lists, after the checks that hold for every plan."""
    array = np.array(lengths, np.int32)
    plan = load(name)(array, max_length, max_segments=max_segments, rng=np.random.default_rng(seed))
    plan.validate(array, max_length)
    dtypes = [array.dtype for array in (plan.doc, plan.start, plan.length, plan.row_offsets)]
    assert dtypes == [np.int64, np.int32, np.int32, np.int64]
    assert array.tolist() == lengths, "the lengths are the caller's"
    return as_lists(plan)


def as_lists(plan: Plan) -> list[list[Segment]]:
    segments = list(zip(plan.doc.tolist(), plan.start.tolist(), plan.length.tolist(), strict=True))
    return [segments[a:b] for a, b in pairwise(plan.row_offsets.tolist())]


def lengths_of(rows: list[list[Segment]]) -> list[list[int]]:
    """Each row as a multiset: documents of one length may stand for one another."""
    return [sorted(length for _, _, length in row) for row in rows]


def naive_fit(lengths: list[int], max_length: int, max_segments: int | None, choose: Choose) -> list[list[int]]:
    """The numbers of the documents in each row; documents one at a time, in the order given."""
    rows: list[list[int]] = []
    room: list[int] = []
    for doc, length in enumerate(lengths):
        fits = [r for r in range(len(rows)) if room[r] >= length and len(rows[r]) != max_segments]
        if not fits:
            rows.append([])
            room.append(max_length)
            fits = [len(rows) - 1]
        row = choose(fits, room)
        rows[row].append(doc)
        room[row] -= length
    return rows


def tightest(fits: list[int], room: list[int]) -> int:
    """The least room; among equals the lowest row."""
    return min(fits, key=lambda row: (room[row], row))


def lowest(fits: list[int], _: list[int]) -> int:
    return min(fits)


RULES: dict[str, Choose] = {"bfd": tightest, "ffd": lowest}


@st.composite
def inputs(draw: st.DrawFn) -> tuple[list[int], int]:
    """Lengths and max_length: few distinct lengths, often halves and thirds of a row, so that rooms tie and fill up."""
    max_length = draw(st.integers(1, 40) | st.sampled_from(BOUNDARIES))
    parts = [max_length // n + extra for n in (1, 2, 3, 4) for extra in (-1, 0, 1)]
    length = st.sampled_from([1, *(n for n in parts if 1 <= n <= max_length)]) | st.integers(1, max_length)
    pool = draw(st.lists(length, min_size=1, max_size=8))
    return draw(st.lists(st.sampled_from(pool), max_size=60)), max_length


max_segments_options = st.none() | st.integers(1, 5)


@pytest.mark.parametrize("name", RULES)
@given(inputs(), max_segments_options, st.integers(0, 3))
def test_decreasing_is_exact(name: str, case: tuple[list[int], int], max_segments: int | None, seed: int) -> None:
    lengths, max_length = case
    longest_first = sorted(lengths, reverse=True)
    rows = naive_fit(longest_first, max_length, max_segments, RULES[name])
    expected = [sorted(longest_first[doc] for doc in row) for row in rows]
    assert lengths_of(planned(name, lengths, max_length, max_segments, seed)) == expected


@given(inputs(), max_segments_options)
def test_first_fit_is_exact(case: tuple[list[int], int], max_segments: int | None) -> None:
    lengths, max_length = case
    expected = [[(doc, 0, lengths[doc]) for doc in row] for row in naive_fit(lengths, max_length, max_segments, lowest)]
    assert planned("first-fit", lengths, max_length, max_segments) == expected


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("max_segments", [None, 3])
@pytest.mark.parametrize("max_length", [1024, 2049, 65537, 200_000])
def test_exact_on_many_different_lengths(name: str, max_length: int, max_segments: int | None) -> None:
    """Long-tailed lengths, as text has: rooms spread over all words of the bit sets."""
    drawn = np.random.default_rng(max_length).lognormal(np.log(max_length / 8), 1.2, 500)
    lengths = np.clip(drawn, 1, max_length).astype(int).tolist()
    ordered = lengths if name == "first-fit" else sorted(lengths, reverse=True)
    rows = naive_fit(ordered, max_length, max_segments, RULES.get(name, lowest))
    expected = [sorted(ordered[doc] for doc in row) for row in rows]
    assert lengths_of(planned(name, lengths, max_length, max_segments)) == expected


@pytest.mark.parametrize(
    ("name", "lengths", "max_length", "max_segments", "expected"),
    [
        # when 2 comes, rows 0 and 1 have room 2 and row 2 has room 4: the lower of the tightest
        ("bfd", [8, 6, 8, 2], 10, None, [[2, 8], [8], [6]]),
        # when 2 comes, row 0 has room 3 and row 1 has room 2: where the two rules part
        ("bfd", [7, 4, 4, 2], 10, None, [[7], [2, 4, 4]]),
        ("ffd", [7, 4, 4, 2], 10, None, [[2, 7], [4, 4]]),
        ("bfd", [6, 5, 4, 3, 2], 10, None, [[4, 6], [2, 3, 5]]),
        ("ffd", [6, 5, 3, 2, 2], 10, None, [[3, 6], [2, 2, 5]]),
        ("bfd", [7, 6, 4, 3, 2], 10, None, [[3, 7], [4, 6], [2]]),
        ("first-fit", [5, 7, 2, 5], 10, None, [[2, 5], [7], [5]]),
        ("first-fit", [1, 1, 1, 1, 1], 10, 2, [[1, 1], [1, 1], [1]]),
        ("bfd", [1, 1, 1, 1, 1], 10, 2, [[1, 1], [1, 1], [1]]),
        ("ffd", [6, 1, 1, 1], 10, 2, [[1, 6], [1, 1]]),
        ("bfd", [1, 1, 1], 1, None, [[1], [1], [1]]),
    ],
)
def test_by_hand(
    name: str, lengths: list[int], max_length: int, max_segments: int | None, expected: list[list[int]]
) -> None:
    assert lengths_of(planned(name, lengths, max_length, max_segments)) == expected


def naive_stream(lengths: list[int], max_length: int) -> list[list[Segment]]:
    """Every token of the stream by name, cut."""
    stream = [(doc, position) for doc, length in enumerate(lengths) for position in range(length)]
    rows = []
    for at in range(0, len(stream), max_length):
        row: list[Segment] = []
        for doc, position in stream[at : at + max_length]:
            if row and row[-1][0] == doc:
                row[-1] = (doc, row[-1][1], row[-1][2] + 1)
            else:
                row.append((doc, position, 1))
        rows.append(row)
    return rows


@given(st.lists(st.integers(1, 12), max_size=20), st.integers(1, 15))
def test_wrapped_is_the_stream_cut(lengths: list[int], max_length: int) -> None:
    """Documents are shorter than a row, or fill several."""
    assert planned("wrapped", lengths, max_length) == naive_stream(lengths, max_length)


def test_wrapped_fills_every_row_but_the_last() -> None:
    rows = planned("wrapped", [3, 4, 2], 4)
    assert rows == [[(0, 0, 3), (1, 0, 1)], [(1, 1, 3), (2, 0, 1)], [(2, 1, 1)]]


def test_wrapped_cannot_limit_segments() -> None:
    with pytest.raises(UsageError, match="--max-segments"):
        load("wrapped")(np.array([1], np.int32), 4, max_segments=2, rng=np.random.default_rng(0))


@given(inputs(), max_segments_options)
def test_none_is_one_document_a_row(case: tuple[list[int], int], max_segments: int | None) -> None:
    lengths, max_length = case
    assert planned("none", lengths, max_length, max_segments) == [[(i, 0, n)] for i, n in enumerate(lengths)]


@pytest.mark.parametrize("name", STRATEGIES)
@given(inputs(), st.integers(0, 5))
def test_every_token_in_one_row(name: str, case: tuple[list[int], int], seed: int) -> None:
    lengths, max_length = case
    rows = planned(name, lengths, max_length, seed=seed)
    pieces = sorted(segment for row in rows for segment in row)
    reached = [0] * len(lengths)
    for doc, start, length in pieces:
        assert start == reached[doc], "segments of a document follow one another without gap or overlap"
        reached[doc] += length
    assert reached == lengths
    assert len(rows) >= lower_bound(sum(lengths), max_length)
    assert all(row == sorted(row) for row in rows), "documents of a row stand in input order"
    assert planned(name, lengths, max_length, seed=seed) == rows, "the same generator gives the same plan"


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("max_length", [1, 1024, 70_000])
def test_no_documents_no_rows(name: str, max_length: int) -> None:
    assert planned(name, [], max_length) == []


@pytest.mark.parametrize("name", RULES)
def test_seeds_permute_equal_lengths(name: str) -> None:
    """Twelve documents of one length, three a row: any three may meet."""
    seen = {tuple(doc for row in planned(name, [3] * 12, 9, seed=seed) for doc, _, _ in row) for seed in range(40)}
    assert len(seen) == 40
    assert {row[0][0] for row in (planned(name, [3] * 12, 9, seed=seed)[0] for seed in range(40))} >= {0, 1, 2, 3}


@given(inputs(), st.integers(0, 5))
@example(([65537, 1, 65536, 2, 1], 65537), 0)  # one more than sixteen bits between the longest and the shortest
def test_descending(case: tuple[list[int], int], seed: int) -> None:
    lengths = np.array(case[0], np.int32)
    order = descending(lengths, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(lengths)))
    assert lengths[order].tolist() == sorted(case[0], reverse=True)


def optimum(lengths: list[int], max_length: int) -> int:
    """Fewest rows, by trying every row for every document."""

    def search(left: list[int], rooms: list[int], best: int) -> int:
        if len(rooms) >= best:
            return best
        if not left:
            return len(rooms)
        head, *rest = left
        for i, room in enumerate(rooms):
            if room >= head:
                best = search(rest, [*rooms[:i], room - head, *rooms[i + 1 :]], best)
        return search(rest, [*rooms, max_length - head], best)

    return search(sorted(lengths, reverse=True), [], len(lengths) + 1)


@pytest.mark.parametrize("name", RULES)
@given(st.lists(st.integers(1, 12), max_size=8))
def test_near_the_optimum(name: str, lengths: list[int]) -> None:
    """At most 11/9 of the fewest rows possible, plus 6/9 (Dósa 2007)."""
    assert 9 * len(planned(name, lengths, 12)) <= 11 * optimum(lengths, 12) + 6


@pytest.mark.parametrize(
    ("reported", "lengths", "max_length", "expected"),
    [
        ("trl 784", [3, 2], 5, [[2, 3]]),
        ("Bagel 308", [6, 6, 3, 6], 10, [[3, 6], [6], [6]]),
        ("trl 1337", [3], 1024, [[3]]),
        ("Megatron-Energon 114", [4, 4, 1], 4, [[4], [4], [1]]),
        ("ArcticTraining 155", [2, 2, 2, 2, 2], 4, [[2, 2], [2, 2], [2]]),
        ("verl 1270", [], 8, []),
    ],
)
@pytest.mark.parametrize("name", WHOLE)
def test_reported_faults(
    name: str, reported: str, lengths: list[int], max_length: int, expected: list[list[int]]
) -> None:
    assert lengths_of(planned(name, lengths, max_length)) == expected, reported


@pytest.mark.parametrize("name", ["bfd", "ffd", "wrapped", "none"])
def test_a_million_documents(name: str) -> None:
    """Megatron-Bridge 1505: millions of lengths take seconds, because documents of one length move together."""
    lengths = np.random.default_rng(0).lognormal(6, 1.2, 1_000_000).clip(1, 4096).astype(np.int32)
    plan = load(name)(lengths, 4096, rng=np.random.default_rng(0))
    plan.validate(lengths, 4096)
    assert (np.bincount(plan.doc, weights=plan.length, minlength=len(lengths)) == lengths).all()
    if name != "none":
        assert plan.rows <= 1.001 * lower_bound(int(lengths.sum(dtype=np.int64)), 4096)


def test_help_lists_the_strategies() -> None:
    text = CliRunner().invoke(cli, ["pack", "--help"], prog_name="packer").output
    offered = re.search(r"--strategy\s+\[([^\]]+)\]", text)
    assert offered is not None
    assert re.sub(r"\s", "", offered[1]).split("|") == [*STRATEGIES, "bfd_split"]  # bfd_split: TRL's name for bfd
    described = " ".join(text.split())
    assert [name for name, meaning in STRATEGIES.items() if f"{name}: {meaning}" not in described] == []


GOOD = Plan(np.array([0, 1, 0]), np.array([0, 0, 4], np.int32), np.array([4, 2, 1], np.int32), np.array([0, 1, 3]))


def test_validate_accepts() -> None:
    GOOD.validate(np.array([5, 2], np.int32), 4)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"doc": [0, 1]}, "differ in length"),
        ({"start": [0, 0, 4, 0]}, "differ in length"),
        ({"row_offsets": [0, 1, 2]}, "last row does not end"),
        ({"row_offsets": [0, 0, 3]}, "a row without a segment"),
        ({"row_offsets": [1, 2, 3]}, "a row without a segment"),
        ({"doc": [0, 2, 0]}, "does not exist"),
        ({"doc": [0, -1, 0]}, "does not exist"),
        ({"length": [4, 0, 1]}, "an empty segment"),
        ({"start": [0, -1, 4]}, "negative start"),
        ({"length": [4, 3, 1]}, "past its document's end"),
        ({"start": [0, 0, 2**31 - 1]}, "past its document's end"),
        ({"row_offsets": [0, 3]}, "more than 4 tokens"),
    ],
)
def test_validate_refuses(change: dict[str, list[int]], rule: str) -> None:
    fields = {name: np.array(change.get(name, getattr(GOOD, name)), getattr(GOOD, name).dtype) for name in vars(GOOD)}
    with pytest.raises(ValueError, match=rule):
        Plan(**fields).validate(np.array([5, 2], np.int32), 4)


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=8), st.data())
def test_take_rows(rows: list[list[int]], data: st.DataObject) -> None:
    lengths = np.array([length for row in rows for length in row], np.int32)
    counts = np.array([len(row) for row in rows])
    plan = Plan(np.arange(len(lengths)), np.zeros(len(lengths), np.int32), lengths, offsets_of(counts))
    assert plan.row_lengths().tolist() == [sum(row) for row in rows]
    assert plan.tokens == sum(map(sum, rows))
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), unique=True))
    taken = plan.take_rows(np.array(order, np.int64))
    assert as_lists(taken) == [as_lists(plan)[row] for row in order]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6))))
def test_runs(pairs: list[tuple[int, int]]) -> None:
    starts, counts = (np.array(column, np.int64) for column in (zip(*pairs, strict=True) if pairs else ([], [])))
    assert runs(starts, counts).tolist() == [start + i for start, count in pairs for i in range(count)]
