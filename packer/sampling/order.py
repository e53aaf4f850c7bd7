"""The rows of an epoch in the order in which they are read.

Where any row can be read alone (Arrow, uncompressed) the order is an exact permutation. Where a row costs its whole
group (Parquet), groups are shuffled, and rows within a buffer of as many groups as are held at a time:

    groups A B C D, a buffer of two      C A | D B      rows of C and A shuffled together, then those of D and B
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from packer.plan import BoolArray, Int64Array, offsets_of, runs


@dataclass(frozen=True)
class Order:
    """rows: int64 (n,), row numbers; windows: int64 (w+1,), rows[windows[i]:windows[i+1]] can be read in any order at
    the same cost, so what sorts rows does it within a window."""

    rows: Int64Array
    windows: Int64Array

    def without(self, taken: BoolArray) -> Order:
        """What is left, in the same order. taken: bool (rows of the data set,), by row number."""
        left = ~taken[self.rows]
        return Order(self.rows[left], offsets_of(left.astype(np.int8))[self.windows])

    def counted_from(self, first: int) -> Order:
        """The same of rows that are numbered from `first` on."""
        return Order(self.rows + first, self.windows)

    @classmethod
    def joined(cls, orders: Sequence[Order]) -> Order:
        """One after another."""
        ends = offsets_of(np.array([len(order.rows) for order in orders]))
        windows = [order.windows[1:] + end for order, end in zip(orders, ends[:-1].tolist(), strict=True)]
        return cls(np.concatenate([order.rows for order in orders]), np.concatenate([[0], *windows]))


def epoch_order(
    group_rows: Int64Array,
    seed: int,
    epoch: int,
    *key: int,
    shuffle: bool = True,
    buffer_groups: int | None = None,
) -> Order:
    """group_rows: int64 (g,), rows of each group in file order. buffer_groups: groups held at a time; None where every
    row can be read alone. key: for another order of the same seed and epoch."""
    first = offsets_of(group_rows)
    total = int(first[-1])
    if not shuffle:
        windows = first if buffer_groups else np.array([0, total])
        return Order(np.arange(total), windows)
    rng = np.random.default_rng(np.random.SeedSequence([seed, epoch, *key]))
    if buffer_groups is None:
        return Order(rng.permutation(total), np.array([0, total]))
    order = rng.permutation(len(group_rows))
    rows = runs(first[:-1][order], group_rows[order])
    ends = offsets_of(group_rows[order])
    windows = np.append(ends[:-1][::buffer_groups], ends[-1])
    for start, stop in zip(windows[:-1].tolist(), windows[1:].tolist(), strict=True):
        rng.shuffle(rows[start:stop])
    return Order(rows, windows)
