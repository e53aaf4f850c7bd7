"""Rows to batches, in NumPy: flat int64 copies, label conventions, padding to fixed shapes.

    rows           input_ids  7 8 9 | 5 6        two attention sequences
    segment_multiple 4        7 8 9 . 5 6 . .    cu_seqlens 0 3 5, cu_seqlens_padded 0 4 8
    pad_to 8                  7 8 9 5 6 . . .    cu_seqlens 0 3 5 8: the tail is a sequence of its own
    and max_segments_to 4     7 8 9 5 6 . . .    cu_seqlens 0 3 5 6 8: and is cut until there are so many

What pads has label -100. Every array is fresh and writable, never a view of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from packer.errors import UsageError
from packer.plan import Int32Array, Int64Array, offsets_of, runs
from packer.reader.files import Group, Shards
from packer.schema import IGNORE_INDEX, LABELS, Layout

INT32_MAX = 2**31 - 1
_ZERO = np.zeros(1, np.int64)


@dataclass(frozen=True)
class Batch:
    """R rows end to end, T positions, A attention sequences.

    input_ids, labels, position_ids: int64 (T,). rows: int64 (R+1,), where each row begins. sequences: int64 (A+1,),
    where each attention sequence begins. real: int64 (A,), its tokens that are no padding. next_tokens: int64 (A,), the
    shifted label at its last real position. convention: of the labels.
    """

    input_ids: Int64Array
    labels: Int64Array
    position_ids: Int64Array
    rows: Int64Array
    sequences: Int64Array
    real: Int64Array
    next_tokens: Int64Array
    convention: str

    @property
    def loss_tokens(self) -> int:
        """Labels that are trained."""
        return int(np.count_nonzero(self.labels != IGNORE_INDEX))

    @cached_property
    def lengths(self) -> Int64Array:
        """Positions of each attention sequence: int64 (A,)."""
        return self.sequences[1:] - self.sequences[:-1]

    @property
    def max_seqlen(self) -> int:
        return int(self.lengths.max())

    def cu_seqlens(self) -> Int32Array:
        """Where each attention sequence begins among the positions: int32 (A+1,)."""
        return _int32(self.sequences)

    def cu_seqlens_real(self) -> Int32Array:
        """The same, counting real tokens only."""
        return _int32(offsets_of(self.real))

    def seq_idx(self) -> Int32Array:
        """The attention sequence of each position: int32 (T,)."""
        return np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)


def _int32(values: Int64Array, limit: int = INT32_MAX) -> Int32Array:
    if values[-1] > limit:
        raise UsageError(
            f"a batch of {values[-1]} tokens: cu_seqlens is int32 and ends at {limit}; make batches smaller"
        )
    return values.astype(np.int32)


def columns_to_read(layout: Layout) -> list[str]:
    """The columns from which any batch can be made."""
    names = ["input_ids", "cu_seqlens", "next_tokens"]
    if layout.columns == "full":
        return [*names, "labels", "position_ids"]
    names += ["loss_spans"] if layout.masked else []
    return names + (["doc_starts", "doc_lengths"] if layout.positions == "document" else [])


def read_batch(shards: Shards, rows: Int64Array) -> Batch:
    """The rows of these numbers as stored. Raises DatasetError naming shard, row and rule."""
    layout = shards.manifest.layout
    if not len(rows):
        return filler(layout.labels)
    groups, places = shards.locate(rows)
    parts = [(shards.group(group), place) for group, place in zip(groups, places, strict=True)]
    full = layout.columns == "full"
    flat, ends = _tokens(parts, ("input_ids", "labels", "position_ids") if full else ("input_ids",))
    offsets, sequences = np.array(ends), _sequences(parts, ends)
    next_tokens = _next_tokens(parts, layout)
    ids, lengths = flat[0], sequences[1:] - sequences[:-1]
    if full:
        labels, positions = flat[1], flat[2]
    else:
        labels = _derived_labels(parts, ids, offsets, sequences, next_tokens, layout)
        positions = _derived_positions(parts, sequences, offsets, layout)
    return Batch(ids, labels, positions, offsets, sequences, lengths, next_tokens, layout.labels)


def filler(convention: str) -> Batch:
    """One token that is not trained: what a rank without rows computes on."""
    one = np.zeros(1, np.int64)
    ends = np.array([0, 1])
    return Batch(one, one + IGNORE_INDEX, one.copy(), ends, ends.copy(), one + 1, one + IGNORE_INDEX, convention)


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches of one convention, end to end."""
    if len(batches) == 1:
        return batches[0]
    flat = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("input_ids", "labels", "position_ids", "real", "next_tokens")
    }
    ends = {
        name: offsets_of(np.concatenate([np.diff(getattr(batch, name)) for batch in batches]))
        for name in ("rows", "sequences")
    }
    return Batch(**flat, **ends, convention=batches[0].convention)


