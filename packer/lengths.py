"""Lengths as a histogram: what all figures that do not depend on order are made from. It merges, and it is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array

DENSE = 1 << 20  # up to so long, lengths are counted in place
SAFE = 1 << 62  # sums that are surely below it are taken in int64


@dataclass(frozen=True)
class Histogram:
    """Documents by length. lengths: int64 (d,), distinct, ascending, at least 1; counts: int64 (d,), at least 1."""

    lengths: Int64Array
    counts: Int64Array

    @classmethod
    def of(cls, lengths: NDArray[np.integer], counts: NDArray[np.integer] | None = None) -> Histogram:
        """Lengths in any order, any of them more than once; each `counts` times if given. Zeros are left out."""
        if len(lengths) and lengths.max() < len(lengths) + DENSE:  # no need to sort
            distinct = np.arange(int(lengths.max()) + 1)
            place = lengths
        else:
            distinct, place = np.unique(lengths, return_inverse=True)
        times = np.zeros(len(distinct), np.int64)
        if counts is None:
            times += np.bincount(place, minlength=len(distinct))
        else:
            np.add.at(times, place, counts)
        kept = (distinct > 0) & (times > 0)
        return cls(distinct[kept].astype(np.int64), times[kept])

    def merge(self, other: Histogram) -> Histogram:
        return Histogram.of(np.concatenate([self.lengths, other.lengths]), np.concatenate([self.counts, other.counts]))

    @cached_property
    def documents(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def tokens(self) -> int:
        return exact_sum(self.lengths, self.counts)

    @cached_property
    def squares(self) -> int:
        """Sum of the squared lengths: what attention costs if each document is a sequence of its own."""
        return exact_sum(self.lengths, self.lengths, self.counts)

    @cached_property
    def _ends(self) -> Int64Array:
        return np.cumsum(self.counts)

    def at(self, ranks: NDArray[np.integer]) -> Int64Array:
        """The lengths at these places in ascending order, from 0."""
        return self.lengths[np.searchsorted(self._ends, ranks, side="right")]

    def percentiles(self, wanted: Sequence[float]) -> list[float]:
        """Equal to `numpy.percentile(lengths, wanted)` to the last bit.

        NumPy interpolates from the nearer side (see `_lerp` in its source), which in about one of eleven cases is
        another double than the plain formula gives.
        """
        virtual = (self.documents - 1) * (np.asarray(wanted, np.float64) / 100)
        below = np.floor(virtual)
        share = virtual - below
        low = self.at(below.astype(np.int64))
        high = self.at(np.minimum(below.astype(np.int64) + 1, self.documents - 1))
        step = high - low
        values: list[float] = np.where(share < 0.5, low + step * share, high - step * (1 - share)).tolist()
        return values

    def longer_than(self, length: int) -> tuple[int, int]:
        """Documents longer than this, and their tokens beyond it."""
        over = self.lengths > length
        return int(self.counts[over].sum()), exact_sum(self.lengths[over] - length, self.counts[over])


def exact_sum(*factors: Int64Array) -> int:
    """The sum of the products of non-negative integers, exact beyond int64 too: arrays (d,), int64 or object, to one
    int."""
    if not len(factors[0]):
        return 0
    bound = float(len(factors[0]))
    for factor in factors:
        bound *= float(factor.max())
    if bound < SAFE:
        return int(np.prod(factors, axis=0, dtype=np.int64).sum())
    product = factors[0].astype(object)
    for factor in factors[1:]:
        product = product * factor.astype(object)
    return int(product.sum())
