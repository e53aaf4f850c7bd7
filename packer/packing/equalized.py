"""`--equalize attention`: best fit that also makes `sum(length**2)` of rows alike, as far as the documents allow.

Best fit takes documents longest first, so those of middle length meet in some rows and the short ones in others. Here
documents above a cut are first spread over as many rows as best fit needs, in rounds: the longest of those left go to
the rows that have cost least so far, one each (longest processing time first, Graham 1969). The others then fill the
rows by best fit:

    rows of 8, documents 4 4 2 2 1 1 1 1, cut at 1     best fit  4+4, 2+2+1+1+1+1     32 and 12
                                                       equalized 4+2+1+1, 4+2+1+1     22 and 22

The lower the cut the more alike are rows, and the worse they fill, so several cuts are tried, and that with the least
spread is taken which needs at most 1% more rows than best fit; plain best fit is among them. What a document costs
alone remains: a row that one of max_length fills has max_length**2. When such rows come is a matter of the order (see
`packer.balancing`), as WLB-LLM (Wang et al. 2025) delays outliers until there are enough for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from packer.lengths import Histogram
from packer.packing.bfd import TightestRoom
from packer.packing.bfd import pack as best_fit
from packer.packing.decreasing import UNLIMITED, Group, moves_of, rows_of_moves
from packer.packing.placing import descending, plan_from_rows
from packer.plan import Int32Array, Int64Array, Plan

CUTS = (4, 8, 16, 32)  # parts of max_length: documents longer than that are spread
LOSS = 0.01  # more rows than best fit
RANKS, MICRO_BATCHES, STAGES = 8, 8, 4  # of the steps and the pipelines that figures are of, a row a batch


@dataclass(frozen=True)
class Trade:
    """What a cut of max_length / `cut` gives, 1 for plain best fit; adds up over blocks. spread: sums over `steps` of
    the costliest of 8 rows over their mean, and over `pipelines` of 8 rows one after another through 4 stages, of the
    time over that of even rows; chosen: blocks in which it was the best."""

    cut: int
    rows: int = 0
    tokens: int = 0
    steps: int = 0
    step_spread: float = 0.0
    pipelines: int = 0
    pipeline_spread: float = 0.0
    chosen: int = 0

    def __add__(self, other: Trade) -> Trade:
        names = [one.name for one in fields(self)][1:]
        return Trade(self.cut, *(getattr(self, name) + getattr(other, name) for name in names))


def summed(trades: Sequence[Trade], others: Sequence[Trade]) -> list[Trade]:
    """Sums by cut, of the same cuts or of none."""
    return [a + b for a, b in zip(trades, others, strict=True)] if trades and others else [*trades, *others]


def pack(lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator) -> Plan:
    """See `packer.packing`."""
    return traded(lengths, max_length, max_segments=max_segments, rng=rng)[0]


def traded(
    lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator
) -> tuple[Plan, list[Trade]]:
    """The plan, and what each cut would give."""
    plan = best_fit(lengths, max_length, max_segments=max_segments, rng=rng)
    if not plan.rows:
        return plan, []
    plans = [plan]
    for cut in CUTS:
        plans.append(_spread(lengths, max_length, max_length // cut, plan.rows, max_segments or UNLIMITED, rng))
    costs = [np.add.reduceat(one.length.astype(np.float64) ** 2, one.row_offsets[:-1]) for one in plans]
    allowed = [one.rows <= plan.rows * (1 + LOSS) for one in plans]
    spreads = [float(cost.std() / cost.mean()) if ok else np.inf for cost, ok in zip(costs, allowed, strict=True)]
    best = int(np.argmin(spreads))
    order = np.random.default_rng(0)
    trades = [
        _trade(cut, one, order.permutation(cost), chosen=index == best)
        for index, (cut, one, cost) in enumerate(zip((1, *CUTS), plans, costs, strict=True))
    ]
    return plans[best], trades


def _spread(
    lengths: Int32Array, max_length: int, shortest: int, rows: int, slots: int, rng: np.random.Generator
) -> Plan:
    """Documents longer than `shortest` spread over so many rows, the others put where they fit best."""
    order = descending(lengths, rng)
    sizes = lengths[order].astype(np.int64)
    row = np.full(len(order), -1)
    room, free, cost = np.full(rows, max_length), np.full(rows, slots), np.zeros(rows, np.int64)
    left = np.arange(int((sizes > shortest).sum()))
    while len(left):
        now, left = left[:rows], left[rows:]
        cheapest = np.lexsort((-room, cost))[: len(now)]
        fits = (sizes[now] <= room[cheapest]) & (free[cheapest] > 0)
        placed, into = now[fits], cheapest[fits]
        row[placed] = into
        room[into] -= sizes[placed]
        free[into] -= 1
        cost[into] += sizes[placed] ** 2
        if 2 * len(placed) > len(now):  # else best fit finds them a place
            left = np.concatenate([now[~fits], left])
    others = np.flatnonzero(row < 0)
    row[others] = _best_fit(lengths[order[others]], max_length, room, free, slots)
    numbered = np.unique(row, return_inverse=True)[1]
    result = np.empty(len(order), np.int64)
    result[order] = numbered
    return plan_from_rows(result, lengths)


def _best_fit(lengths: Int32Array, max_length: int, room: Int64Array, free: Int64Array, slots: int) -> Int64Array:
    """The row of each document, int64 (n,), for lengths that fall, in rows that have this room, and new ones."""
    renumbered = np.lexsort((free, room))
    keys = np.stack([room, free])[:, renumbered]
    first = np.flatnonzero(np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0)))
    counts = np.diff(first, append=len(room))
    begun: list[Group] = list(
        zip(first.tolist(), counts.tolist(), keys[0, first].tolist(), keys[1, first].tolist(), strict=True)
    )
    limit = None if slots == UNLIMITED else slots
    found = rows_of_moves(moves_of(Histogram.of(lengths), max_length, TightestRoom, max_segments=limit, started=begun))
    rows = np.arange(max(len(room), int(found.max(initial=0)) + 1))
    rows[: len(room)] = renumbered
    return rows[found]


def _trade(cut: int, plan: Plan, cost: NDArray[np.float64], *, chosen: bool) -> Trade:
    """cost: of the rows in random order."""
    steps = cost[: len(cost) // RANKS * RANKS].reshape(-1, RANKS)
    flows = cost[: len(cost) // MICRO_BATCHES * MICRO_BATCHES].reshape(-1, MICRO_BATCHES)
    times = flows.sum(axis=1) + (STAGES - 1) * flows.max(axis=1)
    even = (MICRO_BATCHES + STAGES - 1) * flows.mean(axis=1)
    return Trade(
        cut,
        plan.rows,
        plan.tokens,
        len(steps),
        float((steps.max(axis=1) / steps.mean(axis=1)).sum()),
        len(flows),
        float((times / even).sum()),
        int(chosen),
    )
