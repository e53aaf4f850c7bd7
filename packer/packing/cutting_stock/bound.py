"""Farley's bound (1990): what no plan can go below, from duals that need not even be optimal.

If no row holds more than `most` worth of pieces, all pieces together need at least sum(n_i * value_i) / most rows. With
values as integers that is exact, whatever the rounding of the solver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from packer.lengths import Histogram, exact_sum
from packer.plan import Int64Array

UNIT = 1 << 32  # of a dual: a row holds pieces worth about so much


def as_integers(duals: NDArray[np.float64]) -> Int64Array:
    """Values that grow with length, as the best duals do: int64 (d,)."""
    values = np.floor(np.clip(duals, 0, 2) * UNIT).astype(np.int64)
    return np.maximum.accumulate(values)


def rows_needed(demand: Histogram, values: Int64Array, most: int) -> int:
    """most: what the most valuable row is worth, at these values of each length."""
    return -(-exact_sum(demand.counts, values) // most) if most else 0
