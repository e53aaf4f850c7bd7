"""First-fit decreasing: longest first, each document into the first row that still holds it."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from packer.lengths import Histogram
from packer.packing.decreasing import Group, Moves, moves_of, pack_decreasing
from packer.plan import Int32Array, Plan


class FirstRow:
    """Groups by room. A tree of minima over the rooms gives the lowest row among all rooms of at least L.

    A node holds `row * stride + room` of the lowest row below it, so that the room comes with the row.
    """

    def __init__(self, max_length: int) -> None:
        self.stride = 1 << max_length.bit_length()
        self.none = 1 << 100
        self.heaps: list[list[tuple[int, int, int]]] = [[] for _ in range(max_length + 1)]
        self.tree = [self.none] * (2 * self.stride)

    def take(self, length: int) -> Group | None:
        tree, node = self.tree, length + self.stride
        lowest = tree[node]
        while node > 1:
            if not node & 1 and tree[node + 1] < lowest:
                lowest = tree[node + 1]
            node >>= 1
        if lowest == self.none:
            return None
        room = lowest & (self.stride - 1)
        first, rows, slots = heappop(self.heaps[room])
        self._update(room)
        return first, rows, room, slots

    def put(self, group: Group) -> None:
        first, rows, room, slots = group
        heappush(self.heaps[room], (first, rows, slots))
        self._update(room)

    def _update(self, room: int) -> None:
        tree, heap, node = self.tree, self.heaps[room], room + self.stride
        value = heap[0][0] * self.stride + room if heap else self.none
        while tree[node] != value:
            tree[node] = value
            if node == 1:
                break
            beside = tree[node ^ 1]
            if beside < value:
                value = beside
            node >>= 1


def pack(lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator) -> Plan:
    """See `packer.packing`. O(n) for the sort, then O(d log**2 max_length) for d distinct lengths."""
    return pack_decreasing(lengths, max_length, FirstRow(max_length), max_segments=max_segments, rng=rng)


def pack_histogram(histogram: Histogram, max_length: int) -> Moves:
    """The same plan for lengths without documents: what prices millions of them in an instant."""
    return moves_of(histogram, max_length, FirstRow(max_length))
