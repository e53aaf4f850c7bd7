"""First-fit decreasing: longest first, each document into the first row that still holds it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import heappop, heappush

import numpy as np

from packer.lengths import Histogram
from packer.packing.decreasing import Group, Moves, moves_of, pack_decreasing
from packer.plan import Int32Array, Int64Array, Plan


class FirstRow:
    """Groups by class of room: class i has the rooms from lengths[i] to below lengths[i + 1], so that memory depends on
    the distinct lengths and not on max_length. A tree of minima over the classes gives the lowest row among all rooms
    of at least lengths[i].

    A node holds `row * stride + class` of the lowest row below it. lengths: distinct, ascending.
    """

    def __init__(self, lengths: Int64Array) -> None:
        self.lengths: list[int] = lengths.tolist()
        self.stride = 1 << len(self.lengths).bit_length()
        self.none = 1 << 100
        self.heaps: list[list[tuple[int, int, int, int]]] = [[] for _ in self.lengths]
        self.tree = [self.none] * (2 * self.stride)

    def take(self, length: int) -> Group | None:
        tree, node = self.tree, bisect_left(self.lengths, length) + self.stride
        lowest = tree[node]
        while node > 1:
            if not node & 1 and tree[node + 1] < lowest:
                lowest = tree[node + 1]
            node >>= 1
        if lowest == self.none:
            return None
        kind = lowest & (self.stride - 1)
        first, rows, room, slots = heappop(self.heaps[kind])
        self._update(kind)
        return first, rows, room, slots

    def put(self, group: Group) -> None:
        kind = bisect_right(self.lengths, group[2]) - 1
        heappush(self.heaps[kind], group)
        self._update(kind)

    def _update(self, kind: int) -> None:
        tree, heap, node = self.tree, self.heaps[kind], kind + self.stride
        value = heap[0][0] * self.stride + kind if heap else self.none
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
    return pack_decreasing(lengths, max_length, FirstRow, max_segments=max_segments, rng=rng)


def pack_histogram(histogram: Histogram, max_length: int) -> Moves:
    """The same plan for lengths without documents: what prices millions of them in an instant."""
    return moves_of(histogram, max_length, FirstRow)
