"""`Epochs`: the batches of one rank, epoch after epoch, as row numbers; and the state to go on from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from packer.errors import UsageError
from packer.plan import BoolArray, Int64Array, offsets_of
from packer.reader.batch import Batch, joined
from packer.reader.dataset import PackedDataset
from packer.sampling import Order, Progress, Sampling, Steps, Taken, Work, left_of, mixed, plan_steps, schedule

MIX_WINDOW = 4096  # rows of a mixture that are sorted together where rows are not read one by one


class Epochs:
    """Which rows come next on a rank.

    datasets: one, or several with their shares of the tokens. Batches of an epoch are the same for the same seed and
    options, whatever reads them. `epoch` counts on by itself; `set_epoch` chooses it. The state counts the steps that
    `advance` was told of.
    """

    def __init__(
        self,
        datasets: Sequence[PackedDataset],
        weights: Sequence[float],
        sampling: Sampling,
        *,
        rank: int,
        seed: int,
        shuffle: bool,
        buffer_groups: int,
    ) -> None:
        sampling.check()
        schedule.check(sampling.schedule)
        several = any(len(dataset.row_lengths) > 1 for dataset in datasets)
        if several and len(datasets) > 1:
            raise UsageError("a data set with several row lengths cannot be part of a mixture")
        if sampling.schedule is not None and not several:
            raise UsageError("schedule is for data sets with several row lengths: this one has rows of one length")
        if not 0 <= rank < sampling.world_size:
            raise UsageError(f"rank {rank} of {sampling.world_size}")
        if len(datasets) > 1 and (len(weights) != len(datasets) or min(weights) <= 0):
            raise UsageError("each data set of a mixture needs a weight above 0")
        if seed < 0 or buffer_groups < 1:
            raise UsageError("seed is at least 0, and buffer_groups at least 1")
        self.datasets, self.weights, self.sampling, self.rank = datasets, weights, sampling, rank
        self.buffer_groups = buffer_groups
        self._first = offsets_of(np.array([dataset.stored_rows for dataset in datasets], np.int64))
        fingerprint = datasets[0].fingerprint
        if len(datasets) > 1:
            named = [f"{one.fingerprint} {weight!r}" for one, weight in zip(datasets, weights, strict=True)]
            fingerprint = sha256("\n".join(named).encode()).hexdigest()
        self.progress = Progress(fingerprint, seed, shuffle, buffer_groups)
        self._work: Work | None = None
        self._planned: tuple[Any, Steps] | None = None

    # Where we are

    @property
    def steps(self) -> Steps:
        """The steps of the epoch that are planned under the present options: all, or what was left at a resume."""
        key = (self.progress.epoch, self.progress.seed, self.sampling, len(self._earlier))
        if self._planned is None or self._planned[0] != key:
            order = left_of(self._order(), int(self._first[-1]), self._before, self._plan)
            self._planned = key, self._plan(order, self.sampling, self._before.rng())
        return self._planned[1]

    @property
    def done(self) -> int:
        """How many of these steps were taken."""
        last = self.progress.taken[-1:]
        return last[0].steps if last and last[0].sampling == self.sampling else 0

    @property
    def _earlier(self) -> list[Taken]:
        """What was taken under other options, before the present ones."""
        taken = self.progress.taken
        return taken[:-1] if taken and taken[-1].sampling == self.sampling else taken

    @property
    def _before(self) -> Progress:
        return replace(self.progress, taken=list(self._earlier))

    def __len__(self) -> int:
        """Batches of this epoch on this rank, of every rank; after a resume under other options, of what was left."""
        return len(self.steps)

    def rows(self, start: int) -> Iterator[Int64Array]:
        """The row numbers of this rank's batches from step `start` on; none for filler."""
        steps = self.steps
        for step in range(start, len(steps)):
            yield steps.batch(step, self.rank)

    def optimizer_steps(self, tokens: int | None) -> BoolArray | None:
        """Whether the optimizer steps after each step: bool (steps,); where so many tokens have come together since it
        last did, and after the last. None without a target."""
        if tokens is None:
            return None
        steps = self.steps
        held = offsets_of(self._all_work().tokens[steps.rows[: steps.offsets[-1]]])
        ends = held[steps.offsets[:: steps.world_size]]
        last = np.zeros(len(steps), np.bool_)
        done = 0
        while done < len(steps):
            done = max(done + 1, min(int(np.searchsorted(ends, ends[done] + tokens)), len(steps)))
            last[done - 1] = True
        return last

    # Going on

    def advance(self) -> None:
        """One more step was taken."""
        self.progress.taken = [*self._earlier, Taken(self.sampling, self.done + 1)]

    def set_epoch(self, epoch: int) -> None:
        """Goes to the start of an epoch; to where it is, if it is there already."""
        if epoch != self.progress.epoch:
            self.progress.epoch, self.progress.taken = epoch, []

    def restart(self) -> None:
        """The same epoch from its start; the next one, if all of it was taken."""
        finished = self.done > 0 and self.done == len(self.steps)
        self.progress.epoch += finished
        self.progress.taken = []

    def state_dict(self) -> dict[str, Any]:
        """Plain values, the same on every rank."""
        return self.progress.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where the state was taken, under the present options. Raises DatasetError if it is of other data.

        Seed, shuffling and buffer come from the state: the rest of the epoch is the rest of that order.
        """
        self.progress = Progress.of_state(dict(state), self.progress.fingerprint)
        self._planned = None

    # Planning

    def _order(self) -> Order:
        orders = [Order.joined(self._orders(dataset)) for dataset in self.datasets]
        if len(orders) == 1:
            return orders[0]
        alone = all(dataset.random_access for dataset in self.datasets)
        tokens = [dataset.work().tokens for dataset in self.datasets]
        return mixed(orders, tokens, self.weights, None if alone else MIX_WINDOW)

    def _orders(self, dataset: PackedDataset) -> list[Order]:
        at = self.progress
        buffer = at.buffer_groups or self.buffer_groups
        return dataset.orders(at.seed, at.epoch, shuffle=at.shuffle, buffer_groups=buffer)

    def _plan(self, order: Order, sampling: Sampling, rng: np.random.Generator) -> Steps:
        work = self._all_work() if sampling.tokens_per_batch or sampling.balance else None
        if len(self.datasets[0].row_lengths) == 1:
            return plan_steps(order, work, sampling, rng)
        at, dataset = self.progress, self.datasets[0]
        name = sampling.schedule or ("random" if at.shuffle else "stored")
        return dataset.lengths(self._orders(dataset), name, at.seed, at.epoch).plan(order, work, sampling, rng)

    def _all_work(self) -> Work:
        if self._work is None:
            parts = [dataset.work() for dataset in self.datasets]
            self._work = Work(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("tokens", "attention")))
        return self._work


def read(datasets: Sequence[PackedDataset], rows: Int64Array) -> Batch:
    """The rows of these numbers as one batch; those of data set i count on from those before it."""
    if len(datasets) == 1 or not len(rows):
        return datasets[0].batch(rows)
    first = offsets_of(np.array([dataset.stored_rows for dataset in datasets], np.int64))
    source = np.searchsorted(first, rows, side="right") - 1
    cuts = np.flatnonzero(np.diff(source)) + 1
    parts = zip(np.split(rows, cuts), np.split(source, cuts), strict=True)
    return joined([datasets[int(of[0])].batch(part - first[int(of[0])]) for part, of in parts])
