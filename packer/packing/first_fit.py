"""First fit: documents in input order, each into the first row that still holds it. Exact, O(log rows) a document.

A tree of maxima over the rows' room finds that row by one walk down. The tree is doubled when its rows are used up,
so its depth follows the rows and not the documents. Nothing can move in groups here, since the order is the input's:
that is why this takes seconds for a million documents where `bfd` takes a fraction of one.
"""

from __future__ import annotations

import numpy as np

from packer.packing.placing import plan_from_rows
from packer.plan import Int32Array, Plan


def pack(
    lengths: Int32Array,
    max_length: int,
    *,
    max_segments: int | None = None,
    rng: np.random.Generator,  # noqa: ARG001  input order leaves no tie to settle
) -> Plan:
    """See `packer.packing`."""
    leaves = 1
    tree = [max_length] * 2  # node i has children 2i and 2i+1; leaf `leaves + r` is the room of row r
    slots: list[int] | None = None if max_segments is None else []
    rows: list[int] = []
    for length in lengths.tolist():
        if tree[1] < length:
            tree = _doubled(tree, leaves, max_length)
            leaves *= 2
        node = 1
        while node < leaves:
            node *= 2
            if tree[node] < length:
                node += 1
        rows.append(node - leaves)
        room = tree[node] - length
        if slots is not None and _slot_taken(slots, node - leaves) == max_segments:
            room = 0  # no slot left: closed
        tree[node] = room
        while node > 1:
            sibling = tree[node ^ 1]
            if sibling > room:
                room = sibling
            node >>= 1
            if tree[node] == room:
                break
            tree[node] = room
    return plan_from_rows(np.array(rows, np.int64), lengths)


def _slot_taken(slots: list[int], row: int) -> int:
    """Counts one more document in the row; rows are met in order, so a new one is always the next."""
    if row == len(slots):
        slots.append(0)
    slots[row] += 1
    return slots[row]


def _doubled(tree: list[int], leaves: int, room: int) -> list[int]:
    """The same leaves, and as many empty rows after them."""
    doubled = [room] * (4 * leaves)
    level = leaves
    while level:
        doubled[2 * level : 3 * level] = tree[level : 2 * level]
        level //= 2
    return doubled
