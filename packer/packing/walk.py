"""Rows of like documents, one document a step, in many buckets side by side.

In each bucket a row begins with the longest document left. Then, while one fits, the document that is most like those
in the row comes next, of those that are not nearly the same as one of them: above the threshold a document waits for
another row. Where none is left the row ends. Each document is placed, once: it begins a row if nothing else.

    in the row: A        left                     length   similarity to A
    room: 10             B                             4              0.95   nearly A: it waits
    threshold: 0.9       C                             4              0.70   comes next
                         D                            12              0.80   does not fit
                         E                             3              0.20   comes after C

A step is a few array operations on all buckets of a batch, so the time does not depend on Python.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int32Array, Int64Array
from packer.similarity.vectors import Float32Array, Int8Array

BATCH_BYTES = 64 << 20  # of similarities held at a time
PLACED = np.iinfo(np.int32).max  # the length that stands for a document that is placed: it fits nowhere
NEVER = np.float32(-np.inf)  # the score of what cannot be chosen


def walk(
    vectors: Int8Array,
    inverse: Float32Array,
    lengths: Int32Array,
    buckets: Sequence[Int64Array],
    max_length: int,
    max_segments: int | None,
    threshold: float,
) -> Int64Array:
    """The row of each document in a bucket, -1 for all others: int64 (n,). lengths: int32 (n,), at most max_length."""
    row = np.full(len(lengths), -1, np.int64)
    rows = 0
    ordered = sorted(buckets, key=len, reverse=True)
    while ordered:
        size = len(ordered[0])
        count = max(1, BATCH_BYTES // (4 * size * size))
        batch, ordered = ordered[:count], ordered[count:]
        lanes = _Lanes(vectors, inverse, lengths, batch)
        placed = lanes.rows(min(max_length, PLACED - 1), max_segments or size, np.float32(threshold))
        counts = placed.max(axis=1) + 1
        starts = rows + np.cumsum(counts) - counts
        rows += int(counts.sum())
        held = lanes.held
        row[lanes.documents[held]] = (placed + starts[:, None])[held]
    return row


class _Lanes:
    """A batch of buckets, the largest first: each a lane, its documents longest first. G lanes of up to B documents.

    documents: int64 (G, B); held: bool (G, B), False where a lane is shorter; alike: float32 (G, B, B)."""

    def __init__(
        self, vectors: Int8Array, inverse: Float32Array, lengths: Int32Array, batch: Sequence[Int64Array]
    ) -> None:
        self.sizes = np.array([len(bucket) for bucket in batch], np.int64)
        shape = (len(batch), int(self.sizes[0]))
        self.held = np.arange(shape[1]) < self.sizes[:, None]
        self.documents = np.zeros(shape, np.int64)
        self.lengths = np.full(shape, PLACED, np.int32)
        self.alike = np.empty((*shape, shape[1]), np.float32)
        for lane, bucket in enumerate(batch):
            order = bucket[np.argsort(-lengths[bucket], kind="stable")]
            self.documents[lane, : len(order)] = order
            self.lengths[lane, : len(order)] = lengths[order]
            values = vectors[self.documents[lane]].astype(np.float32)
            np.matmul(values, values.T, out=self.alike[lane])
            scale = inverse[self.documents[lane]]
            self.alike[lane] *= scale[:, None]
            self.alike[lane] *= scale

    def rows(self, max_length: int, max_segments: int, threshold: np.float32) -> NDArray[np.int64]:
        """The row of each document within its lane, from 0; -1 where there is none: (G, B)."""
        lanes, most = self.lengths.shape
        row = np.full((lanes, most), -1, np.int64)
        current = np.full(lanes, -1, np.int64)
        room, slots = np.zeros(lanes, np.int32), np.zeros(lanes, np.int64)
        total, nearest = np.zeros((lanes, most), np.float32), np.zeros((lanes, most), np.float32)
        active = lanes - np.searchsorted(self.sizes[::-1], np.arange(most), side="right")
        for k in active.tolist():  # at step t the lanes of more than t documents
            at = np.arange(k)
            left = self.lengths[:k]
            fits = left <= room[:k, None]
            score = np.where(fits & (nearest[:k] <= threshold), total[:k], NEVER)
            chosen = score.argmax(axis=1)
            none = np.flatnonzero(score[at, chosen] == NEVER)
            new = np.union1d(none, np.flatnonzero(slots[:k] == 0))
            chosen[new] = (left[new] < PLACED).argmax(axis=1)  # the longest that is left
            room[new], slots[new] = max_length, max_segments
            total[new], nearest[new] = 0, NEVER
            current[new] += 1
            room[:k] -= left[at, chosen]
            slots[:k] -= 1
            left[at, chosen] = PLACED
            row[at, chosen] = current[:k]
            beside = self.alike[at, chosen]
            total[:k] += beside
            np.maximum(nearest[:k], beside, out=nearest[:k])
        return row
