"""Patterns: what a row holds, by length, without repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from packer.packing.decreasing import AlikeRows, Moves
from packer.plan import Int64Array, offsets_of, runs


@dataclass(frozen=True)
class Sparse:
    """k patterns. offsets: int64 (k+1,); pattern p holds count[j] pieces of length[j], longest first, for j from
    offsets[p] to offsets[p+1]: int64."""

    offsets: Int64Array
    length: Int64Array
    count: Int64Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, chosen: Int64Array) -> Sparse:
        sizes = np.diff(self.offsets)[chosen]
        entries = runs(self.offsets[chosen], sizes)
        return Sparse(offsets_of(sizes), self.length[entries], self.count[entries])

    def scaled(self, factor: int) -> Sparse:
        return Sparse(self.offsets, self.length * factor, self.count)

    @property
    def owner(self) -> Int64Array:
        """The pattern of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


def joined(parts: list[Sparse]) -> Sparse:
    return Sparse(
        offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.count for part in parts]),
    )


def summed(owner: Int64Array, length: Int64Array, count: Int64Array, patterns: int) -> Sparse:
    """Patterns from entries in any order, those of the same pattern and length added up; zero lengths are left out."""
    kept = length > 0
    owner, length, count = owner[kept], length[kept], count[kept]
    order = np.lexsort((-length, owner))
    owner, length, count = owner[order], length[order], count[order]
    first = np.ones(len(owner), np.bool_)
    first[1:] = (np.diff(owner) != 0) | (np.diff(length) != 0)
    starts = np.flatnonzero(first)
    totals = np.add.reduceat(count, starts) if len(starts) else count
    return Sparse(offsets_of(np.bincount(owner[starts], minlength=patterns)), length[starts], totals)


def of_pieces(pieces: Int64Array) -> Sparse:
    """From one row of pieces a pattern, int64 (k, most pieces), filled up with zeros."""
    owner = np.repeat(np.arange(len(pieces)), pieces.shape[1])
    return summed(owner, pieces.ravel(), np.ones(pieces.size, np.int64), len(pieces))


def of_moves(moves: Moves) -> Sparse:
    """What the rows of a plan hold, each kind of row once or more."""
    alike = AlikeRows(moves)
    spans = alike.end - alike.begin
    owner = runs(alike.begin, spans)
    return summed(owner, np.repeat(moves.length, spans), np.repeat(moves.each, spans), len(alike.sizes))


class Pool:
    """All patterns of a master, in the order in which they came."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._parts: list[Sparse] = []

    def add(self, patterns: Sparse) -> Sparse:
        """Returns those that are new."""
        entries = np.stack([patterns.length, patterns.count], axis=1)
        new = []
        for pattern, (start, stop) in enumerate(zip(patterns.offsets[:-1], patterns.offsets[1:], strict=True)):
            key = entries[start:stop].tobytes()
            if key not in self._seen:
                self._seen.add(key)
                new.append(pattern)
        fresh = patterns.take(np.array(new, np.int64))
        self._parts.append(fresh)
        return fresh

    def all(self) -> Sparse:
        self._parts = [joined(self._parts)]
        return self._parts[0]
