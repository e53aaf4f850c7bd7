"""Planning: which document goes into which row.

One strategy, one file, one line in `STRATEGIES`. Each is a function `pack` with the same signature:

    pack(lengths, max_length, *, max_segments=None, rng) -> Plan

lengths: int32 (n,), tokens of each document (or piece of one, see `overlong`), at least 1. All but `wrapped` need
them to be at most max_length. The plan places every token exactly once. `rng` settles ties, so that seeds give other
rows at the same count. What `semantic` knows of documents beyond their lengths it takes as further arguments. Strategy
modules are imported when used: listing them costs nothing.

    >>> pack = load("bfd")
    >>> pack(np.array([3, 2, 1], np.int32), 4, rng=np.random.default_rng(0)).rows
    2
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

from packer.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from packer.plan import Int32Array, Plan

STRATEGIES = {
    "bfd": "best-fit decreasing: fewest rows in practice (default)",
    "ffd": "first-fit decreasing",
    "optimal": "cutting stock by column generation: fewest rows, for lengths that bfd leaves room with",
    "first-fit": "first row with room, documents in input order",
    "wrapped": "concatenate everything and cut: full rows, documents cut",
    "none": "one document a row",
    "semantic": "like documents share a row, near-duplicates do not",
}
EXTRAS = {"optimal": ("highspy", "optimal")}  # strategies that need a package more: it, and the extra that brings it
SIMILARITY_THRESHOLD = 0.9  # of semantic
PLAN_EFFORT = 60  # of optimal, for a block
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


def missing(name: str) -> str | None:
    """What has to be installed before the strategy can be used, as a sentence; None if it can be."""
    package, extra = EXTRAS.get(name, ("", ""))
    if not package or find_spec(package):
        return None
    return f"--strategy {name} needs {package}, which is not installed: pip install 'packer[{extra}]'"


def load(name: str) -> Strategy:
    """The strategy's function, from the module of that name. Raises UsageError where it needs what is not installed."""
    if reason := missing(name):
        raise UsageError(reason)
    return cast(Strategy, import_module(f"{__name__}.{name.replace('-', '_')}").pack)
