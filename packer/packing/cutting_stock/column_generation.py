"""The master and the pricing in turn: Gilmore and Gomory's column generation.

Each round adds, for each length, the most valuable pattern that holds it, where that is worth more than a row. Prices
are taken halfway between the master's duals and those that gave the best bound so far (Wentges 1997), for the master's
jump to and fro while it knows few patterns; where that finds nothing, at the master's own. It begins at length /
max_length, which is optimal already where all rows can be filled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from packer.lengths import Histogram
from packer.packing.cutting_stock.bound import UNIT, as_integers, rows_needed
from packer.packing.cutting_stock.effort import Effort
from packer.packing.cutting_stock.knapsack import Contents, Knapsack
from packer.packing.cutting_stock.master import FloatArray, Master, Relaxed
from packer.packing.cutting_stock.patterns import Pool, Sparse, joined, of_pieces
from packer.plan import Int64Array

SMOOTHING = 0.5
TOLERANCE = 1e-6
ADDED = 500  # patterns a round, at most


@dataclass(frozen=True)
class Generated:
    """patterns, and how many rows of each the linear program takes, float64 (p,); rows: their sum; bound: rows that no
    plan can go below; duals: float64 (d,), those that gave it."""

    patterns: Sparse
    times: FloatArray
    rows: float
    bound: int
    duals: FloatArray


def generate(
    demand: Histogram,
    capacity: int,
    start: Sparse,
    effort: Effort,
    max_segments: int | None,
    *,
    bound: int = 0,
    enough: int | None = None,
) -> Generated | None:
    """Until no plan can need fewer rows than the linear program says, rounded up; None where effort ends before even
    the patterns to begin with are solved.

    start: patterns to begin with; bound: one known before; enough: rows at which it stops, or when it is certain that
    more are needed.
    """
    search = _Search(demand, capacity, bound, max_segments, effort)
    master, pool = Master(demand), Pool()
    master.add(pool.add(joined([start, _alike(demand, capacity, max_segments)])))
    last: Relaxed | None = None
    while (relaxed := master.solve(effort)) is not None:
        last, solved = relaxed, pool.all()
        needed = math.ceil(relaxed.rows - TOLERANCE)
        if effort.spent or needed <= search.bound or (enough is not None and not search.bound <= enough < needed):
            break
        fresh = pool.add(search.patterns(relaxed.duals))
        if not len(fresh):
            break
        master.add(fresh)
    if last is None:
        return None
    return Generated(solved, last.times, last.rows, search.bound, search.center)


def _alike(demand: Histogram, capacity: int, max_segments: int | None) -> Sparse:
    """For each length the row that holds nothing else: with these there is a solution."""
    each = np.minimum(capacity // demand.lengths, max_segments or capacity)
    return Sparse(np.arange(len(each) + 1), demand.lengths, each)


class _Search:
    """Pricing, and the best bound so far with its duals."""

    def __init__(self, demand: Histogram, capacity: int, bound: int, max_segments: int | None, effort: Effort) -> None:
        self._demand, self._knapsack, self._effort = demand, Knapsack(demand.lengths, capacity, max_segments), effort
        self.bound, self.center = bound, demand.lengths / capacity
        self._closest = 0.0

    def patterns(self, duals: FloatArray) -> Sparse:
        """Those that would improve the master, at these duals of it."""
        for prices in (SMOOTHING * self.center + (1 - SMOOTHING) * duals, duals):
            values = as_integers(prices)
            contents = self._knapsack.best(values)
            self._effort.searched(self._knapsack.cells)
            self._judge(values, contents)
            _, pieces = contents.with_each(UNIT)
            place = np.searchsorted(self._demand.lengths, np.maximum(pieces, self._demand.lengths[0]))
            worth = np.where(pieces > 0, duals[place], 0.0).sum(axis=1)
            better = np.argsort(-worth, kind="stable")[:ADDED]
            better = better[worth[better] > 1 + TOLERANCE]
            if len(better):
                break
        return of_pieces(pieces[better])

    def _judge(self, values: Int64Array, contents: Contents) -> None:
        most = contents.value
        if most:
            self.bound = max(self.bound, rows_needed(self._demand, values, most))
            closeness = float(values @ self._demand.counts.astype(np.float64)) / most
            if closeness > self._closest:
                self._closest, self.center = closeness, values / most
