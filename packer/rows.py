"""Gathering: plan and tokens become rows, rows become columns. The one place where labels shift and positions restart.

Two documents [7 8 9] and [5 6] in one row:

    input_ids     7    8    9    5    6
    labels     -100    8    9 -100    6     aligned: the first token of a segment is not predicted
    labels        8    9 -100    6 -100     shifted: the next token of the document; the last has none
    position_ids  0    1    2    0    1
    cu_seqlens    0              3         5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from packer.plan import BoolArray, Int32Array, Int64Array, Plan, offsets_of, runs
from packer.schema import IGNORE_INDEX, Layout

SEGMENT = np.dtype(
    [
        ("doc", "<i8"),  # ordinal of the document
        ("start", "<i4"),  # where in it the segment begins
        ("length", "<i4"),
        ("doc_length", "<i4"),  # tokens of the whole document
        ("next", "<i4"),  # the document's next token if there is one and it is trained, else IGNORE_INDEX
    ]
)
T = TypeVar("T", bound=np.generic)
SegmentArray = NDArray[np.void]
SHORT = 24  # tokens: below this mean length one index gather beats a slice for each piece


@dataclass(frozen=True)
class Rows:
    """R rows end to end. tokens: int32 (T,); trained: bool (T,) or None where all are; segments: SEGMENT (S,);
    row_segments: int64 (R+1,), row r holds segments row_segments[r] to row_segments[r+1]."""

    tokens: Int32Array
    trained: BoolArray | None
    segments: SegmentArray
    row_segments: Int64Array

    def __len__(self) -> int:
        return len(self.row_segments) - 1

    @cached_property
    def segment_offsets(self) -> Int64Array:
        """Where each segment begins among the tokens: int64 (S+1,)."""
        return offsets_of(self.segments["length"])

    @cached_property
    def row_offsets(self) -> Int64Array:
        """Where each row begins among the tokens: int64 (R+1,)."""
        return self.segment_offsets[self.row_segments]

    def take(self, order: Int64Array) -> Rows:
        """These rows in another order: int64 (r,) row numbers."""
        counts = np.diff(self.row_segments)[order]
        starts, stops = self.row_offsets[:-1][order], self.row_offsets[1:][order]
        return Rows(
            slices(self.tokens, starts, stops),
            None if self.trained is None else slices(self.trained, starts, stops),
            self.segments[runs(self.row_segments[:-1][order], counts)],
            offsets_of(counts),
        )


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Rows of several blocks after one another. A part without a mask trains on all its tokens."""
    masked = any(part.trained is not None for part in parts)
    return Rows(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([_trained(part) for part in parts]) if masked else None,
        np.concatenate([part.segments for part in parts]),
        offsets_of(np.concatenate([np.diff(part.row_segments) for part in parts])),
    )


def _trained(rows: Rows) -> BoolArray:
    return np.ones(len(rows.tokens), np.bool_) if rows.trained is None else rows.trained


def slices(flat: NDArray[T], starts: Int64Array, stops: Int64Array) -> NDArray[T]:
    """flat[starts[0]:stops[0]], flat[starts[1]:stops[1]], ... end to end."""
    total = int((stops - starts).sum())
    if total < SHORT * len(starts):
        return flat[runs(starts, stops - starts)]
    if not len(starts):
        return flat[:0]
    return np.concatenate([flat[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)])


def whole_documents(ordinals: Int64Array, ids: Int32Array, offsets: Int64Array, trained: BoolArray | None) -> Rows:
    """Documents laid end to end as rows of one segment each: what `gather` takes from."""
    segments = np.zeros(len(ordinals), SEGMENT)
    segments["doc"] = ordinals
    segments["length"] = segments["doc_length"] = np.diff(offsets)
    segments["next"] = IGNORE_INDEX
    return Rows(ids, trained, segments, np.arange(len(ordinals) + 1))


def gather(source: Rows, plan: Plan, stops: Int32Array) -> Rows:
    """The plan's rows, cut from a source whose rows have one segment each.

    stops: int32 (n,), where each source row ends for this purpose: a segment that ends there has no next token to
    predict beyond the one the source names, and what lies after it was lost to truncation.
    """
    starts = source.row_offsets[plan.doc] + plan.start
    ends = starts + plan.length
    segments = source.segments[plan.doc]
    segments["start"] += plan.start
    segments["length"] = plan.length
    cut = np.flatnonzero(plan.start + plan.length < stops[plan.doc])
    segments["next"][cut] = source.tokens[ends[cut]]
    if source.trained is not None:
        segments["next"][cut[~source.trained[ends[cut]]]] = IGNORE_INDEX
    return Rows(
        slices(source.tokens, starts, ends),
        None if source.trained is None else slices(source.trained, starts, ends),
        segments,
        plan.row_offsets,
    )


@dataclass(frozen=True)
class Lists:
    """A list column: row r is values[offsets[r]:offsets[r+1]]. offsets: int64 (R+1,)."""

    offsets: Int64Array
    values: NDArray[np.signedinteger]


@dataclass(frozen=True)
class Columns:
    """Columns of R rows by name: those that hold a list a row, and those that hold a number, (R,)."""

    lists: dict[str, Lists]
    numbers: dict[str, NDArray[np.signedinteger]]


