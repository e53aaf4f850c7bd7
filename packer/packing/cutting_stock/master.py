"""The restricted master: the linear program over the patterns so far, kept warm in HiGHS while patterns are added."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from numpy.typing import NDArray

from packer.lengths import Histogram
from packer.packing.cutting_stock.effort import Effort
from packer.packing.cutting_stock.patterns import Sparse

FloatArray = NDArray[np.float64]
SETTINGS: dict[str, bool | int | str] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "solver": "simplex",
    "presolve": "off",
}


@dataclass(frozen=True)
class Relaxed:
    """An optimum of the linear program. rows: its value; duals: float64 (d,), by length; times: float64 (p,), how many
    rows of each pattern."""

    rows: float
    duals: FloatArray
    times: FloatArray


COLUMNS = 4  # that cost a pivot as much as a row does


class _Silent(highspy.Highs):
    """HiGHS without its Python callbacks, which are not used here: to set them up prints a banner."""

    def __init__(self) -> None:
        super(highspy.Highs, self).__init__()


class Master:
    """Rows of the program are the lengths of `demand`, ascending; columns are exchanges, then patterns."""

    def __init__(self, demand: Histogram) -> None:
        self._lengths = demand.lengths
        self._size = size = len(demand.lengths)
        self._model = _Silent()
        for name, value in SETTINGS.items():
            self._model.setOptionValue(name, value)
        wanted, no_limit = demand.counts.astype(np.float64), np.full(size, highspy.kHighsInf)
        self._model.addRows(size, wanted, no_limit, 0, np.zeros(size, np.int32), np.empty(0, np.int32), np.empty(0))
        shorter = np.arange(size - 1)
        self._add(
            np.zeros(size - 1),
            2 * shorter,
            np.stack([shorter, shorter + 1], axis=1).ravel(),
            np.tile([1.0, -1.0], size - 1),
        )

    def add(self, patterns: Sparse) -> None:
        """Pieces of these must be of lengths in demand."""
        rows = np.searchsorted(self._lengths, patterns.length)
        self._add(np.ones(len(patterns)), patterns.offsets[:-1], rows, patterns.count)

    def solve(self, effort: Effort) -> Relaxed | None:
        """None where effort ends before the optimum."""
        size = self._size + self._model.getNumCol() // COLUMNS
        self._model.setOptionValue("simplex_iteration_limit", min(effort.pivots(size), 2**31 - 1))
        self._model.run()
        info = self._model.getInfo()
        effort.solved(max(info.simplex_iteration_count, 0), size)
        if self._model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = self._model.getSolution()
        times = np.array(found.col_value)[self._size - 1 :]
        return Relaxed(info.objective_function_value, np.array(found.row_dual), times)

    def _add(
        self,
        costs: FloatArray,
        starts: NDArray[np.integer],
        rows: NDArray[np.integer],
        values: NDArray[np.integer] | FloatArray,
    ) -> None:
        if not len(costs):
            return
        self._model.addCols(
            len(costs),
            costs,
            np.zeros(len(costs)),
            np.full(len(costs), highspy.kHighsInf),
            len(rows),
            starts.astype(np.int32),
            rows.astype(np.int32),
            values.astype(np.float64),
        )
