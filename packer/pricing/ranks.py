"""Batches dealt to ranks in turn: in each step the ranks wait for the one with most to do.

Step s gives rank r batch s * world_size + r. An incomplete last step is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array
from packer.pricing.flops import Model

FloatArray = NDArray[np.float64]
KEPT_STEPS = 1 << 20  # steps that are looked at; the first ones, in an order that is random anyway


class Steps:
    """Collects batches in training order, as many at a time as come."""

    def __init__(self, world_size: int, model: Model | None) -> None:
        self.world_size, self.model = world_size, model
        self._left: list[FloatArray] = [np.empty(0)] * 2
        self._spreads: tuple[list[FloatArray], list[FloatArray]] = ([], [])
        self._kept = 0
        self._slowest = self._mean = 0.0

    def add(self, tokens: Int64Array, cost: Int64Array) -> None:
        """Work of each batch: tokens and attention cost, int64 (b,)."""
        if self.world_size == 1 or self._kept >= KEPT_STEPS:
            return
        new = (tokens.astype(np.float64), cost.astype(np.float64))
        both = [np.concatenate([left, more]) for left, more in zip(self._left, new, strict=True)]
        steps = len(both[0]) // self.world_size
        end = steps * self.world_size
        self._left = [values[end:] for values in both]
        by_rank = [values[:end].reshape(steps, self.world_size) for values in both]
        for values, spreads in zip(by_rank, self._spreads, strict=True):
            spreads.append(values.max(axis=1) / values.mean(axis=1))
        self._kept += steps
        if self.model and steps:
            work = self.model.per_token * by_rank[0] + self.model.per_square * by_rank[1]
            self._slowest += float(work.max(axis=1).sum())
            self._mean += float(work.mean(axis=1).sum())

    @property
    def tokens(self) -> tuple[float, float] | None:
        return _mean_and_p95(self._spreads[0])

    @property
    def attention(self) -> tuple[float, float] | None:
        """max / mean over the ranks: its mean over the steps, and its 95th percentile. None without a full step."""
        return _mean_and_p95(self._spreads[1])

    @property
    def waiting(self) -> float | None:
        """How much longer steps take than if the ranks shared their work evenly, at least 1; None without a full
        step."""
        if self.world_size == 1:
            return 1.0
        return self._slowest / self._mean if self._mean else None


def _mean_and_p95(spreads: Sequence[FloatArray]) -> tuple[float, float] | None:
    values = np.concatenate(spreads) if spreads else np.empty(0)
    return (float(values.mean()), float(np.percentile(values, 95))) if len(values) else None
