"""Planning: which document goes into which row.

One strategy, one file, one line in `STRATEGIES`. Each is a function `pack` with the same signature:

    pack(lengths, max_length, *, max_segments=None, rng) -> Plan

lengths: int32 (n,), tokens of each document (or piece of one, see `overlong`), at least 1. All but `wrapped` need
them to be at most max_length. The plan places every token exactly once. `rng` settles ties, so that seeds give other
rows at the same count. Strategy modules are imported when used: listing them costs nothing.

    >>> pack = load("bfd")
    >>> pack(np.array([3, 2, 1], np.int32), 4, rng=np.random.default_rng(0)).rows
    2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    import numpy as np

    from packer.plan import Int32Array, Plan

STRATEGIES = {
    "bfd": "best-fit decreasing: fewest rows in practice (default)",
    "ffd": "first-fit decreasing",
    "first-fit": "first row with room, documents in input order",
    "wrapped": "concatenate everything and cut: full rows, documents cut",
    "none": "one document a row",
}
OVERLONG = ("split", "truncate", "truncate-left", "drop", "error")
ORDERS = {
    "shuffle": "at random",
    "plan": "as planned",
    "balanced": "at random, but rows of like attention cost in runs of 32; with --world-size in steps of even work",
}
GAPS = {
    "fill": "with shorter documents",
    "leave": "each row length has only the documents that no shorter one serves",
}


class Strategy(Protocol):
    def __call__(
        self, lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator
    ) -> Plan: ...


def load(name: str) -> Strategy:
    """The strategy's function, from the module of that name."""
    return cast(Strategy, import_module(f"{__name__}.{name.replace('-', '_')}").pack)
