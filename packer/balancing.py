"""Rows dealt to the ranks of each step so that their work is nearly equal, while steps stay a mixture of all rows.

Rows are sorted by cost and cut into runs of `world_size` rows of like cost. A step takes `rows_per_batch` runs at
random, one row of each for every rank: first the run whose rows differ most; of each further one the rank with least
work so far gets the costliest row.

    costs 9 9 8 7 | 5 4 4 4 | 2 1 1 1, two of the three runs a step, four ranks
    a step of the first two runs          7+5, 8+4, 9+4, 9+4

So the ranks of a step are as close as neighbours in the sorted order, and yet a step holds costly and cheap rows. That
is cheaper than the largest differencing method (Karmarkar and Karp 1982; for ranks with as many rows each as in verl's
sequence-length balancing), which balances a random step well only when a rank has many rows, and steps of like rows no
better; docs/strategies.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from packer.errors import UsageError
from packer.plan import Int64Array

COSTS = {
    "attention": "sum of squared sequence lengths",
    "tokens": "tokens",
    "flops": "of --model",
}
KEPT_STEPS = 1 << 20  # steps of which the spread is kept: for the percentile
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Balance:
    """What is balanced, and over what. flops: a model's FLOPs a token, and a unit of squared sequence length."""

    world_size: int
    rows_per_batch: int = 1
    cost: str = "attention"
    flops: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.cost not in COSTS or (self.cost == "flops") != (self.flops is not None):
            raise UsageError("balance cost: attention, tokens, or flops with a model's sizes")
        if min(self.world_size, self.rows_per_batch) < 1:
            raise UsageError("world_size and rows_per_batch are at least 1")

    @property
    def step_rows(self) -> int:
        return self.world_size * self.rows_per_batch

    def cost_of(self, tokens: NDArray[np.integer], attention: NDArray[np.integer]) -> FloatArray:
        """The cost of rows: float64 (n,), from their tokens and sums of squared sequence lengths, (n,)."""
        if self.flops is not None:
            return self.flops[0] * tokens + self.flops[1] * attention
        return (attention if self.cost == "attention" else tokens).astype(np.float64)

    def order(self, cost: FloatArray, rng: np.random.Generator) -> Int64Array:
        """Row numbers by step, rank and place in the batch: int64 (n,). cost: (n,) of rows in random order; the last of
        them, that fill no step, stay where they are."""
        ranks, each = self.world_size, self.rows_per_batch
        steps = len(cost) // self.step_rows
        full = steps * self.step_rows
        sorted_runs = np.argsort(-cost[:full], kind="stable").reshape(-1, ranks)
        runs = sorted_runs[rng.permutation(len(sorted_runs))].reshape(steps, each, ranks)
        width = cost[runs[..., 0]] - cost[runs[..., -1]]
        runs = np.take_along_axis(runs, np.argsort(-width, axis=1, kind="stable")[..., None], axis=1)
        dealt = np.empty((steps, each, ranks), np.int64)
        work = np.zeros((steps, ranks))
        for place in range(each):
            least_first = np.argsort(work, axis=1, kind="stable")
            np.put_along_axis(dealt[:, place], least_first, runs[:, place], axis=1)
            work += cost[dealt[:, place]]
        return np.concatenate([dealt.transpose(0, 2, 1).ravel(), np.arange(full, len(cost))])

    def spreads(self, cost: FloatArray) -> FloatArray:
        """Of each full step the costliest rank's work over the mean: float64 (steps,). cost: (n,) of rows in order."""
        steps = len(cost) // self.step_rows
        work = cost[: steps * self.step_rows].reshape(steps, self.world_size, self.rows_per_batch).sum(axis=2)
        return np.asarray(work.max(axis=1) / work.mean(axis=1), np.float64)


@dataclass(frozen=True)
class Spreads:
    """max / mean over the ranks of each full step: of the steps in stored order, and of as many in plain random order.
    The 95th percentile is that of the first `KEPT_STEPS`."""

    stored: FloatArray
    shuffled: FloatArray

    @classmethod
    def joined(cls, parts: Iterable[Spreads]) -> Spreads:
        parts = list(parts)
        empty = [np.zeros(0)]
        return cls(
            np.concatenate(empty + [part.stored for part in parts])[:KEPT_STEPS],
            np.concatenate(empty + [part.shuffled for part in parts])[:KEPT_STEPS],
        )


def mean_and_p95(spreads: FloatArray) -> tuple[float, float] | None:
    """None without a full step."""
    return (float(spreads.mean()), float(np.percentile(spreads, 95))) if len(spreads) else None
