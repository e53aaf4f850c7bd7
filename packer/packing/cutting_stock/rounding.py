"""From the fractional solution to whole rows: a dive.

Patterns are taken as often as the solution says, rounded down; of what is left of each, those above a threshold once
more, or else the largest. What then has no place is a smaller problem of the same kind, solved anew from the patterns
just used, which makes it begin where the larger one ended. Where even its linear program needs more rows than are left,
the step is taken back, and one that rounds up less is tried. After each step best fit places what is left: the best of
these plans counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from packer.lengths import Histogram
from packer.packing.cutting_stock.column_generation import TOLERANCE, Generated, generate
from packer.packing.cutting_stock.effort import Effort
from packer.packing.cutting_stock.filling import complete, place
from packer.packing.cutting_stock.grouping import Groups, mapped_down
from packer.packing.cutting_stock.master import FloatArray
from packer.packing.cutting_stock.patterns import Sparse, joined, summed
from packer.packing.decreasing import Moves
from packer.plan import Int64Array

DIVES = ((0.6, 0.9), (0.75,))  # thresholds, each tried until it fails
SINGLES = 4  # patterns that are tried as the only one to be rounded up


def dive(
    root: Generated,
    groups: Groups,
    histogram: Histogram,
    max_length: int,
    effort: Effort,
    target: int,
    thresholds: Sequence[float],
    max_segments: int | None,
) -> Iterator[Moves]:
    """Whole plans, one after each step, until one of `target` rows has to be among them or no step leads there.

    thresholds: fractions from which on all are rounded up at once, each tried until it fails.
    """
    found: Generated | None = root
    chosen: list[Sparse] = []
    times: list[Int64Array] = []
    limits = list(thresholds)
    while found is not None:
        solved, found = found, None
        for threshold, taken in _roundings(solved.times, tuple(limits)):
            used = np.flatnonzero(taken)
            patterns = [*chosen, solved.patterns.take(used).scaled(groups.step)]
            rows = [*times, taken[used]]
            placed = place(joined(patterns), np.concatenate(rows), histogram)
            yield complete(placed, max_length, max_segments)
            fitting = placed.unplaced.lengths <= groups.capacity * groups.step
            left = Histogram(placed.unplaced.lengths[fitting], placed.unplaced.counts[fitting])
            if effort.spent or not len(left.lengths):
                return
            enough = target - int(np.concatenate(rows).sum())
            rest = _again(solved, left, groups, enough, effort, max_segments)
            if rest is not None and rest.rows <= enough + TOLERANCE:
                found, chosen, times = rest, patterns, rows
                break
            if threshold is not None:
                limits.remove(threshold)  # what has failed once does so again on the smaller problem


def _roundings(times: FloatArray, thresholds: tuple[float, ...]) -> Iterator[tuple[float | None, Int64Array]]:
    """Rounded down, but up from a threshold on; then one row of one pattern.   [2.1, 0.7], 0.6 -> [2, 1]"""
    whole = np.floor(times + TOLERANCE)
    parts = times - whole
    for threshold in thresholds:
        taken = whole + (parts > threshold)
        if taken.any():
            yield threshold, taken.astype(np.int64)
    for pattern in np.argsort(-parts, kind="stable")[:SINGLES].tolist():
        single = whole.astype(np.int64)
        single[pattern] += 1
        yield None, single


def _again(
    found: Generated, left: Histogram, groups: Groups, enough: int, effort: Effort, max_segments: int | None
) -> Generated | None:
    """The linear program of what is left. It begins with the patterns just in use, their places cut to the lengths that
    there are; enough: rows at which it is good enough."""
    demand = groups.rounded(left)
    used = found.patterns.take(np.flatnonzero(found.times > TOLERANCE))
    start = summed(used.owner, mapped_down(used.length, demand.lengths), used.count, len(used))
    return generate(demand, groups.capacity, start, effort, max_segments, enough=enough)
