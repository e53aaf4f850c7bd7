"""Plans in which only documents of one group share a row: each group is planned by itself, the largest first.

A group that fits in a row is that row, without a call: of a million small groups only those are planned that need
more than one row, of which there are few.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from packer.plan import Int32Array, Int64Array, offsets_of

RowsOf = Callable[[Int64Array], Int64Array]  # documents (k,) to the row of each, from 0 without a gap


def rows_by_group(
    rows_of: RowsOf, lengths: Int32Array, groups: Int64Array, max_length: int, max_segments: int | None = None
) -> Int64Array:
    """The row of each document, int64 (n,), from 0 without a gap. lengths: int32 (n,); groups: int64 (n,).

    rows_of: plans the documents of one group, given by their numbers; not called where all fit in one row.
    """
    order, offsets = by_size(lengths, groups)
    tokens = np.diff(offsets_of(lengths[order])[offsets])
    counts = np.diff(offsets)
    several = (tokens > max_length) | (counts > (max_segments or len(order)))
    row = np.empty(len(order), np.int64)
    rows = np.ones(len(counts), np.int64)
    for group in np.flatnonzero(several).tolist():
        members = order[offsets[group] : offsets[group + 1]]
        row[members] = rows_of(members)
        rows[group] = row[members].max() + 1
    row[order[np.repeat(~several, counts)]] = 0
    row[order] += np.repeat(offsets_of(rows)[:-1], counts)
    return row


def by_size(lengths: Int32Array, groups: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Documents by group, in their order within it, the group of most tokens first: int64 (n,), and where each of the
    g groups begins: int64 (g+1,)."""
    names, index = np.unique(groups, return_inverse=True)
    tokens = np.bincount(index, weights=lengths, minlength=len(names))
    rank = np.empty(len(names), np.int64)
    rank[np.argsort(-tokens, kind="stable")] = np.arange(len(names))
    return np.argsort(rank[index], kind="stable"), offsets_of(np.bincount(rank[index], minlength=len(names)))