def _tokens(parts: Sequence[tuple[Group, int]], names: Sequence[str]) -> tuple[Int64Array, list[int]]:
    """Columns of a value a token, end to end: int64 (len(names), T); and where each row begins, and the last ends."""
    views: list[list[NDArray[np.integer]]] = [[] for _ in names]
    ends = [0]
    for group, place in parts:
        at = group.ends["input_ids"]
        start, stop = at[place], at[place + 1]
        for of, name in zip(views, names, strict=True):
            of.append(group.values[name][start:stop])
        ends.append(ends[-1] + stop - start)
    flat = np.empty((len(names), ends[-1]), np.int64)
    for of, out in zip(views, flat, strict=True):
        np.concatenate(of, out=out)
    return flat, ends


def _gathered(parts: Sequence[tuple[Group, int]], name: str) -> tuple[Int64Array, list[int]]:
    """Another column of the rows, end to end as int64, and where each row begins, and the last ends."""
    views, ends = [], [0]
    for group, place in parts:
        at = group.ends[name]
        views.append(group.values[name][at[place] : at[place + 1]])
        ends.append(ends[-1] + len(views[-1]))
    flat = np.empty(ends[-1], np.int64)
    np.concatenate(views, out=flat)
    return flat, ends


def _sequences(parts: Sequence[tuple[Group, int]], ends: list[int]) -> Int64Array:
    """Where attention sequences begin in the batch: int64 (A+1,). ends: where its rows do."""
    views = [_ZERO]
    for (group, place), base in zip(parts, ends, strict=False):
        at = group.ends["cu_seqlens"]
        views.append(np.add(group.values["cu_seqlens"][at[place] + 1 : at[place + 1]], base, dtype=np.int64))
    return np.concatenate(views)


def _next_tokens(parts: Sequence[tuple[Group, int]], layout: Layout) -> Int64Array:
    """Of each attention sequence; a row that is one sequence ends with its last segment."""
    values, ends = _gathered(parts, "next_tokens")
    return values[np.array(ends[1:]) - 1] if layout.boundaries == "row" else values


def _derived_labels(
    parts: Sequence[tuple[Group, int]],
    ids: Int64Array,
    offsets: Int64Array,
    sequences: Int64Array,
    next_tokens: Int64Array,
    layout: Layout,
) -> Int64Array:
    """What `--columns compact` leaves out."""
    labels = ids.copy()
    if layout.masked:
        spans, span_ends = _gathered(parts, "loss_spans")
        edges = spans + np.repeat(offsets[:-1], np.diff(span_ends))
        steps = np.zeros(len(ids) + 1, np.int64)
        np.add.at(steps, edges[::2], 1)
        np.add.at(steps, edges[1::2], -1)
        labels[np.cumsum(steps[:-1]) == 0] = IGNORE_INDEX
    if layout.labels == "aligned":
        labels[sequences[:-1]] = IGNORE_INDEX
        return labels
    return _shifted(labels, sequences[1:] - 1, next_tokens)


def _derived_positions(
    parts: Sequence[tuple[Group, int]],
    sequences: Int64Array,
    offsets: Int64Array,
    layout: Layout,
) -> Int64Array:
    if layout.positions == "row":
        return runs(np.zeros(len(offsets) - 1, np.int64), np.diff(offsets))
    if layout.positions == "segment":
        return runs(np.zeros(len(sequences) - 1, np.int64), np.diff(sequences))
    starts, per_row = _gathered(parts, "doc_starts")
    if layout.boundaries == "document":
        return runs(starts, np.diff(sequences))
    doc_ends, _ = _gathered(parts, "doc_lengths")
    lengths = doc_ends - starts  # every segment of a row but the last runs to its document's end
    last = np.array(per_row[1:]) - 1
    lengths[last] = 0
    lengths[last] = np.diff(offsets) - np.add.reduceat(lengths, per_row[:-1])
    return runs(starts, lengths)


def _shifted(labels: Int64Array, lasts: Int64Array, next_tokens: Int64Array) -> Int64Array:
    """Each position gets the label of the next; the last of a sequence what follows it."""
    result = np.empty_like(labels)
    result[:-1] = labels[1:]
    result[lasts] = next_tokens
    return result


