"""Fewer lengths, so that time is bounded however long rows are: up to MOST distinct ones, of up to CAPACITY steps.

Lengths are rounded up, so a plan for the groups is one for the documents. First to multiples of `step`, the smallest
that makes capacity at most CAPACITY steps; then, if more than MOST are left, to the longest of their group. The groups'
ends are chosen so that each has the same sum of sqrt(documents), which makes the sum of what is added to all documents
least for a given number of groups (the density of points by which a distribution is best quantized, Gersho 1979).

With m documents a row, rounding to multiples of `step` costs up to m / 2 * step / max_length of the rows, 0.1% at
8 documents a row and max_length 32768; documents of their own room fill what it leaves (see `filling`). Nothing is
rounded up to max_length 4096 with at most 2,048 distinct lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from packer.lengths import Histogram
from packer.packing.cutting_stock.bound import as_integers, rows_needed
from packer.packing.cutting_stock.effort import Effort
from packer.packing.cutting_stock.knapsack import Knapsack
from packer.plan import Int64Array

CAPACITY = 4096
MOST = 2048
BOUND_CAPACITY = 16384  # of the one search that the bound takes: it rounds down, and is closer the finer it is

BOUND_CELLS = 200_000_000  # most of its cells: coarser steps where there would be more


@dataclass(frozen=True)
class Groups:
    """Lengths as the linear program sees them: in steps of so many tokens. capacity: of a row, in steps."""

    step: int
    capacity: int

    @classmethod
    def of(cls, max_length: int) -> Groups:
        step = -(-max_length // CAPACITY)
        return cls(step, max_length // step)

    def rounded(self, histogram: Histogram) -> Histogram:
        """Lengths of at least as many steps; what is longer than `capacity` steps has its row to itself."""
        steps = np.minimum(-(-histogram.lengths // self.step), self.capacity)
        rounded = Histogram.of(steps, histogram.counts)
        if len(rounded.lengths) <= MOST:
            return rounded
        weight = np.cumsum(np.sqrt(rounded.counts))
        group = np.minimum(np.ceil(weight * (MOST / weight[-1])), MOST)
        last = np.flatnonzero(np.append(np.diff(group) > 0, True))
        longest = rounded.lengths[last[np.searchsorted(last, np.arange(len(group)))]]
        return Histogram.of(longest, rounded.counts)

    def bound(
        self,
        histogram: Histogram,
        max_length: int,
        demand: Histogram,
        duals: NDArray[np.float64],
        effort: Effort,
        max_segments: int | None,
    ) -> int:
        """Rows that no plan of the documents as they are can go below. Duals of groups become values of lengths by
        linear interpolation; lengths and capacity are rounded down to steps, of which the most valuable row is then
        worth at least as much as any real one. duals: float64, of the lengths of demand."""
        step = -(-max_length // BOUND_CAPACITY)
        while True:
            down = Histogram.of(histogram.lengths // step, histogram.counts)
            if not len(down.lengths):
                return 0
            knapsack = Knapsack(down.lengths, max_length // step, max_segments)
            if knapsack.cells <= BOUND_CELLS:
                break
            step *= 2
        ends = np.concatenate([[0], demand.lengths * self.step])
        values = as_integers(np.interp(down.lengths * step, ends, np.concatenate([[0.0], duals])))
        effort.searched(knapsack.cells)
        return rows_needed(down, values, knapsack.best(values).value)


def mapped_down(lengths: Int64Array, known: Int64Array) -> Int64Array:
    """For each place the longest known length that fits it, 0 where none does. known: ascending."""
    place = np.searchsorted(known, lengths, side="right")
    return np.concatenate([[0], known])[place]