def columns(rows: Rows, layout: Layout) -> Columns:
    """Every column that the layout stores (see `packer.schema`)."""
    by_row = layout.boundaries == "row"
    seq_offsets = rows.row_offsets if by_row else rows.segment_offsets
    row_seqs = np.arange(len(rows) + 1) if by_row else rows.row_segments
    seq_lengths = np.diff(seq_offsets)
    next_tokens = _next_tokens(rows, layout)
    labels = _labels(rows, layout, seq_offsets, next_tokens)
    lists = {
        "input_ids": Lists(rows.row_offsets, rows.tokens),
        "cu_seqlens": _cu_seqlens(seq_offsets, row_seqs, rows.row_offsets),
        "doc_ids": Lists(rows.row_segments, rows.segments["doc"].copy()),
        "doc_starts": Lists(rows.row_segments, rows.segments["start"].copy()),
        "doc_lengths": Lists(rows.row_segments, rows.segments["doc_length"].copy()),
        "next_tokens": Lists(rows.row_segments, next_tokens),
    }
    if layout.columns == "full":
        lists["labels"] = Lists(rows.row_offsets, labels)
        lists["position_ids"] = Lists(rows.row_offsets, _positions(rows, layout))
        lists["seq_lengths"] = Lists(row_seqs, seq_lengths.astype(np.int32))
    elif layout.masked:
        lists["loss_spans"] = _loss_spans(rows)
    return Columns(
        lists,
        {
            "num_tokens": np.diff(rows.row_offsets).astype(np.int32),
            "loss_tokens": np.add.reduceat(labels != IGNORE_INDEX, rows.row_offsets[:-1], dtype=np.int32),
            "max_seqlen": np.maximum.reduceat(seq_lengths, row_seqs[:-1]).astype(np.int32),
            "attention_cost": np.add.reduceat(seq_lengths * seq_lengths, row_seqs[:-1]),
        },
    )


def attention_cost(rows: Rows, layout: Layout) -> Int64Array:
    """The sum of squared attention-sequence lengths of each row: int64 (R,)."""
    if layout.boundaries == "row":
        return np.diff(rows.row_offsets) ** 2
    squares = offsets_of(rows.segments["length"].astype(np.int64) ** 2)
    return np.diff(squares[rows.row_segments])


def _next_tokens(rows: Rows, layout: Layout) -> Int32Array:
    """The shifted label at each segment's last position: int32 (S,). In a row that is one attention sequence that is
    the row's own next token, but for its last segment."""
    result: Int32Array = rows.segments["next"].copy()
    if layout.boundaries == "row":
        inner = np.ones(len(result), np.bool_)
        inner[rows.row_segments[1:] - 1] = False
        following = rows.segment_offsets[1:][inner]
        result[inner] = rows.tokens[following]
        if rows.trained is not None:
            result[np.flatnonzero(inner)[~rows.trained[following]]] = IGNORE_INDEX
    return result


def _labels(rows: Rows, layout: Layout, seq_offsets: Int64Array, next_tokens: Int32Array) -> Int32Array:
    labels = rows.tokens.copy()
    if rows.trained is not None:
        labels[~rows.trained] = IGNORE_INDEX
    if layout.labels == "aligned":
        labels[seq_offsets[:-1]] = IGNORE_INDEX
    else:
        labels[:-1] = labels[1:]
        labels[rows.segment_offsets[1:] - 1] = next_tokens
    return labels


def _positions(rows: Rows, layout: Layout) -> Int32Array:
    """A running sum of steps of one; at the start of each sequence the step leads to its first position."""
    starts, first = rows.segment_offsets[:-1], rows.segments["start"].astype(np.int64)
    if layout.positions != "document":
        first = np.zeros_like(first)
        if layout.boundaries == "row" or layout.positions == "row":
            starts, first = rows.row_offsets[:-1], np.zeros(len(rows), np.int64)
    steps = np.ones(len(rows.tokens), np.int32)
    steps[starts[0]] = first[0]
    last = first[:-1] + np.diff(starts) - 1
    steps[starts[1:]] = first[1:] - last
    return np.cumsum(steps, dtype=np.int32)


def _cu_seqlens(seq_offsets: Int64Array, row_seqs: Int64Array, row_offsets: Int64Array) -> Lists:
    """0 and the end of each attention sequence, counted from its row's start."""
    counts = np.diff(row_seqs)
    values = np.zeros(len(seq_offsets) - 1 + len(counts), np.int32)
    ends = seq_offsets[1:] - np.repeat(row_offsets[:-1], counts)
    values[np.arange(len(ends)) + np.repeat(np.arange(1, len(counts) + 1), counts)] = ends
    return Lists(row_seqs + np.arange(len(row_seqs)), values)


def _loss_spans(rows: Rows) -> Lists:
    """start, stop of each run of trained tokens in a row, counted from the row's start; runs end with their row."""
    trained = _trained(rows)
    change = np.flatnonzero(np.diff(trained, prepend=False, append=False))
    inner = rows.row_offsets[1:-1]  # a run that goes on over a row's end is two runs
    crossing = inner[trained[inner] & trained[inner - 1]]
    edges = np.sort(np.concatenate([change, crossing, crossing]), kind="stable")
    starts, stops = edges[::2], edges[1::2]
    row = np.searchsorted(rows.row_offsets, starts, side="right") - 1
    base = rows.row_offsets[row]
    values = np.stack([starts - base, stops - base], axis=1).ravel().astype(np.int32)
    return Lists(2 * np.searchsorted(row, np.arange(len(rows) + 1)), values)
