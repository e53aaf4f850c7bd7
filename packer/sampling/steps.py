"""An order cut into steps, and each step into one batch a rank.

Every rank gets a batch in every step, and no row is in two. What does not fill the last step is left out
(`drop_last`), or spread over the ranks as evenly as rows can be; a rank that gets none has an empty batch, which the
reader fills with a token that is not trained. So no rank has only filler while another has two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from packer.errors import UsageError
from packer.plan import Int64Array, offsets_of
from packer.sampling.order import Order

BALANCES = ("attention", "tokens", "flops")


@dataclass(frozen=True)
class Sampling:
    """What determines the steps beside the order.

    rows_per_batch, or tokens_per_batch: rows in sequence as long as their tokens fit (a longer row is a batch of its
    own); padded: a batch counts rows times its longest row. balance: ranks of a step get rows of like cost, which is
    `attention`, the sum of squared sequence lengths, `tokens`, so that batches hold rows of like length, or `flops`,
    with a model's FLOPs a token and a unit of attention. schedule, scale_rows: of data sets with several row lengths,
    when each is read (see `packer.sampling.schedule`), and whether rows_per_batch is that of the longest, and of a
    shorter one as many times more as its rows fit in the longest.
    """

    world_size: int = 1
    rows_per_batch: int | None = None
    tokens_per_batch: int | None = None
    padded: bool = False
    balance: str | None = None
    flops: tuple[float, float] | None = None
    drop_last: bool = False
    schedule: str | None = None
    scale_rows: bool = False

    def __post_init__(self) -> None:
        if self.flops is not None:  # a list after JSON, and must equal what it was
            object.__setattr__(self, "flops", tuple(self.flops))

    def check(self) -> None:
        """Raises UsageError where the options make no sense."""
        if (self.rows_per_batch is None) == (self.tokens_per_batch is None):
            raise UsageError("give either rows_per_batch or tokens_per_batch")
        if min(n for n in (self.rows_per_batch, self.tokens_per_batch, self.world_size) if n is not None) < 1:
            raise UsageError("rows_per_batch, tokens_per_batch and world_size are at least 1")
        if self.balance is not None and self.balance not in BALANCES:
            raise UsageError(f"balance {self.balance!r}: one of {', '.join(BALANCES)}")
        if (self.balance == "flops") != (self.flops is not None):
            raise UsageError("balance='flops' and the model's sizes go together")
        if self.scale_rows and self.rows_per_batch is None:
            raise UsageError("scale_rows is for rows_per_batch: tokens_per_batch has like tokens in any case")


@dataclass(frozen=True)
class Work:
    """What rows hold, by row number: tokens, and the sum of squared sequence lengths, (n,)."""

    tokens: NDArray[np.integer]
    attention: NDArray[np.integer]

    def cost(self, sampling: Sampling) -> NDArray[np.float64]:
        """What is to be balanced."""
        if sampling.balance == "flops" and sampling.flops:
            return sampling.flops[0] * self.tokens + sampling.flops[1] * self.attention
        chosen = self.attention if sampling.balance == "attention" else self.tokens
        return chosen.astype(np.float64)


@dataclass(frozen=True)
class Steps:
    """Batch b of the epoch is rows[offsets[b]:offsets[b+1]]; step s has those from s * world_size on, one a rank."""

    rows: Int64Array
    offsets: Int64Array
    world_size: int

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.world_size

    def batch(self, step: int, rank: int) -> Int64Array:
        """Row numbers; empty where the rank gets filler."""
        index = step * self.world_size + rank
        return self.rows[self.offsets[index] : self.offsets[index + 1]]

    def taken(self, steps: int) -> Int64Array:
        """The rows of the first steps, of all ranks."""
        return self.rows[: self.offsets[steps * self.world_size]]


def plan_steps(order: Order, work: Work | None, sampling: Sampling, rng: np.random.Generator) -> Steps:
    """work: needed to count tokens or to balance; rng: orders what balancing has sorted."""
    if sampling.tokens_per_batch is not None and work is not None:
        return _by_tokens(order, work, sampling, sampling.tokens_per_batch, rng)
    rows, ranks, each = order.rows, sampling.world_size, sampling.rows_per_batch or 1
    if sampling.balance and work is not None:
        rows = _dealt(order, work.cost(sampling), ranks, each, rng)
    full, left = divmod(len(rows), ranks * each)
    counts = np.full(full * ranks, each)
    if left and not sampling.drop_last:
        counts = np.append(counts, left // ranks + (np.arange(ranks) < left % ranks))
    return Steps(rows, offsets_of(counts), ranks)


def _windows(order: Order) -> Iterator[Int64Array]:
    for start, stop in zip(order.windows[:-1].tolist(), order.windows[1:].tolist(), strict=True):
        yield order.rows[start:stop]


def _costliest_first(rows: Int64Array, cost: NDArray[np.float64]) -> Int64Array:
    return rows[np.argsort(-cost[rows], kind="stable")]


def _dealt(order: Order, cost: NDArray[np.float64], ranks: int, each: int, rng: np.random.Generator) -> Int64Array:
    """Rows by step and rank: within each window sorted by cost and cut into steps, each step dealt to the ranks back
    and forth, the steps shuffled. What does not fill a step goes to the next window, and at last to the end."""
    carried = order.rows[:0]
    parts: list[Int64Array] = []
    for window in _windows(order):
        rows = np.concatenate([carried, window])
        full = len(rows) // (ranks * each)
        rows, carried = np.split(rows, [full * ranks * each])
        dealt = _costliest_first(rows, cost).reshape(full, each, ranks)
        dealt[:, 1::2] = dealt[:, 1::2, ::-1].copy()
        parts.append(dealt.transpose(0, 2, 1)[rng.permutation(full)].ravel())
    return np.concatenate([*parts, carried])


def _by_tokens(order: Order, work: Work, sampling: Sampling, budget: int, rng: np.random.Generator) -> Steps:
    ranks = sampling.world_size
    if sampling.balance:
        rows, sizes = _by_tokens_and_cost(order, work, sampling, budget, rng)
    else:
        rows = order.rows
        sizes = np.diff([0, *_cuts(work.tokens[rows], budget, padded=sampling.padded)])
    full = len(sizes) // ranks * ranks
    tail = sizes[full:].tolist()
    sizes = sizes[:full]
    if tail and not sampling.drop_last:
        sizes = np.append(sizes, _spread(tail, ranks))
    return Steps(rows, offsets_of(sizes), ranks)


def _by_tokens_and_cost(
    order: Order, work: Work, sampling: Sampling, budget: int, rng: np.random.Generator
) -> tuple[Int64Array, Int64Array]:
    """Rows, and rows a batch: sorted within each window, cut, and as many batches as there are ranks shuffled as one.
    Batches of a window that fill no step wait for the end, where they make steps of their own."""
    cost, ranks = work.cost(sampling), sampling.world_size
    batches: list[Int64Array] = []
    waiting: list[Int64Array] = []
    for window in _windows(order):
        rows = _costliest_first(window, cost)
        made = np.split(rows, list(_cuts(work.tokens[rows], budget, padded=sampling.padded))[:-1])
        full = len(made) // ranks
        for step in rng.permutation(full).tolist():
            batches += made[step * ranks : (step + 1) * ranks]
        waiting += made[full * ranks :]
    batches = [batch for batch in batches + waiting if len(batch)]
    return np.concatenate([order.rows[:0], *batches]), np.array([len(batch) for batch in batches], np.int64)


def _cuts(tokens: NDArray[np.integer], budget: int, *, padded: bool) -> Iterator[int]:
    """Where batches end, the last one too."""
    ends = offsets_of(tokens)
    longest = tokens.tolist() if padded else []
    start = 0
    while start < len(tokens):
        if padded:
            stop, widest = start, 0
            while stop < len(tokens):
                widest = max(widest, longest[stop])
                if widest * (stop + 1 - start) > budget:
                    break
                stop += 1
        else:
            stop = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
        start = max(stop, start + 1)
        yield start


def _spread(sizes: list[int], ranks: int) -> list[int]:
    """Batches for all ranks from too few: the largest is halved until there are enough, or none has two rows."""
    while len(sizes) < ranks and max(sizes) > 1:
        largest = sizes.index(max(sizes))
        half = sizes[largest] // 2
        sizes[largest : largest + 1] = [sizes[largest] - half, half]
    return sizes + [0] * (ranks - len(sizes))
