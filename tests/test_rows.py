"""Gathering and columns against a reference that looks at one token at a time, and reported faults by hand.

The reference is the contract put into code: a row is a list of (document, position), and every label, position and
length is looked up from the documents by that name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import chain, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.packing import load
from packer.packing.overlong import Trained, keep, split
from packer.plan import Plan, offsets_of
from packer.rows import Columns, Rows, columns, concatenate, gather, whole_documents
from packer.schema import BOUNDARIES, COLUMNS, IGNORE_INDEX, LABELS, POSITIONS, Layout, columns_of

Segment = tuple[int, int, int]  # document, start, length
Row = dict[str, Any]
LAYOUTS = [Layout(*conventions) for conventions in product(LABELS, BOUNDARIES, POSITIONS)]


def flat_list(lists: list[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(lists))


@dataclass
class Corpus:
    """Documents, the part [start, stop) of each that is placed, and the rows they are placed in.

    ordinals: the number of each document in the whole input; masks: None where no document has one."""

    ids: list[list[int]]
    masks: list[list[bool]] | None
    parts: list[tuple[int, int]]
    rows: list[list[Segment]]
    ordinals: list[int]

    def gathered(self) -> Rows:
        flat = np.array(flat_list(self.ids), np.int32)
        trained = None if self.masks is None else np.array(flat_list(self.masks), np.bool_)
        offsets = offsets_of(np.array([len(document) for document in self.ids], np.int64))
        source = whole_documents(np.array(self.ordinals, np.int64), flat, offsets, trained)
        doc, start, length = (np.array(column) for column in zip(*flat_list(self.rows), strict=True))
        plan = Plan(
            doc.astype(np.int64),
            start.astype(np.int32),
            length.astype(np.int32),
            offsets_of(np.array([len(row) for row in self.rows])),
        )
        return gather(source, plan, np.array([stop for _, stop in self.parts], np.int32))

    def trained(self, document: int, position: int) -> bool:
        return self.masks is None or self.masks[document][position]

    def label(self, document: int, position: int) -> int:
        """The token there if it is trained and not lost to truncation."""
        there = position < self.parts[document][1] and self.trained(document, position)
        return self.ids[document][position] if there else IGNORE_INDEX


def naive_row(corpus: Corpus, segments: list[Segment], layout: Layout) -> Row:
    """All columns of one row, full and compact."""
    tokens = [(doc, start + i) for doc, start, length in segments for i in range(length)]
    last = len(tokens) - 1
    firsts = [tokens.index((doc, start)) for doc, start, _ in segments]
    lasts = [first + length - 1 for first, (_, _, length) in zip(firsts, segments, strict=True)]
    sequences = [length for _, _, length in segments] if layout.boundaries == "document" else [len(tokens)]
    sequence_firsts = firsts if layout.boundaries == "document" else [0]

    def shifted(i: int) -> int:
        doc, position = tokens[i]
        if layout.boundaries == "row" and i < last:
            return corpus.label(*tokens[i + 1])
        return corpus.label(doc, position + 1)

    def aligned(i: int) -> int:
        return IGNORE_INDEX if i in sequence_firsts else corpus.label(*tokens[i])

    def position_id(i: int) -> int:
        origin = {"segment": max(first for first in sequence_firsts if first <= i), "row": 0}
        return tokens[i][1] if layout.positions == "document" else i - origin[layout.positions]

    labels = [(aligned if layout.labels == "aligned" else shifted)(i) for i in range(len(tokens))]
    return {
        "input_ids": [corpus.ids[doc][position] for doc, position in tokens],
        "labels": labels,
        "loss_spans": spans([corpus.trained(*token) for token in tokens]),
        "cu_seqlens": [sum(sequences[:i]) for i in range(len(sequences) + 1)],
        "position_ids": [position_id(i) for i in range(len(tokens))],
        "seq_lengths": sequences,
        "doc_ids": [corpus.ordinals[doc] for doc, _, _ in segments],
        "doc_starts": [start for _, start, _ in segments],
        "doc_lengths": [len(corpus.ids[doc]) for doc, _, _ in segments],
        "next_tokens": [shifted(i) for i in lasts],
        "num_tokens": len(tokens),
        "loss_tokens": sum(label != IGNORE_INDEX for label in labels),
        "max_seqlen": max(sequences),
        "attention_cost": sum(length**2 for length in sequences),
    }


def spans(mask: list[bool]) -> list[int]:
    """start, stop of each run of True."""
    found: list[int] = []
    for i, bit in enumerate(mask):
        if bit and found[-1:] != [i]:
            found += [i, i + 1]
        elif bit:
            found[-1] = i + 1
    return found


def as_rows(values: Columns) -> list[Row]:
    """Columns as one dict a row."""
    rows: list[Row] = [{} for _ in range(len(values.numbers["num_tokens"]))]
    for name, lists in values.lists.items():
        assert len(lists.offsets) == len(rows) + 1
        assert (lists.offsets[0], lists.offsets[-1]) == (0, len(lists.values))
        for row, (start, stop) in zip(rows, pairwise(lists.offsets.tolist()), strict=True):
            row[name] = lists.values[start:stop].tolist()
    for name, numbers in values.numbers.items():
        for row, number in zip(rows, numbers.tolist(), strict=True):
            row[name] = number
    return rows


def stored(row: Row, layout: Layout) -> Row:
    """What the layout keeps of a row."""
    return {column.name: row[column.name] for column in columns_of(layout)}


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Documents cut anywhere, into rows of any order: the planner's work is not needed here.

    Ids tell documents apart, or are few and repeat, so that nothing can be found by value.
    """
    lengths = draw(st.lists(st.integers(1, 7) | st.sampled_from([30, 90]), min_size=1, max_size=6))
    repeating, has_masks = draw(st.booleans()), draw(st.booleans())
    chance = random.Random(draw(st.integers(0, 1 << 32)))
    ids = [[chance.randrange(3) if repeating else 1000 * d + p for p in range(n)] for d, n in enumerate(lengths)]
    rate = chance.choice([0, 0.2, 0.5, 0.9])
    masks = [[chance.random() < rate for _ in range(n)] for n in lengths] if has_masks else None
    parts, segments = [], []
    for doc, length in enumerate(lengths):
        start = chance.choice([0, 0, chance.randrange(length)])
        stop = chance.choice([length, chance.randint(start + 1, length)])
        parts.append((start, stop))
        cuts = sorted({start, stop, *(chance.randint(start, stop) for _ in range(chance.randrange(3)))})
        segments += [(doc, a, b - a) for a, b in pairwise(cuts)]
    chance.shuffle(segments)
    rows: list[list[Segment]] = []
    for segment in segments:
        if not rows or chance.random() < 0.4:
            rows.append([])
        rows[-1].append(segment)
    ordinals = sorted(chance.sample(range(1 << 40), len(lengths)))
    return Corpus(ids, masks, parts, rows, ordinals)


