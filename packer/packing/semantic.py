"""Rows whose documents belong together: Threshold Filtering Packing (Dong et al. 2025), at a bounded loss of fill.

    buckets   documents cut into neighbourhoods (`packer.packing.buckets`)
    walk      rows made of them, nearest document next, near-duplicates apart (`packer.packing.walk`)
    close     the emptiest rows dissolved, their documents placed by best fit

The emptiest rows are dissolved, as few of them as will do, and their documents placed by best fit: until at most LOSS
more rows are needed than by best fit alone. Where lengths leave no choice the plan is best fit's.

Without vectors all that can be said of documents is their group, and rows are best fit's within each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from packer.packing import SIMILARITY_THRESHOLD, bfd
from packer.packing.buckets import buckets
from packer.packing.grouped import by_size, rows_by_group
from packer.packing.placing import plan_from_rows
from packer.packing.walk import walk
from packer.plan import Int32Array, Int64Array, Plan
from packer.similarity import Traits
from packer.similarity.vectors import inverse_norms

BUCKET = 1024  # documents compared with one another
LOSS = 0.02  # rows beyond best fit's
SEARCH = 64  # parts of the walk's rows by which is told how many to dissolve


def pack(
    lengths: Int32Array,
    max_length: int,
    *,
    max_segments: int | None = None,
    rng: np.random.Generator,
    traits: Traits | None = None,
    threshold: float = SIMILARITY_THRESHOLD,
) -> Plan:
    """See `packer.packing`. traits: of the documents that the lengths are of; threshold: the cosine similarity above
    which two documents are nearly the same, and do not share a row while another fits."""
    closing = _Closing(lengths, max_length, max_segments, rng, None if traits is None else traits.groups)
    everything = np.arange(len(lengths))
    best_fit = closing.rows_of(everything)
    if traits is None or traits.vectors is None or not len(lengths):
        return plan_from_rows(best_fit, lengths)
    most = int((best_fit.max() + 1) * (1 + LOSS))
    shared = rng.permutation(np.flatnonzero(lengths <= max_length - lengths.min()))  # ties are the seed's
    inverse = inverse_norms(traits.vectors)
    walked = []
    for group in _of_several_rows(closing, shared):
        walked += buckets(traits.vectors, inverse, group, BUCKET, rng)
    row = walk(traits.vectors, inverse, lengths, walked, max_length, max_segments, threshold)
    return plan_from_rows(_within(row, most, closing), lengths)


@dataclass(frozen=True)
class _Closing:
    """Best fit for some of the documents, within their groups."""

    lengths: Int32Array
    max_length: int
    max_segments: int | None
    rng: np.random.Generator
    groups: Int64Array | None

    def rows_of(self, documents: Int64Array) -> Int64Array:
        """The row of each, from 0: int64 (k,)."""
        lengths = self.lengths[documents]

        def best_fit(chosen: Int64Array) -> Int64Array:
            plan = bfd.pack(lengths[chosen], self.max_length, max_segments=self.max_segments, rng=self.rng)
            return plan.document_rows()

        if self.groups is None:
            return best_fit(np.arange(len(documents)))
        return rows_by_group(best_fit, lengths, self.groups[documents], self.max_length, self.max_segments)


def _of_several_rows(closing: _Closing, documents: Int64Array) -> list[Int64Array]:
    """The documents of each group that needs more than one row: in the others there is nothing to choose."""
    if closing.groups is None:
        return [documents]
    order, offsets = by_size(closing.lengths[documents], closing.groups[documents])
    parts = np.split(documents[order], offsets[1:-1])
    most = closing.max_segments or len(documents)
    return [
        part for part in parts if len(part) > most or closing.lengths[part].sum(dtype=np.int64) > closing.max_length
    ]


def _within(row: Int64Array, most: int, closing: _Closing) -> Int64Array:
    """The rows of the walk (-1: none) with all other documents placed by best fit, in at most `most` rows.

    Of the walk's rows as few are dissolved as a search by halves finds, the emptiest first.
    """
    counts = np.bincount(row[row >= 0])
    tokens = np.bincount(row[row >= 0], weights=closing.lengths[row >= 0], minlength=len(counts))
    emptiest = np.argsort(tokens, kind="stable")
    few, many = -1, len(counts)  # too few to dissolve, and enough
    found = _dissolved(row, emptiest[many:], closing)
    while many - few > max(1, len(counts) // SEARCH):
        middle = (few + many) // 2
        tried = _dissolved(row, emptiest[middle:], closing)
        if tried.max() < most:
            many, found = middle, tried
        else:
            few = middle
    return found


def _dissolved(row: Int64Array, kept: Int64Array, closing: _Closing) -> Int64Array:
    """The kept rows, and all other documents in rows of best fit: int64 (n,)."""
    number = np.full(row.max(initial=0) + 2, -1, np.int64)  # the last: of documents without a row
    number[np.sort(kept)] = np.arange(len(kept))
    result = number[row]
    rest = np.flatnonzero(result < 0)
    result[rest] = len(kept) + closing.rows_of(rest)
    return result
