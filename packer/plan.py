"""`Plan`: which slice of which document goes into which row. The only thing passed from planning to gathering.

Three documents of 5, 2 and 4 tokens in rows of at most 4, long ones split, best fit:

    segment   doc  start  length            row 0 = doc 0 [0:4]
       0       0     0      4               row 1 = doc 2 [0:4]
       1       2     0      4               row 2 = doc 0 [4:5], doc 1 [0:2]
       2       0     4      1
       3       1     0      2               row_offsets = 0, 1, 2, 4
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Plan:
    """Segments in row order, as flat arrays. R rows, S segments.

    doc: int64 (S,), the document's position among the lengths that were planned
    start: int32 (S,), where in that document the segment begins
    length: int32 (S,), tokens, at least 1
    row_offsets: int64 (R+1,), row r holds segments row_offsets[r] to row_offsets[r+1]
    """

    doc: Int64Array
    start: Int32Array
    length: Int32Array
    row_offsets: Int64Array

    @property
    def rows(self) -> int:
        return len(self.row_offsets) - 1

    @property
    def tokens(self) -> int:
        return int(self.length.sum(dtype=np.int64))

    def row_lengths(self) -> Int64Array:
        """Tokens of each row: int64 (R,)."""
        return np.diff(offsets_of(self.length)[self.row_offsets])

    def document_rows(self) -> Int64Array:
        """The row of each document, int64 (n,), in a plan that places each of n documents whole."""
        row = np.empty(len(self.doc), np.int64)
        row[self.doc] = np.repeat(np.arange(self.rows), np.diff(self.row_offsets))
        return row

    def take_rows(self, order: Int64Array) -> Plan:
        """The same rows in another order; `order` is int64 (R,) or a subset of the row numbers."""
        counts = np.diff(self.row_offsets)[order]
        segments = runs(self.row_offsets[:-1][order], counts)
        return Plan(self.doc[segments], self.start[segments], self.length[segments], offsets_of(counts))

    def validate(self, lengths: NDArray[np.integer], max_length: int) -> None:
        """Raises ValueError unless every row and segment is well-formed for documents of these lengths."""
        if not (len(self.doc) == len(self.start) == len(self.length) == self.row_offsets[-1]):
            raise ValueError("plan: the segment arrays differ in length, or the last row does not end with them")
        if self.row_offsets[0] != 0 or (np.diff(self.row_offsets) < 1).any():
            raise ValueError("plan: a row without a segment")
        if len(self.doc) and not (self.doc.min() >= 0 and self.doc.max() < len(lengths)):
            raise ValueError("plan: a segment of a document that does not exist")
        if (self.length < 1).any() or (self.start < 0).any():
            raise ValueError("plan: an empty segment or a negative start")
        if (self.start.astype(np.int64) + self.length > lengths[self.doc]).any():
            raise ValueError("plan: a segment that runs past its document's end")
        if self.rows and self.row_lengths().max() > max_length:
            raise ValueError(f"plan: a row of more than {max_length} tokens")


def offsets_of(counts: NDArray[np.integer]) -> Int64Array:
    """Running totals from 0: counts (n,) to int64 (n+1,).   [3, 2] -> [0, 3, 5]"""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def runs(starts: Int64Array, counts: NDArray[np.integer]) -> Int64Array:
    """Consecutive numbers from each start.   starts [7, 2], counts [2, 3] -> [7, 8, 2, 3, 4]"""
    offsets = offsets_of(counts)
    return np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
