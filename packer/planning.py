"""A block's plan, with what only some strategies know or need: a bound, an effort, a limit in time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from packer import packing
from packer.errors import PackerError
from packer.plan import Int32Array, Plan
from packer.relating import planned
from packer.similarity import Traits


class PlanTimeError(PackerError):
    """Planning a block that took longer than it may."""


def plan_rows(
    strategy: str,
    lengths: Int32Array,
    max_length: int,
    *,
    max_segments: int | None,
    rng: np.random.Generator,
    effort: int | None = None,
    seconds: float | None = None,
    watch: Callable[[], None] | None = None,
    traits: Traits | None = None,
    threshold: float = packing.SIMILARITY_THRESHOLD,
) -> tuple[Plan, int | None]:
    """The plan, and of `optimal` the rows that none can go below. effort: None for the default; seconds: PlanTimeError
    when they are over; watch: called between steps of `optimal`, and what it raises ends planning; traits: of what has
    these lengths, with `threshold` for `semantic`."""
    if strategy != "optimal":
        return planned(strategy, lengths, max_length, max_segments, rng, traits, threshold), None
    from packer.packing import optimal

    work = packing.PLAN_EFFORT if effort is None else effort
    if seconds is not None:
        watch = _deadline(seconds, len(lengths), work, watch)
    made = optimal.planned(lengths, max_length, max_segments=max_segments, rng=rng, effort=work, watch=watch)
    return made.plan, made.bound


def strategy_of(name: str, **effort: Any) -> packing.Strategy:
    """What plans by lengths alone, as a function of these. effort: as for `plan_rows`, with seconds and watch."""

    def pack(
        lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator
    ) -> Plan:
        return plan_rows(name, lengths, max_length, max_segments=max_segments, rng=rng, **effort)[0]

    return pack


def _deadline(seconds: float, documents: int, effort: int, watch: Callable[[], None] | None) -> Callable[[], None]:
    end = monotonic() + seconds

    def both() -> None:
        if watch:
            watch()
        if monotonic() > end:
            raise PlanTimeError(
                f"--strategy optimal: planning a block of {documents:,} documents took more than --plan-seconds "
                f"{seconds:g}; give a smaller --plan-effort (it is {effort}), or more seconds"
            )

    return both
