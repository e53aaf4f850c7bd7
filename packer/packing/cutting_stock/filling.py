"""From chosen patterns to a plan: documents into the places of patterns, the rest into the room that is left.

A place for a piece of one length takes a shorter document too. Longest documents first, each takes the shortest place
that is free and holds it; as every free place then also holds all that come later, no other way places more. What finds
no place goes by best fit into the room of the rows, or into new ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from packer.lengths import Histogram
from packer.packing.bfd import TightestRoom
from packer.packing.cutting_stock.patterns import Sparse
from packer.packing.decreasing import UNLIMITED, AlikeRows, Group, Moves, moves_of
from packer.plan import Int64Array, offsets_of


@dataclass(frozen=True)
class Placed:
    """moves: documents in places, in no order; unplaced: those that found none."""

    moves: Moves
    unplaced: Histogram


def place(patterns: Sparse, times: Int64Array, histogram: Histogram) -> Placed:
    """Rows of each pattern, `times` of them: int64 (p,), numbered one pattern after another."""
    first, owner = offsets_of(times)[:-1], patterns.owner
    order = np.argsort(-patterns.length, kind="stable")
    order = order[times[owner[order]] > 0]
    places = np.stack([patterns.length, first[owner], times[owner] * patterns.count, patterns.count], axis=1)[order]
    waiting, free = places[::-1].tolist(), []
    moves: list[tuple[int, int, int, int]] = []
    unplaced: list[tuple[int, int]] = []
    for length, left in zip(histogram.lengths[::-1].tolist(), histogram.counts[::-1].tolist(), strict=True):
        while waiting and waiting[-1][0] >= length:
            _, row, size, each = waiting.pop()
            free.append((row, 0, size, each))  # first row, the free places from .. to, places a row
        while left and free:
            row, start, stop, each = free.pop()
            end = min(stop, start + left)
            moves += [(row + at, rows, taken, length) for at, rows, taken in _spans(start, end, each)]
            left -= end - start
            if end < stop:
                free.append((row, end, stop, each))
        if left:
            unplaced.append((length, left))
    missing = np.array(unplaced[::-1], np.int64).reshape(-1, 2)
    return Placed(_as_moves(moves), Histogram(missing[:, 0], missing[:, 1]))


def _spans(start: int, stop: int, each: int) -> list[tuple[int, int, int]]:
    """Places start to stop, of `each` a row: first row, rows, places a row.

    1, 8, 3 -> (0, 1, 2) (1, 1, 3) (2, 1, 2)
    """
    first, last = -(-start // each), stop // each
    if first > last:
        return [(last, 1, stop - start)]
    parts = [(first - 1, 1, first * each - start), (first, last - first, each), (last, 1, stop - last * each)]
    return [part for part in parts if part[1] and part[2]]


def complete(placed: Placed, max_length: int, max_segments: int | None) -> Moves:
    """The whole plan: rows without a document closed up, the unplaced by best fit, moves by falling length."""
    moves, rooms = _closed_up(placed.moves, max_length, max_segments or UNLIMITED)
    rest = moves_of(placed.unplaced, max_length, TightestRoom, max_segments=max_segments, started=rooms)
    both = [np.concatenate(pair) for pair in zip(_columns(moves), _columns(rest), strict=True)]
    order = np.argsort(-both[3], kind="stable")
    return Moves(*(column[order] for column in both))


def rows_of(moves: Moves) -> int:
    return int((moves.first + moves.rows).max(initial=0))


def _closed_up(moves: Moves, max_length: int, slots: int) -> tuple[Moves, list[Group]]:
    """Rows numbered without those that hold nothing, and the room and free slots of each run of rows that hold the
    same: a group."""
    alike = AlikeRows(moves)
    tokens, documents = alike.summed(moves.each * moves.length), alike.summed(moves.each)
    rows = np.where(documents > 0, alike.sizes, 0)
    first = offsets_of(rows)[:-1]
    table = np.stack([first, rows, max_length - tokens, slots - documents], axis=1)[rows > 0]
    groups: list[Group] = [(row, n, room, free) for row, n, room, free in table.tolist()]
    return Moves(first[alike.begin], moves.rows, moves.each, moves.length), groups


def _columns(moves: Moves) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    return moves.first, moves.rows, moves.each, moves.length


def _as_moves(moves: list[tuple[int, int, int, int]]) -> Moves:
    return Moves(*np.array(moves, np.int64).reshape(-1, 4).T)
