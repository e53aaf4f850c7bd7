"""Pricing: the most valuable contents of a row, by dynamic programming over its capacity.

    best[c] = max(best[c - 1], max over lengths l <= c of best[c - l] + value[l])

No best[c] depends on one less than the shortest length below it, so that many entries are computed at once: each is the
maximum over a window of the table so far, plus the values. Where a row may hold only so many documents, there is a
table for each number of them, and each is computed from the one before as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from packer.plan import Int64Array

NEVER = -(1 << 61)  # two of them still fit into int64
WINDOW_CELLS = 1 << 20  # compared at a time
FEW = 8  # entries that do not depend on one another: with fewer they are computed one by one
CALL = 2000  # cells that take as long as calling NumPy for one capacity


class Knapsack:
    """Contents of rows of `capacity`, of any number of pieces of each length.

    lengths: int64 (d,), distinct, ascending, 1 to capacity. max_items: pieces that a row may hold.
    """

    def __init__(self, lengths: Int64Array, capacity: int, max_items: int | None = None) -> None:
        self.lengths, self.capacity = lengths, capacity
        most = capacity // int(lengths[0])
        self.layers = max_items if max_items is not None and max_items < most else None
        self._low, self._high = int(lengths[0]), int(lengths[-1])
        self._width = self._high - self._low + 1
        calls = CALL // min(self._low, FEW)
        self.cells = (self._width + calls) * (capacity - self._low + 1) * (self.layers or 1)  # work of one search

    def best(self, values: Int64Array) -> Contents:
        """values: int64 (d,), at least 0, of which the largest times capacity is within int64."""
        by_length = np.full(self._width, NEVER)
        by_length[self._high - self.lengths] = np.where(values > 0, values, NEVER)  # longest first
        if self.layers is None:
            best, item, at = self._unlimited(by_length)
            return Contents(self, values, best[None], item[None], at[None])
        tables = [(np.zeros(self.capacity + 1, np.int64), np.zeros(self.capacity + 1, np.int64))]
        for _ in range(self.layers):
            tables.append(self._one_more(tables[-1][0], by_length))
        best, item = (np.stack(each) for each in zip(*tables, strict=True))
        return Contents(self, values, best, item, None)

    def _unlimited(self, by_length: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
        """best; the length put in last; the fill at which best was reached, which that length belongs to."""
        low, size = self._low, self.capacity + 1
        padded = np.full(self._high + size, NEVER)
        best = padded[self._high :]
        best[:low] = 0
        windows = sliding_window_view(padded, self._width)  # sees what is written to it later
        item, at = np.zeros(size, np.int64), np.zeros(size, np.int64)
        if low < FEW:
            self._one_by_one(windows, by_length, best, item, at)
            return best, item, at
        for first, last in self._blocks(low):
            value, item[first:last] = self._chosen(windows, by_length, first, last)
            gained = np.maximum.accumulate(value)
            reached = np.maximum(gained, best[first - 1])
            places = np.arange(first, last)
            places[(value < reached) | (value == best[first - 1]) | (np.diff(gained, prepend=NEVER) == 0)] = 0
            at[first:last] = np.maximum(np.maximum.accumulate(places), at[first - 1])
            best[first:last] = reached
        return best, item, at

    def _one_by_one(
        self, windows: Int64Array, by_length: Int64Array, best: Int64Array, item: Int64Array, at: Int64Array
    ) -> None:
        """The same where so few entries are independent that looking at them together takes longer."""
        most, place = 0, 0
        sums = np.empty_like(by_length)
        for fill in range(self._low, self.capacity + 1):
            np.add(windows[fill], by_length, out=sums)
            chosen = sums.argmax()
            if (value := int(sums[chosen])) > most:
                most, place = value, fill
                item[fill] = self._high - chosen
            best[fill], at[fill] = most, place

    def _one_more(self, before: Int64Array, by_length: Int64Array) -> tuple[Int64Array, Int64Array]:
        windows = sliding_window_view(np.concatenate([np.full(self._high, NEVER), before]), self._width)
        best, item = before.copy(), np.zeros(len(before), np.int64)
        for first, last in self._blocks(self.capacity):
            value, length = self._chosen(windows, by_length, first, last)
            gained = value > before[first:last]
            best[first:last] = np.where(gained, value, before[first:last])
            item[first:last] = np.where(gained, length, 0)
        return best, item

    def _blocks(self, independent: int) -> Iterator[tuple[int, int]]:
        """Capacities that are looked at together, from the shortest length on."""
        step = max(1, min(independent, WINDOW_CELLS // self._width))
        for first in range(self._low, self.capacity + 1, step):
            yield first, min(first + step, self.capacity + 1)

    def _chosen(
        self, windows: Int64Array, by_length: Int64Array, first: int, last: int
    ) -> tuple[Int64Array, Int64Array]:
        """For each capacity from first to last the best last piece: the value with it, and its length."""
        sums = windows[first:last] + by_length
        place = sums.argmax(axis=1)
        return sums[np.arange(last - first), place], self._high - place


class Contents:
    """The tables of one search. best, item: int64 (layers, capacity + 1); at: the same, or None with layers."""

    def __init__(
        self, knapsack: Knapsack, values: Int64Array, best: Int64Array, item: Int64Array, at: Int64Array | None
    ) -> None:
        self._of, self._values, self._best, self._item, self._at = knapsack, values, best, item, at

    @property
    def value(self) -> int:
        """Of the best row."""
        return int(self._best[-1, -1])

    def with_each(self, above: int) -> tuple[Int64Array, Int64Array]:
        """The best row that holds each length, of those that are worth more than `above`: the lengths' places, int64
        (k,), and what the rows hold, int64 (k, most pieces), longest first, then zeros."""
        top = max(len(self._best) - 2, 0)  # the length itself is one of the pieces
        worth = self._values + self._best[top, self._of.capacity - self._of.lengths]
        chosen = np.flatnonzero(worth > above)
        lengths = self._of.lengths[chosen]
        return chosen, self._traced(lengths, self._of.capacity - lengths, top)

    def _traced(self, lengths: Int64Array, room: Int64Array, layer: int) -> Int64Array:
        """The pieces of which a table's entries were made, the last one first."""
        pieces = [lengths]
        while self._at is not None and (room := self._at[0, room]).any():
            pieces.append(np.where(room > 0, self._item[0, room], 0))
            room = room - pieces[-1]
        for below in range(layer, 0, -1) if self._at is None else ():
            pieces.append(self._item[below, room])
            room = room - pieces[-1]
        return -np.sort(-np.stack(pieces, axis=1), axis=1)
