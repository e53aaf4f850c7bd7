"""How much work planning may take, counted in steps of the algorithm and never in time: the same input gives the same
plan on any machine."""

from __future__ import annotations

from collections.abc import Callable

PIVOT_ROWS = 4e6  # rows of a basis that simplex pivots touch in about a second of a slow core
CELLS = 2e8  # cells of a knapsack table that are computed in it
MODEL = 0.004  # of a unit, for each linear program and each pattern search, however small


class Effort:
    """Units of about a second of a slow core. watch: called between steps; what it raises ends planning."""

    def __init__(self, units: float, watch: Callable[[], None] | None = None) -> None:
        self._left, self._watch = units, watch
        self._whole: Effort | None = None

    def part(self, share: float) -> Effort:
        """A share of what is left, which is spent from it."""
        part = Effort(self._left * share, self._watch)
        part._whole = self
        return part

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def pivots(self, rows: int) -> int:
        """How many pivots of a linear program with so many rows are left."""
        return max(int(self._left * PIVOT_ROWS / rows), 0)

    def solved(self, pivots: int, rows: int) -> None:
        self._spend(pivots * rows / PIVOT_ROWS + MODEL)

    def searched(self, cells: int) -> None:
        self._spend(cells / CELLS + MODEL)

    def _spend(self, units: float) -> None:
        self._left -= units
        if self._whole:
            self._whole._spend(units)
        elif self._watch:
            self._watch()
