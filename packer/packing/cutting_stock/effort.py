"""How much work planning may take, counted in steps of the algorithm and never in time: the same input gives the same
plan on any machine."""

from __future__ import annotations

from collections.abc import Callable

PIVOTS = 5e6  # pivots of the simplex method, by size of the program, that a slow core does in about a second
CELLS = 6e7  # cells of a knapsack table that it computes in one
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

    def pivots(self, size: int) -> int:
        """How many pivots of a linear program of that size are left."""
        return max(int(self._left * PIVOTS / size), 0)

    def solved(self, pivots: int, size: int) -> None:
        self._spend(pivots * size / PIVOTS + MODEL)

    def searched(self, cells: int) -> None:
        self._spend(cells / CELLS + MODEL)

    def _spend(self, units: float) -> None:
        self._left -= units
        if self._whole:
            self._whole._spend(units)
        elif self._watch:
            self._watch()
