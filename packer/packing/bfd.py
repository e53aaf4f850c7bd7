"""Best-fit decreasing: longest first, each document into the row with the least room that still holds it.

Within 11/9 of the optimum plus one row (Johnson 1973), and within 0.01% of the lower bound on the lengths of web text.
Among rows of equal room the lowest number comes first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heappop, heappush

import numpy as np

from packer.lengths import Histogram
from packer.packing.decreasing import Group, Moves, moves_of, pack_decreasing
from packer.plan import Int32Array, Int64Array, Plan

WORD = 10  # classes are found through two levels of bit sets, 2**WORD a word, so a look costs little however many


class TightestRoom:
    """Groups by class of room: class i has the rooms from lengths[i] to below lengths[i + 1], so that memory depends on
    the distinct lengths and not on max_length. The smallest room of at least lengths[i] is the smallest one of the
    first class from i on that has any: the lowest set bit.

    lengths: distinct, ascending.
    """

    def __init__(self, lengths: Int64Array) -> None:
        self.lengths: list[int] = lengths.tolist()
        self.heaps: list[list[tuple[int, int, int, int]]] = [[] for _ in self.lengths]
        self.words = [0] * ((len(self.lengths) >> WORD) + 1)
        self.nonzero_words = 0

    def take(self, length: int) -> Group | None:
        kind = self._first(bisect_left(self.lengths, length))
        if kind is None:
            return None
        heap = self.heaps[kind]
        room, first, rows, slots = heappop(heap)
        if not heap:
            word = kind >> WORD
            self.words[word] ^= 1 << (kind & ((1 << WORD) - 1))
            if not self.words[word]:
                self.nonzero_words ^= 1 << word
        return first, rows, room, slots

    def put(self, group: Group) -> None:
        first, rows, room, slots = group
        kind = bisect_right(self.lengths, room) - 1
        heappush(self.heaps[kind], (room, first, rows, slots))
        word = kind >> WORD
        self.words[word] |= 1 << (kind & ((1 << WORD) - 1))
        self.nonzero_words |= 1 << word

    def _first(self, kind: int) -> int | None:
        word, bit = kind >> WORD, kind & ((1 << WORD) - 1)
        here = self.words[word] >> bit
        if here:
            return kind + _lowest_bit(here)
        later = self.nonzero_words >> (word + 1)
        if not later:
            return None
        word += 1 + _lowest_bit(later)
        return (word << WORD) + _lowest_bit(self.words[word])


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def pack(lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator) -> Plan:
    """See `packer.packing`. O(n) for the sort, then O(d log max_length) for d distinct lengths."""
    return pack_decreasing(lengths, max_length, TightestRoom, max_segments=max_segments, rng=rng)


def pack_histogram(histogram: Histogram, max_length: int) -> Moves:
    """The same plan for lengths without documents: what prices millions of them in an instant."""
    return moves_of(histogram, max_length, TightestRoom)
