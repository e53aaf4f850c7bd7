"""Windows of N tokens every S tokens: where they begin, what they hold, and what they cost. Arrays in, arrays out.

A window at s holds tokens s to s + N, and its labels are tokens s + 1 to s + N + 1: with all labels real it needs N + 1
tokens. One document of 18 tokens, N = 4, S = 4, and what `tail` adds to the windows with all labels ("full"):

    full     [0:4] [4:8] [8:12] [12:16]     the last predicts token 16; token 17 is left
    drop     nothing
    keep     [16:18]                        at the next multiple of S; labels 17 and none
    align    [13:17]                        moved back to N + 1 tokens before the end: all labels real

A tail that would predict nothing is not added. Windows are counted, not listed: those of a document are numbered, and
`Windows.take` says of any of them where it lies, so that memory need not hold them all.

In corpus scope the documents, end to end, are one long document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array, Plan, offsets_of, runs
from packer.schema import Scope, Tail


@dataclass(frozen=True)
class Windowing:
    """How windows are cut, but for their size. stride: tokens from one window's start to the next; mask_overlap: a
    label that an earlier window already had is not trained; allow_gaps: stride may be above the size."""

    stride: int
    scope: Scope = "document"
    tail: Tail = "keep"
    mask_overlap: bool = False
    allow_gaps: bool = False


@dataclass(frozen=True)
class Taken:
    """Some windows. doc: int64 (w,), the document's position among the lengths; start, length: int64 (w,), tokens;
    seen: int64 (w,), leading labels that an earlier window has too, fewer than the window's labels unless
    `mask_overlap` is off and the tail predicts nothing new."""

    doc: Int64Array
    start: Int64Array
    length: Int64Array
    seen: Int64Array


@dataclass(frozen=True)
class Windows:
    """The windows of documents. n, full, tail_start, tail_length: int64 (d,): tokens; windows with all labels, at 0, S,
    2 S, ...; and the tail after them, of length 0 where there is none. Starts and ends rise from window to window."""

    size: int
    stride: int
    n: Int64Array
    full: Int64Array
    tail_start: Int64Array
    tail_length: Int64Array

    @cached_property
    def counts(self) -> Int64Array:
        """Windows of each document: int64 (d,)."""
        return self.full + (self.tail_length > 0)

    @cached_property
    def offsets(self) -> Int64Array:
        """Document d has windows offsets[d] to offsets[d+1]: int64 (d+1,)."""
        return offsets_of(self.counts)

    @property
    def total(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def reached(self) -> Int64Array:
        """The last token that a full window predicts, 0 where there is none (nothing predicts token 0): int64 (d,)."""
        return np.where(self.full > 0, (self.full - 1) * self.stride + self.size, 0)

    def take(self, numbers: Int64Array) -> Taken:
        """The windows of these numbers: int64 (w,), 0 to total."""
        doc = np.searchsorted(self.offsets, numbers, side="right") - 1
        index = numbers - self.offsets[doc]
        tail = index == self.full[doc]
        start = np.where(tail, self.tail_start[doc], index * self.stride)
        before = np.where(tail, self.reached[doc], (index - 1) * self.stride + self.size)
        return Taken(
            doc=doc,
            start=start,
            length=np.where(tail, self.tail_length[doc], self.size),
            seen=np.where(index > 0, np.maximum(before - start, 0), 0),
        )

    def begun_before(self, position: Int64Array) -> Int64Array:
        """For one document: its windows that begin before each position, int64 (p,)."""
        full = np.clip(-(-position // self.stride), 0, self.full[0])
        result: Int64Array = full + ((self.tail_length[0] > 0) & (self.tail_start[0] < position))
        return result

    def ended_by(self, position: Int64Array) -> Int64Array:
        """For one document: its windows that end at each position or before, int64 (p,)."""
        full = np.clip((position - self.size) // self.stride + 1, 0, self.full[0])
        result: Int64Array = full + ((self.tail_length[0] > 0) & (self.tail_start[0] + self.tail_length[0] <= position))
        return result


def windows_of(lengths: NDArray[np.integer], size: int, windowing: Windowing, *, shortest: int = 2) -> Windows:
    """The windows of documents of these lengths, (d,), whatever `windowing.scope` says (see `plan`).

    shortest: tokens below which a tail is not added; one token alone has nothing to predict.
    """
    n, stride = lengths.astype(np.int64), windowing.stride
    full = np.where(n > size, (n - size - 1) // stride + 1, 0)
    reached = np.where(full > 0, (full - 1) * stride + size, 0)
    left = n - 1 > reached  # predictions
    if windowing.tail == "keep":
        start = full * stride
        length = n - start
        wanted = (length >= shortest) & (left | (not windowing.mask_overlap))
    else:
        start = np.maximum(n - size - 1, 0)
        length = np.minimum(n, size)
        wanted = left & (windowing.tail == "align")
    return Windows(size, stride, n, full, np.where(wanted, start, 0), np.where(wanted, length, 0))


def pieces(
    offsets: Int64Array, starts: Int64Array, lengths: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Slices of a stream as slices of the documents that lie in it end to end.

    offsets: int64 (d+1,), where each document begins in the stream; starts, lengths: int64 (w,); none is empty.
    Returns doc, start, length: int64 (p,), and where the pieces of each slice begin among them: int64 (w+1,).

        documents of 3, 4 and 2 tokens, slice [1:8]   ->   doc 0 [1:3], doc 1 [0:4], doc 2 [0:1]
    """
    first = np.searchsorted(offsets, starts, side="right") - 1
    counts = np.searchsorted(offsets, starts + lengths) - first
    doc = runs(first, counts)
    start = np.maximum(np.repeat(starts, counts), offsets[doc])
    stop = np.minimum(np.repeat(starts + lengths, counts), offsets[doc + 1])
    return doc, start - offsets[doc], stop - start, offsets_of(counts)


