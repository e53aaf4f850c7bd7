"""Exact best-fit and first-fit decreasing on the histogram of lengths: the time depends on the distinct lengths.

Documents come longest first, so many equal ones come in a run, and rows that were filled alike have the same room
left. Both rules keep filling the row they have just chosen while it has room (best fit: its room has only become
tighter; first fit: it is still the first), so a row with room r takes r // L documents of length L before the next
row is touched. Consecutive rows with the same room therefore move as one group:

    max_length 10, lengths 4 4 4 4 3 3 2 (longest first)
    4 x4   no row yet: rows 0-1 open and take 2 each        room 2: rows 0-1
    3 x2   no room of 3: row 2 opens and takes both         room 2: rows 0-1, room 4: row 2
    2 x1   best fit: the tightest room of at least 2        row 0 takes it

A group that moves is left with less than half its room (r mod L < r / 2), so it moves at most log2(max_length) times,
and each distinct length splits at most one group. What is recorded is one line a move, (first row, rows, documents a
row, length); array operations turn that into a row for each document.

The rule alone differs, so it is the parameter: a `Pool` holds the groups that still have room and says which one a
length goes to. Rows limited to `max_segments` documents are groups by room and free slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from packer.lengths import Histogram
from packer.packing.placing import descending, plan_from_rows
from packer.plan import Int32Array, Int64Array, Plan, offsets_of

Group = tuple[int, int, int, int]  # first row, rows, room, free slots
UNLIMITED = 1 << 62


class Pool(Protocol):
    def take(self, length: int) -> Group | None:
        """Removes and returns the group whose first row the rule chooses for this length, if any row has room."""

    def put(self, group: Group) -> None: ...


PoolOf = Callable[[Int64Array], Pool]  # of distinct lengths, ascending


def pack_decreasing(
    lengths: Int32Array, max_length: int, pool: PoolOf, *, max_segments: int | None, rng: np.random.Generator
) -> Plan:
    """Places documents longest first, each in the row that the pool's rule chooses."""
    return plan_of_moves(moves_of(Histogram.of(lengths), max_length, pool, max_segments=max_segments), lengths, rng)


def plan_of_moves(moves: Moves, lengths: Int32Array, rng: np.random.Generator) -> Plan:
    """The plan for these documents, of which those of equal length change places with `rng`."""
    order = descending(lengths, rng)
    row = np.empty(len(lengths), np.int64)
    row[order] = rows_of_moves(moves)
    return plan_from_rows(row, lengths)


@dataclass(frozen=True)
class Moves:
    """A plan for a histogram of lengths, in the order of placing, longest first: move i puts each[i] documents of
    length[i] into each of the rows first[i] to first[i] + rows[i]. All int64 (m,). Rows count from 0."""

    first: Int64Array
    rows: Int64Array
    each: Int64Array
    length: Int64Array


class AlikeRows:
    """Runs of consecutive rows that hold the same: they end where some move begins or ends. sizes: int64 (k,), rows of
    each run; begin, end: int64 (m,), the runs of a move are those from `begin` to below `end`."""

    def __init__(self, moves: Moves) -> None:
        starts, ends = moves.first, moves.first + moves.rows
        edges = np.unique(np.concatenate([starts, ends]))
        self.sizes: Int64Array = np.diff(edges)
        self.begin, self.end = np.searchsorted(edges, starts), np.searchsorted(edges, ends)

    def summed(self, values: Int64Array) -> Int64Array:
        """What a row of each run comes to, int64 (k,), where a row of each move has these values, int64 (m,)."""
        change = np.zeros(len(self.sizes) + 1, np.int64)
        np.add.at(change, self.begin, values)
        np.add.at(change, self.end, -values)
        return np.cumsum(change)[:-1]


def moves_of(
    histogram: Histogram,
    max_length: int,
    pool_of: PoolOf,
    *,
    max_segments: int | None = None,
    started: Sequence[Group] = (),
) -> Moves:
    """Places all documents, none longer than max_length. Time and memory depend on the distinct lengths alone.

    started: rows that hold something already, numbered from 0, which the moves returned do not tell of.
    """
    pool = pool_of(histogram.lengths)
    slots_per_row = max_segments or UNLIMITED
    moves: list[tuple[int, int, int, int]] = []
    opened = sum(rows for _, rows, _, _ in started)
    lengths, counts = histogram.lengths[::-1].tolist(), histogram.counts[::-1].tolist()
    shortest = lengths[-1] if lengths else 0
    for group in started:
        if lengths and group[2] >= shortest and group[3]:
            pool.put(group)
    for length, left in zip(lengths, counts, strict=True):
        while left:
            taken_from = pool.take(length)
            if taken_from is None:
                rows = -(-left // min(max_length // length, slots_per_row))
                taken_from = (opened, rows, max_length, slots_per_row)
                opened += rows
            first, rows, room, slots = taken_from
            each = room // length
            if each > slots:  # `min` would take a fifth of the time
                each = slots
            filled = left // each  # rows that take as many as they can
            if filled > rows:
                filled = rows
            parts = [(filled, each)] if filled else []
            left -= filled * each
            if left and filled < rows:  # the last documents of this length do not fill their row
                parts.append((1, left))
                left, filled = 0, filled + 1
            for n, taken in parts:
                moves.append((first, n, taken, length))
                if room - taken * length >= shortest and slots > taken:
                    pool.put((first, n, room - taken * length, slots - taken))
                first += n
            if filled < rows:
                pool.put((first, rows - filled, room, slots))
    return Moves(*np.array(moves, np.int64).reshape(-1, 4).T)


def rows_of_moves(moves: Moves) -> Int64Array:
    """The row of each document, in the order of placing.   (5, 2, 3) -> 5 5 5 6 6 6"""
    documents = moves.rows * moves.each
    index = np.arange(documents.sum()) - np.repeat(offsets_of(documents)[:-1], documents)
    row: Int64Array = np.repeat(moves.first, documents) + index // np.repeat(moves.each, documents)
    return row