def in_convention(batch: Batch, wanted: str) -> Batch:
    """The same batch with `aligned` or `shifted` labels. Before any padding."""
    if wanted not in LABELS:
        raise UsageError(f"labels {wanted!r}: {' or '.join(LABELS)}")
    if wanted == batch.convention:
        return batch
    if wanted == "shifted":
        labels = _shifted(batch.labels, batch.sequences[1:] - 1, batch.next_tokens)
    else:
        labels = np.empty_like(batch.labels)
        labels[1:] = batch.labels[:-1]
        labels[batch.sequences[:-1]] = IGNORE_INDEX
    return replace(batch, labels=labels, convention=wanted)


def with_segment_positions(batch: Batch) -> Batch:
    """Positions from 0 in each attention sequence, whatever the data set stores."""
    positions = runs(np.zeros(len(batch.lengths), np.int64), batch.lengths)
    return replace(batch, position_ids=positions)


def with_multiple(batch: Batch, multiple: int, pad_id: int) -> Batch:
    """Each attention sequence padded to a multiple, as context parallelism needs it."""
    lengths = np.diff(batch.sequences)
    padded = -(-lengths // multiple) * multiple
    sequences = offsets_of(padded)
    at = runs(sequences[:-1], lengths)
    total = int(sequences[-1])

    def spread(values: Int64Array, fill: int) -> Int64Array:
        result = np.full(total, fill, np.int64)
        result[at] = values
        return result

    positions = spread(batch.position_ids, 0)
    tails = runs(sequences[:-1] + lengths, padded - lengths)
    positions[tails] = runs(batch.position_ids[batch.sequences[1:] - 1] + 1, padded - lengths)
    first = np.searchsorted(batch.sequences, batch.rows)
    return replace(
        batch,
        input_ids=spread(batch.input_ids, pad_id),
        labels=spread(batch.labels, IGNORE_INDEX),
        position_ids=positions,
        rows=sequences[first],
        sequences=sequences,
        real=lengths,
    )


def padded_to(batch: Batch, tokens: int, segments: int | None, pad_id: int) -> Batch:
    """Exactly so many positions and, with `segments`, so many attention sequences. UsageError where it does not fit."""
    tail = tokens - len(batch.input_ids)
    present = len(batch.sequences) - 1
    if tail < 0:
        raise UsageError(f"a batch of {len(batch.input_ids)} tokens does not fit pad_to={tokens}")
    extra = min(tail, 1) if segments is None else segments - present
    if extra < 0 or extra > tail or (tail and not extra):
        raise UsageError(
            f"a batch of {present} sequences and {len(batch.input_ids)} tokens cannot become {segments} sequences of "
            f"{tokens} tokens: raise max_segments_to or pad_to"
        )
    if not tail:
        return batch
    cuts = len(batch.input_ids) + np.arange(1, extra + 1) * tail // extra
    lengths = np.diff(cuts, prepend=len(batch.input_ids))
    return replace(
        batch,
        input_ids=np.append(batch.input_ids, np.full(tail, pad_id)),
        labels=np.append(batch.labels, np.full(tail, IGNORE_INDEX)),
        position_ids=np.append(batch.position_ids, runs(np.zeros(extra, np.int64), lengths)),
        sequences=np.append(batch.sequences, cuts),
        real=np.append(batch.real, lengths),
        next_tokens=np.append(batch.next_tokens, np.full(extra, IGNORE_INDEX)),
    )


def as_rectangle(batch: Batch, multiple: int, pad_id: int) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """Rows below one another, padded to the longest: (R, L) each; and the attention mask. Rows of one sequence only."""
    lengths = np.diff(batch.rows)
    if len(batch.sequences) != len(batch.rows):
        raise UsageError(
            "layout padded holds one document a row: its attention mask cannot keep several apart; "
            "use layout varlen or transformers, or pack with --strategy none"
        )
    width = -(-int(lengths.max()) // multiple) * multiple
    at = runs(np.arange(len(lengths)) * width, lengths)
    fills = {"input_ids": pad_id, "labels": IGNORE_INDEX, "position_ids": 0}
    result = {}
    for name, fill in fills.items():
        flat = np.full(len(lengths) * width, fill, np.int64)
        flat[at] = getattr(batch, name)
        result[name] = flat.reshape(-1, width)
    mask = np.zeros(len(lengths) * width, np.int64)
    mask[at] = 1
    return result, mask.reshape(-1, width)
