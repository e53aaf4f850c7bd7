"""Documents longer than a row, too short to keep, or with nothing to train on: what becomes of them, and what it costs.

Runs before a strategy: documents become pieces of at most max_length tokens, and every token that is in no piece is
counted in `Losses`. Policies, for a document of 9 tokens and max_length 4:

    split          [0:4] [4:8] [8:9]    nothing lost
    truncate       [0:4]                5 tokens lost, at the end
    truncate-left  [5:9]                5 tokens lost, at the start
    drop                                the document lost
    error                               refused
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from packer.errors import PackerError
from packer.plan import BoolArray, Int32Array, Int64Array, runs


@dataclass(frozen=True)
class Losses:
    """What is not in the rows, in documents and tokens, by reason; trained tokens are those of documents with a loss
    mask. Adds up over blocks."""

    truncated_documents: int = 0
    truncated_tokens: int = 0
    dropped_documents: int = 0  # longer than max_length, --overlong drop
    dropped_tokens: int = 0
    short_documents: int = 0  # shorter than --min-tokens
    short_tokens: int = 0
    untrained_documents: int = 0  # with a loss mask that leaves nothing to train on
    untrained_tokens: int = 0
    truncated_trained_tokens: int = 0
    dropped_trained_tokens: int = 0
    short_trained_tokens: int = 0
    untrained_trained_tokens: int = 0  # which truncation cut off, or which are a document's first

    def __add__(self, other: Losses) -> Losses:
        return Losses(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    @property
    def documents(self) -> int:
        """Documents of which no token is in a row."""
        return self.dropped_documents + self.short_documents + self.untrained_documents

    @property
    def trained_tokens(self) -> int:
        return (
            self.truncated_trained_tokens
            + self.dropped_trained_tokens
            + self.short_trained_tokens
            + self.untrained_trained_tokens
        )

    @property
    def tokens(self) -> int:
        return self.truncated_tokens + self.dropped_tokens + self.short_tokens + self.untrained_tokens


@dataclass(frozen=True)
class Pieces:
    """Slices of documents, in document order. doc: int64 (p,); start, length: int32 (p,)."""

    doc: Int64Array
    start: Int32Array
    length: Int32Array


@dataclass(frozen=True)
class Kept:
    """The part of each document that may be placed, [start, stop), empty where the document is left out: int32 (n,)."""

    start: Int32Array
    stop: Int32Array
    losses: Losses


class OverlongError(PackerError):
    """`--overlong error` met a document that is too long. `document` is its position among the lengths."""

    def __init__(self, document: int, length: int, max_length: int) -> None:
        self.document, self.length, self.max_length = document, length, max_length
        super().__init__(f"document {document} has {length} tokens, more than --max-length {max_length}")


def keep(
    lengths: Int32Array,
    max_length: int,
    policy: str | None,
    *,
    min_tokens: int = 0,
    trained: Trained | None = None,
) -> Kept:
    """Applies the policy (None: truncate documents with a loss mask, split the others) to lengths int32 (n,)."""
    start, stop = np.zeros_like(lengths), lengths.copy()
    short = lengths < min_tokens
    long = (lengths > max_length) & ~short
    if policy == "error" and long.any():
        first = int(np.flatnonzero(long)[0])
        raise OverlongError(first, int(lengths[first]), max_length)
    masked = np.zeros(len(lengths), np.bool_) if trained is None else trained.masked
    cut = (long & masked) if policy is None else long & (policy in ("truncate", "truncate-left"))
    stop[cut] = max_length
    if policy == "truncate-left":
        start[cut] = lengths[cut] - max_length
        stop[cut] = lengths[cut]
    dropped = long if policy == "drop" else np.zeros_like(long)
    untrained = np.zeros_like(long)
    if trained is not None:
        untrained = masked & ~short & ~dropped & (trained.count(start, stop) == 0)
    out = short | dropped | untrained
    stop[out] = start[out]
    cut &= ~out
    lost = {}
    if trained is not None:
        lost = {
            f"{reason}_trained_tokens": trained.lost(start, stop, lengths, masked & chosen)
            for reason, chosen in (
                ("truncated", cut),
                ("dropped", dropped),
                ("short", short),
                ("untrained", untrained),
            )
        }
    return Kept(
        start,
        stop,
        Losses(
            truncated_documents=int(cut.sum()),
            truncated_tokens=_total(lengths, cut) - max_length * int(cut.sum()),
            dropped_documents=int(dropped.sum()),
            dropped_tokens=_total(lengths, dropped),
            short_documents=int(short.sum()),
            short_tokens=_total(lengths, short),
            untrained_documents=int(untrained.sum()),
            untrained_tokens=_total(lengths, untrained),
            **lost,
        ),
    )


def _total(lengths: Int32Array, chosen: BoolArray) -> int:
    return int(lengths[chosen].sum(dtype=np.int64))


@dataclass(frozen=True)
class Trained:
    """Trained tokens of documents laid end to end. masked: bool (n,), documents that came with a loss mask;
    offsets: int64 (n+1,); before: int32 (t+1,), trained tokens before each position of the flat token array."""

    masked: BoolArray
    offsets: Int64Array
    before: Int32Array

    @classmethod
    def of(cls, mask: BoolArray, masked: BoolArray, offsets: Int64Array) -> Trained:
        before = np.zeros(len(mask) + 1, np.int32)
        np.cumsum(mask, out=before[1:])
        return cls(masked, offsets, before)

    def count(self, start: Int32Array, stop: Int32Array) -> Int32Array:
        """Predictions that document [start:stop] trains: trained tokens after its first, which nothing predicts."""
        first = self.offsets[:-1] + start
        last = self.offsets[:-1] + stop
        result: Int32Array = self.before[last] - self.before[np.minimum(first + 1, last)]
        return result

    def lost(self, start: Int32Array, stop: Int32Array, lengths: Int32Array, chosen: BoolArray) -> int:
        """Trained tokens of the chosen documents, bool (n,), that lie outside of [start:stop]."""
        first = self.offsets[:-1][chosen]
        all_of = self.before[first + lengths[chosen]] - self.before[first]
        kept = self.before[first + stop[chosen]] - self.before[first + start[chosen]]
        return int((all_of - kept).sum(dtype=np.int64))


def split(kept: Kept, max_length: int) -> Pieces:
    """Cuts what is kept of each document into pieces of max_length and a remainder."""
    total = kept.stop - kept.start
    counts = -(-total // max_length)
    doc = np.repeat(np.arange(len(total)), counts)
    index = runs(np.zeros(len(total), np.int64), counts)
    start = index * max_length
    length = np.minimum(total[doc] - start, max_length)
    return Pieces(doc, (kept.start[doc] + start).astype(np.int32), length.astype(np.int32))


def whole(kept: Kept) -> Pieces:
    """One piece a document, of any length: for strategies that cut for themselves."""
    doc = np.flatnonzero(kept.stop > kept.start)
    return Pieces(doc, kept.start[doc], kept.stop[doc] - kept.start[doc])
