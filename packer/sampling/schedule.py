"""When rows of each length are read, where a data set has several: every step takes rows of one length.

Each row has a time from 0 to 1 at which it is due, drawn once an epoch, and a step comes when its first row is due. So
the mixture of lengths depends on seed and epoch alone, and what is left of an epoch goes on where it was, whatever the
ranks. Of G lengths, the i-th with its times x:

    random         x uniform: all lengths in proportion, at every point of the epoch
    ascending      (i + x) / G: all rows of one length, then the next longer; descending: the other way round
    grow           x of Beta(1 + 2i/(G-1), 3 - 2i/(G-1)): the odds of the longest against the shortest are t^2 : (1-t)^2
    shrink         the other way round
    grow:8         eight times over, with an eighth of the rows each time
    stored         as the shards lie

Grow and its cycles are the curricula of Dataset Decomposition (Pouransari et al. 2024), which found cycles best.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from packer.errors import UsageError
from packer.plan import offsets_of, runs
from packer.sampling.order import Order
from packer.sampling.steps import Sampling, Steps, Work, plan_steps

STREAM = 1 << 20  # apart from the keys of orders
FORM = re.compile(r"random|stored|ascending|descending|(grow|shrink)(:[1-9][0-9]{0,5})?", re.ASCII)
FloatArray = NDArray[np.float64]


def check(schedule: str | None) -> None:
    """Raises UsageError if there is no such schedule."""
    if schedule is not None and not FORM.fullmatch(schedule):
        raise UsageError(
            f"schedule {schedule!r}: one of random, stored, ascending, descending, grow, shrink, grow:CYCLES, "
            "shrink:CYCLES"
        )


@dataclass(frozen=True)
class Lengths:
    """The row lengths of a data set. sizes: rising; of_row: (rows of the data set,), which of them a row has; due:
    float64, by row number, when it is due."""

    sizes: Sequence[int]
    of_row: NDArray[np.integer]
    due: FloatArray

    @classmethod
    def of(
        cls,
        orders: Sequence[Order],
        sizes: Sequence[int],
        of_row: NDArray[np.integer],
        schedule: str,
        *,
        seed: int,
        epoch: int,
    ) -> Lengths:
        """orders: of the rows of each length in turn."""
        due = np.zeros(len(of_row))
        for index, order in enumerate(orders):
            rng = np.random.default_rng(np.random.SeedSequence([seed, epoch, index, STREAM]))
            due[order.rows] = _times(schedule, len(order.rows), index, len(orders), rng)
        return cls(sizes, of_row, due)

    def plan(self, order: Order, work: Work | None, sampling: Sampling, rng: np.random.Generator) -> Steps:
        """The steps of what is in the order; the last ones of each length may be short (see `plan_steps`)."""
        planned, times = [], []
        for index, size in enumerate(self.sizes):
            own = order.without(self.of_row != index)
            own = Order(own.rows, np.unique(own.windows))
            steps = plan_steps(own, work, _scaled(sampling, size, self.sizes[-1]), rng)
            first = steps.offsets[: -1 : sampling.world_size][: len(steps)]
            planned.append(steps)
            times.append(self.due[own.rows[first]])
        return _merged(planned, times)


def _times(schedule: str, rows: int, index: int, lengths: int, rng: np.random.Generator) -> FloatArray:
    """When the rows of a length are due, in order: float64 (rows,)."""
    kind, _, cycles = schedule.partition(":")
    if kind in ("stored", "ascending", "descending"):
        place = lengths - 1 - index if kind == "descending" else index
        return (place + np.arange(rows) / max(rows, 1)) / lengths
    cycle = np.arange(rows) * int(cycles or 1) // max(rows, 1)
    if kind == "random" or lengths == 1:
        drawn = rng.random(rows)
    else:
        up = 2 * index / (lengths - 1)
        up = up if kind == "grow" else 2 - up
        drawn = rng.beta(1 + up, 3 - up, rows)
    return np.sort(np.asarray(cycle + drawn, np.float64)) / int(cycles or 1)


def _scaled(sampling: Sampling, size: int, longest: int) -> Sampling:
    """With more rows of the shorter lengths, if steps are to have like tokens."""
    if not sampling.scale_rows or sampling.rows_per_batch is None:
        return sampling
    return replace(sampling, rows_per_batch=sampling.rows_per_batch * (longest // size))


def _merged(planned: Sequence[Steps], times: Sequence[FloatArray]) -> Steps:
    """All steps in the order of their times."""
    ranks = planned[0].world_size
    order = np.argsort(np.concatenate(times), kind="stable")
    sizes = np.concatenate([np.diff(steps.offsets)[: len(steps) * ranks] for steps in planned]).reshape(-1, ranks)
    firsts = np.array([0, *np.cumsum([len(steps.rows) for steps in planned])])[:-1]
    starts = np.concatenate(
        [steps.offsets[:-1:ranks][: len(steps)] + first for steps, first in zip(planned, firsts.tolist(), strict=True)]
    )
    rows = np.concatenate([steps.rows for steps in planned])
    return Steps(rows[runs(starts[order], sizes.sum(axis=1)[order])], offsets_of(sizes[order].ravel()), ranks)