@pytest.mark.parametrize("columns_kept", COLUMNS)
@pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda layout: f"{layout.labels}-{layout.boundaries}-{layout.positions}"
)
@settings(max_examples=40)
@given(corpora(), st.booleans())
def test_columns(layout: Layout, columns_kept: str, corpus: Corpus, elsewhere_masked: bool) -> None:
    layout = Layout(
        layout.labels, layout.boundaries, layout.positions, columns_kept, elsewhere_masked or corpus.masks is not None
    )
    values = columns(corpus.gathered(), layout)
    expected = [stored(naive_row(corpus, row, layout), layout) for row in corpus.rows]
    assert [stored(row, layout) for row in as_rows(values)] == expected
    arrays = {name: lists.values for name, lists in values.lists.items()} | values.numbers
    assert {name: array.dtype for name, array in arrays.items()} == {c.name: c.dtype for c in columns_of(layout)}


@given(corpora())
def test_labels_stay_in_their_document(corpus: Corpus) -> None:
    corpus.ids = [[1000 * doc + position for position in range(len(ids))] for doc, ids in enumerate(corpus.ids)]
    for convention in LABELS:
        for row in as_rows(columns(corpus.gathered(), Layout(convention))):
            pairs = zip(row["labels"], row["input_ids"], strict=True)
            assert all(label == IGNORE_INDEX or label // 1000 == token // 1000 for label, token in pairs)


@given(corpora())
def test_each_trained_token_predicted_once(corpus: Corpus) -> None:
    """Shifted, however documents are cut: all trained tokens that are placed, but for the first of each document."""
    labels = [
        label
        for row in as_rows(columns(corpus.gathered(), Layout("shifted")))
        for label in row["labels"]
        if label != IGNORE_INDEX
    ]
    trained = [
        corpus.ids[doc][position]
        for doc, (start, stop) in enumerate(corpus.parts)
        for position in range(start + 1, stop)
        if corpus.trained(doc, position)
    ]
    assert sorted(labels) == sorted(trained)


@pytest.mark.parametrize("boundaries", BOUNDARIES)
@given(corpora())
def test_either_convention_from_the_other(boundaries: Any, corpus: Corpus) -> None:
    """From stored columns alone: labels, cu_seqlens and next_tokens."""
    aligned, shifted = (as_rows(columns(corpus.gathered(), Layout(name, boundaries))) for name in LABELS)
    for one, other in zip(aligned, shifted, strict=True):
        nexts = one["next_tokens"] if boundaries == "document" else one["next_tokens"][-1:]
        forward: list[int] = []
        backward: list[int] = []
        for (start, stop), following in zip(pairwise(one["cu_seqlens"]), nexts, strict=True):
            forward += [*one["labels"][start + 1 : stop], following]
            backward += [IGNORE_INDEX, *other["labels"][start : stop - 1]]
        assert other["labels"] == forward
        assert one["labels"] == backward


@given(corpora())
def test_loss_spans_are_the_mask(corpus: Corpus) -> None:
    layout = Layout(columns="compact", masked=True)
    for row, segments in zip(as_rows(columns(corpus.gathered(), layout)), corpus.rows, strict=True):
        covered = [False] * row["num_tokens"]
        for start, stop in zip(row["loss_spans"][::2], row["loss_spans"][1::2], strict=True):
            assert 0 <= start < stop <= row["num_tokens"]
            assert not any(covered[max(0, start - 1) : stop]), "runs lie apart, in order"
            covered[start:stop] = [True] * (stop - start)
        assert covered == [corpus.trained(doc, start + i) for doc, start, length in segments for i in range(length)]


def listed(rows: Rows) -> list[tuple[list[int], list[bool] | None, list[Any]]]:
    """Each row's tokens, mask and segments."""
    at = rows.row_offsets.tolist()
    return [
        (
            rows.tokens[at[r] : at[r + 1]].tolist(),
            None if rows.trained is None else rows.trained[at[r] : at[r + 1]].tolist(),
            rows.segments[rows.row_segments[r] : rows.row_segments[r + 1]].tolist(),
        )
        for r in range(len(rows))
    ]


@given(corpora(), st.data())
def test_take(corpus: Corpus, data: st.DataObject) -> None:
    rows = corpus.gathered()
    order = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    assert listed(rows.take(np.array(order, np.int64))) == [listed(rows)[r] for r in order]


@given(st.lists(corpora(), min_size=1, max_size=4))
def test_concatenate(parts: list[Corpus]) -> None:
    joined = listed(concatenate([part.gathered() for part in parts]))
    masked = any(part.masks is not None for part in parts)
    expected = [row for part in parts for row in listed(part.gathered())]
    if masked:
        expected = [(ids, [True] * len(ids) if mask is None else mask, segments) for ids, mask, segments in expected]
    assert joined == expected


@given(corpora())
def test_gathered_twice_is_gathered_once(corpus: Corpus) -> None:
    """A document that was cut to its part first, and whose part is then cut into rows, as a stream is."""
    whole = Corpus(
        corpus.ids,
        corpus.masks,
        corpus.parts,
        [[(d, a, b - a)] for d, (a, b) in enumerate(corpus.parts)],
        corpus.ordinals,
    ).gathered()
    shifted = [[(doc, start - corpus.parts[doc][0], length) for doc, start, length in row] for row in corpus.rows]
    doc, start, length = (np.array(column) for column in zip(*flat_list(shifted), strict=True))
    offsets = offsets_of(np.array([len(row) for row in shifted]))
    plan = Plan(doc.astype(np.int64), start.astype(np.int32), length.astype(np.int32), offsets)
    assert listed(gather(whole, plan, whole.segments["length"].copy())) == listed(corpus.gathered())


EOS, BOS = 2, 1


def packed(
    documents: list[list[int]],
    max_length: int,
    *,
    masks: list[list[int]] | None = None,
    overlong: str | None = None,
    **layout: Any,
) -> list[Row]:
    """The rows that first fit makes of the documents."""
    lengths = np.array([len(document) for document in documents], np.int32)
    trained = None
    flat = None if masks is None else np.array(flat_list(masks), np.bool_)
    if flat is not None:
        trained = Trained.of(flat, np.ones(len(lengths), np.bool_), offsets_of(lengths))
    kept = keep(lengths, max_length, overlong, trained=trained)
    pieces = split(kept, max_length)
    plan = load("first-fit")(pieces.length, max_length, rng=np.random.default_rng(0))
    plan = Plan(pieces.doc[plan.doc], pieces.start[plan.doc] + plan.start, plan.length, plan.row_offsets)
    ids = np.array(flat_list(documents), np.int32)
    source = whole_documents(np.arange(len(documents)), ids, offsets_of(lengths), flat)
    return as_rows(columns(gather(source, plan, kept.stop), Layout(**layout, masked=masks is not None)))


@pytest.mark.parametrize(
    ("reported", "documents", "max_length", "options", "expected"),
    [
        pytest.param(*case, id=case[0])
        for case in [
            (
                "trl 784, nanoVLM 201: documents attend to each other, positions run on",
                [[5, 6, 7], [8, 9]],
                5,
                {},
                [{"cu_seqlens": [0, 3, 5], "position_ids": [0, 1, 2, 0, 1], "seq_lengths": [3, 2], "max_seqlen": 3}],
            ),
            (
                "transformers 39814: a row without a position 0",
                [[1, 2, 3, 4, 5, 6, 7, 8]],
                5,
                {},
                [{"position_ids": [0, 1, 2, 3, 4]}, {"position_ids": [0, 1, 2], "doc_starts": [5], "doc_lengths": [8]}],
            ),
            (
                "torchtune 1177, torchtitan 4075, llm-foundry 878: EOS predicts the next document",
                [[7, 8, EOS], [9, EOS]],
                5,
                {},
                [{"labels": [-100, 8, EOS, -100, EOS], "loss_tokens": 3}],
            ),
            (
                "the same, shifted",
                [[7, 8, EOS], [9, EOS]],
                5,
                {"labels": "shifted"},
                [{"labels": [8, EOS, -100, EOS, -100], "next_tokens": [-100, -100], "loss_tokens": 3}],
            ),
            ("llm-recipes 5: shifted twice", [[1, 2, 3]], 4, {"labels": "aligned"}, [{"labels": [-100, 2, 3]}]),
            ("llm-recipes 5, shifted once", [[1, 2, 3]], 4, {"labels": "shifted"}, [{"labels": [2, 3, -100]}]),
            (
                "ms-swift 6961: left truncation leaves the first label live",
                [[1, 2, 3, 4, 5, 6]],
                4,
                {"overlong": "truncate-left"},
                [{"input_ids": [3, 4, 5, 6], "labels": [-100, 4, 5, 6], "doc_starts": [2], "doc_lengths": [6]}],
            ),
            (
                "truncated: the lost token is predicted by nobody",
                [[1, 2, 3, 4, 5, 6]],
                4,
                {"overlong": "truncate", "labels": "shifted"},
                [{"labels": [2, 3, 4, -100], "next_tokens": [-100], "doc_lengths": [6]}],
            ),
            (
                "cut between rows: the next token is still predicted",
                [[1, 2, 3, 4, 5]],
                4,
                {"labels": "shifted"},
                [{"labels": [2, 3, 4, 5], "next_tokens": [5]}, {"labels": [-100], "doc_starts": [4]}],
            ),
            (
                "trl 3728: packing drops the completion mask",
                [[4, 5, 6], [7, 8]],
                5,
                {"masks": [[0, 0, 1], [0, 1]]},
                [{"labels": [-100, -100, 6, -100, 8], "loss_tokens": 2}],
            ),
            (
                "trl 3728, compact",
                [[4, 5, 6], [7, 8]],
                5,
                {"masks": [[0, 0, 1], [0, 1]], "columns": "compact"},
                [{"loss_spans": [2, 3, 4, 5], "loss_tokens": 2}],
            ),
            ("trl 976: PAD equals EOS", [[5, EOS]], 4, {}, [{"labels": [-100, EOS]}]),
            (
                "transformers 23530, Megatron-Bridge 4660: PAD equals EOS",
                [[BOS, EOS, 3, 4]],
                4,
                {"masks": [[0, 1, 1, 1]]},
                [{"labels": [-100, EOS, 3, 4], "loss_tokens": 3}],
            ),
            (
                "NeMo Speech 14437: length from the wrong EOS",
                [[4, EOS, EOS], [5]],
                4,
                {},
                [{"cu_seqlens": [0, 3, 4], "doc_lengths": [3, 1]}],
            ),
            (
                "torchtitan 3130: documents without EOS",
                [[4, 5], [6, 7]],
                4,
                {},
                [{"cu_seqlens": [0, 2, 4], "labels": [-100, 5, -100, 7]}],
            ),
            (
                "qlora-pipe 40: nothing lost",
                [[BOS, 3, 4, 5, 6]],
                4,
                {},
                [{"input_ids": [BOS, 3, 4, 5]}, {"input_ids": [6]}],
            ),
            (
                "nanochat 811: long documents, no row without a trained token it should have",
                [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2]],
                4,
                {"labels": "shifted"},
                [{"loss_tokens": 4}, {"loss_tokens": 4}, {"loss_tokens": 1, "labels": [-100, 2, -100]}],
            ),
            (
                "one attention sequence: labels run on",
                [[7, 8, EOS], [9, EOS]],
                5,
                {"boundaries": "row"},
                [
                    {
                        "labels": [-100, 8, EOS, 9, EOS],
                        "cu_seqlens": [0, 5],
                        "position_ids": [0, 1, 2, 3, 4],
                        "next_tokens": [9, -100],
                        "doc_ids": [0, 1],
                        "attention_cost": 25,
                    }
                ],
            ),
            (
                "positions in the document",
                [[1, 2, 3, 4, 5], [6, 7]],
                4,
                {"positions": "document"},
                [{"position_ids": [0, 1, 2, 3]}, {"position_ids": [4, 0, 1], "attention_cost": 5}],
            ),
            (
                "positions in the row",
                [[1, 2, 3, 4, 5], [6, 7]],
                4,
                {"positions": "row"},
                [{"position_ids": [0, 1, 2, 3]}, {"position_ids": [0, 1, 2]}],
            ),
        ]
    ],
)
def test_reported_faults(
    reported: str, documents: list[list[int]], max_length: int, options: dict[str, Any], expected: list[Row]
) -> None:
    rows = packed(documents, max_length, **options)
    found = [{name: row[name] for name in wanted} for row, wanted in zip(rows, expected, strict=True)]
    assert found == expected, reported


def test_attention_cost_beyond_int32() -> None:
    """FlashDeBERTa 11: 65,536 squared is beyond int32."""
    ids = np.zeros(1 << 16, np.int32)
    rows = whole_documents(np.array([0]), ids, np.array([0, 1 << 16]), None)
    assert columns(rows, Layout()).numbers["attention_cost"].tolist() == [1 << 32]
