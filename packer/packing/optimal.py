"""Fewest rows that column generation finds, and how many no plan can go below (see `packer.packing.cutting_stock`).

Best-fit decreasing comes first, and is the plan where it has as few rows as the bound of `packer.metrics`, which is
where most real lengths end. Otherwise the linear program over all patterns of a row gives a better bound, and is
rounded: the plan mostly has as many rows as the bound or one more, and never more than best-fit decreasing's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from packer.lengths import Histogram
from packer.packing import PLAN_EFFORT
from packer.packing.cutting_stock import Effort, Solved, solve
from packer.packing.decreasing import Moves, plan_of_moves
from packer.plan import Int32Array, Plan


@dataclass(frozen=True)
class Planned:
    """A plan, and rows that no plan of the same documents can go below."""

    plan: Plan
    bound: int


def pack(lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator) -> Plan:
    """See `packer.packing`. Documents of equal length change places with `rng`; what rows hold by length does not."""
    return planned(lengths, max_length, max_segments=max_segments, rng=rng).plan


def planned(
    lengths: Int32Array,
    max_length: int,
    *,
    max_segments: int | None = None,
    rng: np.random.Generator,
    effort: float = PLAN_EFFORT,
    watch: Callable[[], None] | None = None,
) -> Planned:
    """The same with its bound. effort: work that planning may take, 0 for best-fit decreasing; watch: called between
    steps of it, and what it raises ends planning."""
    histogram = Histogram.of(lengths)
    solved = solve(histogram, max_length, Effort(effort, watch), max_segments=max_segments)
    return Planned(plan_of_moves(solved.moves, lengths, rng), solved.bound)


def solve_histogram(
    histogram: Histogram, max_length: int, *, effort: float = PLAN_EFFORT, fitted: Moves | None = None
) -> Solved:
    """The same plan for lengths without documents. fitted: by best-fit decreasing, where that is known already."""
    return solve(histogram, max_length, Effort(effort), fitted=fitted)
