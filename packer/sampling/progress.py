"""How far an epoch has come. The state names the steps taken and under which options; what they took follows from that.

So an epoch can be resumed under other options: the rows not yet taken are planned anew, none is repeated or skipped.
Counting on by a new world size instead would do both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from packer.errors import DatasetError
from packer.sampling.order import Order
from packer.sampling.steps import Sampling, Steps

VERSION = 1


@dataclass(frozen=True)
class Taken:
    """So many steps under these options."""

    sampling: Sampling
    steps: int


@dataclass
class Progress:
    """An epoch, and what was taken of it. fingerprint: of the data; seed, shuffle and buffer_groups give its order."""

    fingerprint: str
    seed: int
    shuffle: bool
    buffer_groups: int | None
    epoch: int = 0
    taken: list[Taken] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """As plain values, the same on every rank."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of_state(cls, state: dict[str, Any], fingerprint: str) -> Progress:
        """Raises DatasetError if the state is of other data, or no state at all."""
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise DatasetError(f"this is no state of a loader, or of another version than {VERSION}")
        try:
            values = {key: value for key, value in state.items() if key not in ("version", "taken")}
            taken = [Taken(Sampling(**one["sampling"]), int(one["steps"])) for one in state["taken"]]
            found = cls(**values, taken=taken)
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"this state of a loader is damaged: {error!r}") from error
        if found.fingerprint != fingerprint:
            raise DatasetError(
                "this state belongs to another data set: its manifest has the fingerprint "
                f"{found.fingerprint[:12]}..., this one {fingerprint[:12]}..."
            )
        return found

    def rng(self) -> np.random.Generator:
        """For what is planned next: another stream each time that options change within the epoch."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, self.epoch, len(self.taken) + 1]))


def left_of(
    order: Order, rows: int, progress: Progress, plan: Callable[[Order, Sampling, np.random.Generator], Steps]
) -> Order:
    """What is left of the epoch after all that was taken. rows: of the data set."""
    earlier: Sequence[Taken] = progress.taken
    for index, taken in enumerate(earlier):
        before = Progress(**{**vars(progress), "taken": list(earlier[:index])})
        done = np.zeros(rows, np.bool_)
        done[plan(order, taken.sampling, before.rng()).taken(taken.steps)] = True
        order = order.without(done)
    return order
