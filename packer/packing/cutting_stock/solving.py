"""The whole way from a histogram to a plan: best fit, the bound, column generation, dives."""

from __future__ import annotations

import math
from dataclasses import dataclass

from packer.lengths import Histogram
from packer.metrics import packing_bound
from packer.packing.bfd import TightestRoom
from packer.packing.cutting_stock.column_generation import TOLERANCE, generate
from packer.packing.cutting_stock.effort import Effort
from packer.packing.cutting_stock.filling import rows_of
from packer.packing.cutting_stock.grouping import Groups
from packer.packing.cutting_stock.patterns import of_moves
from packer.packing.cutting_stock.rounding import DIVES, dive
from packer.packing.decreasing import Moves, moves_of

ROOT = 0.7  # of the effort, at most, for the linear program: the rest is for whole rows


@dataclass(frozen=True)
class Solved:
    """moves: the plan, never of more rows than best-fit decreasing's; bound: rows that no plan can go below."""

    moves: Moves
    bound: int

    @property
    def rows(self) -> int:
        return rows_of(self.moves)


def solve(
    histogram: Histogram,
    max_length: int,
    effort: Effort,
    *,
    max_segments: int | None = None,
    fitted: Moves | None = None,
) -> Solved:
    """No length may be above max_length. Stops as soon as a plan has as few rows as the bound. fitted: best-fit
    decreasing's plan, where it is known already."""
    moves = fitted or moves_of(histogram, max_length, TightestRoom, max_segments=max_segments)
    bound = packing_bound(histogram, max_length)
    if max_segments:
        bound = max(bound, -(-histogram.documents // max_segments))
    best = Solved(moves, bound)
    if best.rows <= bound or effort.spent:
        return best
    groups = Groups.of(max_length)
    demand = groups.rounded(histogram)
    exact = groups.step == 1 and len(demand.lengths) == len(histogram.lengths)
    start = moves if exact else moves_of(demand, groups.capacity, TightestRoom, max_segments=max_segments)
    first = effort.part(ROOT)
    root = generate(demand, groups.capacity, of_moves(start), first, max_segments, bound=bound if exact else 0)
    if root is None:
        return best
    found = root.bound if exact else groups.bound(histogram, max_length, demand, root.duals, effort, max_segments)
    best = Solved(moves, max(bound, found))
    target = max(math.ceil(root.rows - TOLERANCE), best.bound)
    while target < best.rows and not effort.spent:
        for thresholds in DIVES:
            for plan in dive(root, groups, histogram, max_length, effort, target, thresholds, max_segments):
                if rows_of(plan) < best.rows:
                    best = Solved(plan, best.bound)
                if best.rows <= target:
                    return best
        target += 1
    return best
