"""Further packings of the same documents that share few pairs with the first: near-equal documents change places.

A strategy already permutes documents of equal length, but of long documents hardly two are equal, so the same ones
would meet the same ones again. Neighbours in the order of length, drawn at random, change places wherever the row that
gets the longer one has room for the difference. Rows stay as many, and every row keeps within max_length:

    rows of 10: [6 3] [7 3], 6 and 7 change places: [7 3] [6 3]      one of 9 tokens becomes one of 10

Swaps are made in rounds, in each at most one into and out of a row, so that all of a round are decided at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from packer.plan import BoolArray, Int64Array, Plan

ROUNDS = 16


def swapped(plan: Plan, max_length: int, floor: int, rng: np.random.Generator) -> Plan:
    """The plan of whole documents with documents exchanged between rows. floor: documents longer than it change places
    only with others longer than it, and so do the rest, so that a row still needs its length (see `by_length`)."""
    length, doc = plan.length.copy(), plan.doc.copy()
    row = np.repeat(np.arange(plan.rows), np.diff(plan.row_offsets))
    room = max_length - plan.row_lengths()
    for _ in range(ROUNDS):
        a, b = _pairs(length, rng)
        shorter, longer = np.minimum(length[a], length[b]), np.maximum(length[a], length[b])
        growing = np.where(length[a] < length[b], row[a], row[b])
        fits = (row[a] != row[b]) & (longer - shorter <= room[growing]) & ((shorter > floor) == (longer > floor))
        fits = fits & _once(row[a], row[b], fits)
        a, b = a[fits], b[fits]
        change = (length[b] - length[a]).astype(np.int64)
        room[row[a]] -= change
        room[row[b]] += change
        doc[a], doc[b] = doc[b], doc[a]
        length[a], length[b] = length[b], length[a]
    return Plan(doc, plan.start, length, plan.row_offsets)


def _pairs(length: NDArray[np.integer], rng: np.random.Generator) -> tuple[Int64Array, Int64Array]:
    """Segments in pairs of near-equal length, each in one at most: int64 (p,) and (p,). Equal ones at random; then each
    with the second, third, ... next to it, as far as drawn."""
    order = np.lexsort((rng.random(len(length)), length))
    order = order[int(rng.integers(0, 2)) :]
    apart = int(rng.integers(1, 9))
    whole = len(order) // (2 * apart) * 2 * apart
    halves = order[:whole].reshape(-1, 2, apart)
    return halves[:, 0].ravel(), halves[:, 1].ravel()


def _once(first: Int64Array, second: Int64Array, chosen: BoolArray) -> BoolArray:
    """Which of the chosen swaps are the first to touch both of their rows: bool (p,)."""
    index = np.flatnonzero(chosen)
    touched = np.stack([first[index], second[index]], axis=1).ravel()
    _, at = np.unique(touched, return_index=True)
    earliest = np.zeros(len(touched), np.bool_)
    earliest[at] = True
    result = np.zeros(len(first), np.bool_)
    result[index] = earliest.reshape(-1, 2).all(axis=1)
    return result