def plan(
    lengths: NDArray[np.integer], size: int, windowing: Windowing, *, shortest: int = 2
) -> tuple[Plan, Int64Array]:
    """All windows of documents of these lengths, (d,), each at least 1; one window a row, in the order of the input.

    Also the leading labels of each window that an earlier one has too: int64 (R,).
    """
    offsets = offsets_of(lengths)
    if windowing.scope == "corpus":
        windows = windows_of(offsets[-1:], size, windowing, shortest=shortest)
        bases = np.zeros(1, np.int64)
    else:
        windows, bases = windows_of(lengths, size, windowing, shortest=shortest), offsets
    taken = windows.take(np.arange(windows.total))
    doc, start, length, row_offsets = pieces(offsets, bases[taken.doc] + taken.start, taken.length)
    return Plan(doc, start.astype(np.int32), length.astype(np.int32), row_offsets), taken.seen


@dataclass(frozen=True)
class Coverage:
    """What windows make of documents. tokens: of all windows; distinct_tokens: of the documents, those in a window;
    duplication: tokens by distinct tokens; unseen_tokens: in no window. predictions: labels, loss masks aside, and how
    many a token has, over all but the first token of each document (of the corpus, in corpus scope)."""

    windows: int
    tokens: int
    distinct_tokens: int
    duplication: float
    unseen_tokens: int
    predictions: int
    predictions_min: int
    predictions_mean: float
    predictions_max: int


def coverage(
    lengths: NDArray[np.integer], size: int, windowing: Windowing, *, counts: NDArray[np.integer] | None = None
) -> Coverage:
    """What `plan` would give, without making it. counts: (d,), how many documents have each length; None: one each.

    >>> coverage(np.array([18]), 4, Windowing(stride=2)).windows
    8
    """
    times = np.ones(len(lengths), np.int64) if counts is None else counts.astype(np.int64)
    n = lengths.astype(np.int64)
    if windowing.scope == "corpus":
        n, times = np.array([(n * times).sum()]), np.ones(1, np.int64)
    w = windows_of(n, size, windowing)
    has_tail = w.tail_length > 0
    tail_stop = w.tail_start + w.tail_length
    held = np.where(w.full > 0, (w.full - 1) * min(size, w.stride) + size, 0)  # distinct tokens of the full windows
    end = np.where(w.full > 0, (w.full - 1) * w.stride + size, 0)
    distinct = held + np.where(has_tail, tail_stop - np.maximum(w.tail_start, end), 0)
    tail_labels = np.where(has_tail, np.minimum(tail_stop, n - 1) - w.tail_start, 0)
    tail_new = np.where(has_tail, np.minimum(tail_stop, n - 1) - np.maximum(w.tail_start, w.reached), 0)
    predicted = held + tail_new  # distinct tokens that some label is
    labels = predicted if windowing.mask_overlap else w.full * size + tail_labels
    most = np.minimum(labels, 1) if windowing.mask_overlap else _most(w, tail_labels)
    tokens, seen, predictions = (int((v * times).sum()) for v in (w.full * size + w.tail_length, distinct, labels))
    predictable = int((np.maximum(n - 1, 0) * times).sum())
    return Coverage(
        windows=int((w.counts * times).sum()),
        tokens=tokens,
        distinct_tokens=seen,
        duplication=tokens / seen if seen else 0.0,
        unseen_tokens=int((n * times).sum()) - seen,
        predictions=predictions,
        predictions_min=int(0 < predictable == int((predicted * times).sum())),
        predictions_mean=predictions / predictable if predictable else 0.0,
        predictions_max=int(most[times > 0].max(initial=0)),
    )


def _most(w: Windows, tail_labels: Int64Array) -> Int64Array:
    """The most labels that one token has: int64 (d,). Full windows overlap most from the start of the last one on; from
    its own start on a tail adds one to those that still reach so far."""
    deep = -(-w.size // w.stride)
    first = np.maximum(-(-(w.tail_start + 1 - w.size) // w.stride), 0)  # full window that still has that label
    with_tail = 1 + np.maximum(w.full - first, 0)
    return np.maximum(np.minimum(w.full, deep), np.where(tail_labels > 0, with_tail, 0))
