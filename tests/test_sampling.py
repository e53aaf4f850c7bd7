"""Which rows come in which batch of which rank, against slow references and on grids. Pure NumPy, no files.

The faults that users of other loaders reported are cited by project and number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import DatasetError, UsageError
from packer.plan import Int64Array
from packer.reader.epochs import Epochs
from packer.sampling import Order, Sampling, Steps, Work, epoch_order, mixed, plan_steps

ROWS = range(1, 51)
SOME_ROWS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 33, 40, 49, 50)
RANKS = range(1, 9)
BATCHES = range(1, 5)
FLOPS = (6.0e6, 2.0e3)


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng([99, *seed])


def one_window(rows: Sequence[int] | Int64Array) -> Order:
    return Order(np.asarray(rows, np.int64), np.array([0, len(rows)]))


def some_work(rows: int, seed: int = 0, longest: int = 40) -> Work:
    """Lengths with ties, and a sum of squares that does not follow from them."""
    draw = rng(rows, seed)
    tokens = draw.integers(1, longest + 1, rows)
    return Work(tokens, tokens * draw.integers(1, tokens + 1))


# --- the order of an epoch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer_groups", [None, 1, 2, 3, 100])
@pytest.mark.parametrize("shuffle", [True, False])
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 1 << 40), st.integers(0, 50))
def test_every_row_once(shuffle: bool, buffer_groups: int | None, group_rows: list[int], seed: int, epoch: int) -> None:
    order = epoch_order(np.array(group_rows), seed, epoch, shuffle=shuffle, buffer_groups=buffer_groups)
    assert sorted(order.rows.tolist()) == list(range(sum(group_rows)))
    assert order.rows.dtype == order.windows.dtype == np.int64
    assert (order.windows[0], order.windows[-1]) == (0, sum(group_rows))
    assert (np.diff(order.windows) >= 0).all()
    if not shuffle:
        assert order.rows.tolist() == list(range(sum(group_rows)))


def test_datasets_6673_every_epoch_and_seed_has_its_own_order() -> None:
    """(1, 1) and (2, 0) too, which a sum of seed and epoch would make the same."""
    for buffer_groups in (None, 2):
        orders = {
            tuple(epoch_order(np.full(8, 5), seed, epoch, buffer_groups=buffer_groups).rows.tolist())
            for seed, epoch in product(range(5), range(5))
        }
        assert len(orders) == 25


def test_the_same_seed_and_epoch_give_the_same_order() -> None:
    for buffer_groups in (None, 2):
        first, again = (epoch_order(np.full(8, 5), 3, 4, buffer_groups=buffer_groups) for _ in range(2))
        assert first.rows.tolist() == again.rows.tolist()
        assert first.windows.tolist() == again.windows.tolist()


def rank_correlation(rows: Int64Array) -> float:
    return float(np.corrcoef(rows, np.arange(len(rows)))[0, 1])


@pytest.mark.parametrize("buffer_groups", [None, 1, 8])
def test_streaming_796_webdataset_71_a_strong_shuffle(buffer_groups: int | None) -> None:
    """Rank correlation with the file's order near 0. Of n shuffled groups its deviation is about 1 / sqrt(n)."""
    groups = np.full(1000, 20)
    found = [rank_correlation(epoch_order(groups, seed, 0, buffer_groups=buffer_groups).rows) for seed in range(30)]
    deviation = 1 / np.sqrt(20_000 if buffer_groups is None else 1000)
    assert max(map(abs, found)) < 4 * deviation
    assert abs(np.mean(found)) < 4 * deviation / np.sqrt(30)


def test_neighbours_in_the_file_are_torn_apart() -> None:
    rows = epoch_order(np.array([10_000]), 0, 0).rows
    assert np.count_nonzero(np.diff(rows) == 1) < 10


def test_all_orders_equally_often() -> None:
    """Chi-square of 23 degrees of freedom; the seeds are fixed."""
    for groups in ([4], [1, 1, 1, 1], [2, 2]):
        buffer = None if groups == [4] else 4
        seen: dict[tuple[int, ...], int] = {}
        for seed in range(2400):
            rows = tuple(epoch_order(np.array(groups), seed, seed % 7, buffer_groups=buffer).rows.tolist())
            seen[rows] = seen.get(rows, 0) + 1
        assert len(seen) == 24
        assert sum((n - 100) ** 2 / 100 for n in seen.values()) < 60


@pytest.mark.parametrize("buffer_groups", [1, 2, 3, 8])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_window_is_of_few_whole_groups(shuffle: bool, buffer_groups: int) -> None:
    """So that each group is decoded once."""
    group_rows = rng(buffer_groups).integers(1, 9, 20)
    group_of = np.repeat(np.arange(20), group_rows)
    order = epoch_order(group_rows, 1, 2, shuffle=shuffle, buffer_groups=buffer_groups)
    seen: set[int] = set()
    for start, stop in pairwise(order.windows.tolist()):
        groups = set(group_of[order.rows[start:stop]].tolist())
        assert len(groups) <= buffer_groups
        assert not groups & seen
        assert stop - start == sum(group_rows[list(groups)])
        seen |= groups
    assert len(seen) == 20


def test_rows_of_a_buffer_are_shuffled_together() -> None:
    order = epoch_order(np.full(4, 200), 0, 0, buffer_groups=2)
    group_of = order.rows // 200
    for start, stop in pairwise(order.windows.tolist()):
        changes = np.count_nonzero(np.diff(group_of[start:stop]))
        assert 150 < changes < 250


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_what_is_left_keeps_its_order_and_windows(groups: list[int], buffer: int, data: st.DataObject) -> None:
    order = epoch_order(np.array(groups), 5, 6, buffer_groups=buffer)
    total = sum(groups)
    taken = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)), np.bool_)
    left = order.without(taken)
    expected = [
        [row for row in order.rows[start:stop].tolist() if not taken[row]]
        for start, stop in pairwise(order.windows.tolist())
    ]
    assert [left.rows[a:b].tolist() for a, b in pairwise(left.windows.tolist())] == expected


# --- steps: what must hold whatever the options ----------------------------------------------------------------------

MODES: dict[str, dict[str, Any]] = {
    "rows": {},
    "rows balanced": {"balance": "attention"},
    "rows of like length": {"balance": "tokens"},
    "flops balanced": {"balance": "flops", "flops": FLOPS},
    "tokens": {"tokens_per_batch": 50},
    "tokens padded": {"tokens_per_batch": 50, "padded": True},
    "tokens balanced": {"tokens_per_batch": 50, "balance": "attention"},
    "tokens padded, of like length": {"tokens_per_batch": 50, "padded": True, "balance": "tokens"},
}
WINDOWS = (1, 3)  # cut into so many: what sorts rows does it within each


def sampling_of(mode: str, ranks: int, each: int, *, drop_last: bool = False) -> Sampling:
    options = dict(MODES[mode])
    if "tokens_per_batch" in options:
        options["tokens_per_batch"] = 20 * each
    else:
        options["rows_per_batch"] = each
    sampling = Sampling(world_size=ranks, drop_last=drop_last, **options)
    sampling.check()
    return sampling


def order_of(rows: int, windows: int) -> Order:
    cuts = sorted(rng(rows, windows).integers(0, rows + 1, windows - 1).tolist())
    return Order(rng(rows).permutation(rows), np.array([0, *cuts, rows]))


def batches_of(steps: Steps) -> list[list[list[int]]]:
    """By step and rank."""
    return [[steps.batch(s, rank).tolist() for rank in range(steps.world_size)] for s in range(len(steps))]


def in_budget(batch: list[int], work: Work, sampling: Sampling) -> bool:
    if sampling.rows_per_batch is not None:
        return len(batch) <= sampling.rows_per_batch
    assert sampling.tokens_per_batch is not None
    held = [int(work.tokens[row]) for row in batch]
    size = len(held) * max(held, default=0) if sampling.padded else sum(held)
    return size <= sampling.tokens_per_batch or len(batch) == 1


def assert_dealt(steps: Steps, rows: list[int], work: Work, sampling: Sampling) -> None:
    """Every rank has as many batches; no row twice; all rows, or all but the last step; budgets; no idle rank."""
    assert (len(steps.offsets) - 1) == len(steps) * sampling.world_size
    found = batches_of(steps)
    flat = [row for step in found for batch in step for row in batch]
    assert len(flat) == len(set(flat))
    assert set(flat) <= set(rows)
    lost = len(rows) - len(flat)
    if not sampling.drop_last:
        assert lost == 0
    elif sampling.rows_per_batch is not None:
        assert lost < sampling.rows_per_batch * sampling.world_size
        assert all(len(batch) == sampling.rows_per_batch for step in found for batch in step)
    for step in found:
        sizes = [len(batch) for batch in step]
        assert max(sizes) > 0
        assert min(sizes) > 0 or max(sizes) == 1, "a rank has only filler while another has two rows"
        assert all(in_budget(batch, work, sampling) for batch in step)
    for step in found[:-1]:
        assert all(step)
    for count in range(len(found) + 1):
        assert steps.taken(count).tolist() == [row for step in found[:count] for batch in step for row in batch]


@pytest.mark.parametrize("mode", MODES)
def test_litdata_233_datasets_6437_as_many_batches_for_every_rank(mode: str) -> None:
    """1..8 ranks, batches of 1..4; all of 1..50 rows below."""
    for rows, ranks, each in product(SOME_ROWS, RANKS, BATCHES):
        windows, drop_last = WINDOWS[rows % 2], bool((rows // 2 + each) % 2)
        sampling, work = sampling_of(mode, ranks, each, drop_last=drop_last), some_work(rows)
        steps = plan_steps(order_of(rows, windows), work, sampling, rng(ranks, each))
        assert_dealt(steps, list(range(rows)), work, sampling)


@pytest.mark.slow
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("mode", MODES)
def test_litdata_233_datasets_6437_on_the_whole_grid(mode: str, windows: int, drop_last: bool) -> None:
    for rows, ranks, each in product(ROWS, RANKS, BATCHES):
        sampling, work = sampling_of(mode, ranks, each, drop_last=drop_last), some_work(rows, seed=1)
        steps = plan_steps(order_of(rows, windows), work, sampling, rng(ranks, each))
        assert_dealt(steps, list(range(rows)), work, sampling)


@pytest.mark.parametrize("mode", MODES)
def test_no_rows_no_steps(mode: str) -> None:
    for ranks, drop_last in product(RANKS, (False, True)):
        steps = plan_steps(one_window([]), some_work(0), sampling_of(mode, ranks, 2, drop_last=drop_last), rng())
        assert (len(steps), len(steps.rows)) == (0, 0)


# --- steps: against slow references ----------------------------------------------------------------------------------


def slow_cuts(rows: list[int], work: Work, sampling: Sampling) -> list[list[int]]:
    """A row goes to the batch before it while that fits."""
    batches: list[list[int]] = []
    for row in rows:
        if batches and in_budget([*batches[-1], row], work, sampling):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def test_rows_in_order_as_many_a_batch() -> None:
    for rows, ranks, each in product(SOME_ROWS, RANKS, BATCHES):
        order = order_of(rows, 1)
        found = batches_of(plan_steps(order, None, sampling_of("rows", ranks, each), rng()))
        assert [row for step in found for batch in step for row in batch] == order.rows.tolist()
        assert all(len(batch) == each for step in found[:-1] for batch in step)
        sizes = [len(batch) for batch in found[-1]]
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) <= each


@pytest.mark.parametrize("mode", ["tokens", "tokens padded"])
def test_tokens_in_order_while_they_fit(mode: str) -> None:
    for rows, ranks, each in product(SOME_ROWS, RANKS, BATCHES):
        sampling, work, order = sampling_of(mode, ranks, each), some_work(rows), order_of(rows, 3)
        found = batches_of(plan_steps(order, work, sampling, rng()))
        expected = slow_cuts(order.rows.tolist(), work, sampling)
        whole = len(expected) // ranks
        assert [batch for step in found[:whole] for batch in step] == expected[: whole * ranks]
        assert [row for step in found for batch in step for row in batch] == order.rows.tolist()
        assert len(found) == -(-len(expected) // ranks)
        dropped = batches_of(plan_steps(order, work, replace(sampling, drop_last=True), rng()))
        assert dropped == found[:whole]


def slow_costs(work: Work, sampling: Sampling) -> list[float]:
    if sampling.balance == "flops":
        pairs = zip(work.tokens.tolist(), work.attention.tolist(), strict=True)
        return [FLOPS[0] * tokens + FLOPS[1] * attention for tokens, attention in pairs]
    return (work.tokens if sampling.balance == "tokens" else work.attention).tolist()


def slow_balanced(order: Order, work: Work, sampling: Sampling) -> tuple[list[list[list[list[int]]]], list[int]]:
    """Steps by window, unshuffled, and what fills no step. Within a step the costliest row goes to rank 0, the next to
    rank 1, ..., then back."""
    cost, ranks, each = slow_costs(work, sampling), sampling.world_size, sampling.rows_per_batch or 0
    windows, carried = [], []
    for start, stop in pairwise(order.windows.tolist()):
        rows = carried + order.rows[start:stop].tolist()
        whole = len(rows) // (ranks * each) * ranks * each
        rows, carried = sorted(rows[:whole], key=lambda row: -cost[row]), rows[whole:]
        steps = []
        for at in range(0, whole, ranks * each):
            dealt: list[list[int]] = [[] for _ in range(ranks)]
            for turn in range(each):
                there = range(ranks) if turn % 2 == 0 else reversed(range(ranks))
                for number, rank in enumerate(there):
                    dealt[rank].append(rows[at + turn * ranks + number])
            steps.append(dealt)
        windows.append(steps)
    return windows, carried


@pytest.mark.parametrize("mode", ["rows balanced", "rows of like length", "flops balanced"])
def test_rows_dealt_back_and_forth_by_cost(mode: str) -> None:
    for rows, ranks, each in product(SOME_ROWS, RANKS, BATCHES):
        sampling, work, order = sampling_of(mode, ranks, each), some_work(rows), order_of(rows, WINDOWS[rows % 2])
        found = batches_of(plan_steps(order, work, sampling, rng(rows)))
        windows, left = slow_balanced(order, work, sampling)
        at = 0
        for steps in windows:
            assert sorted(found[at : at + len(steps)]) == sorted(steps)
            at += len(steps)
        assert [row for step in found[at:] for batch in step for row in batch] == left


@pytest.mark.parametrize("mode", ["tokens balanced", "tokens padded, of like length"])
def test_tokens_cut_by_cost_within_each_window(mode: str) -> None:
    for rows, ranks, each in product(SOME_ROWS, RANKS, BATCHES):
        sampling, work, order = sampling_of(mode, ranks, each), some_work(rows), order_of(rows, WINDOWS[rows % 2])
        cost = slow_costs(work, sampling)
        found = batches_of(plan_steps(order, work, sampling, rng(rows)))
        at, waiting = 0, []
        for start, stop in pairwise(order.windows.tolist()):
            window = sorted(order.rows[start:stop].tolist(), key=lambda row: -cost[row])
            made = slow_cuts(window, work, sampling)
            whole = len(made) // ranks
            expected = [made[s * ranks : (s + 1) * ranks] for s in range(whole)]
            assert sorted(found[at : at + whole]) == sorted(expected)
            at, waiting = at + whole, waiting + made[whole * ranks :]
        assert [row for step in found[at:] for batch in step for row in batch] == [row for of in waiting for row in of]


def test_steps_that_balancing_sorted_are_shuffled() -> None:
    work, order = some_work(4000, longest=1000), one_window(np.arange(4000))
    sampling = Sampling(world_size=4, rows_per_batch=5, balance="attention")
    costs = []
    for seed in range(2):
        steps = plan_steps(order, work, sampling, rng(seed))
        costs.append(work.attention[steps.rows].reshape(len(steps), -1).sum(1))
        assert abs(rank_correlation(costs[-1].argsort())) < 0.25
    assert costs[0].tolist() != costs[1].tolist()
    assert sorted(costs[0].tolist()) == sorted(costs[1].tolist())


@pytest.mark.parametrize("mode", MODES)
def test_the_same_numbers_give_the_same_steps(mode: str) -> None:
    first, again = (plan_steps(order_of(50, 3), some_work(50), sampling_of(mode, 3, 2), rng(7)) for _ in range(2))
    assert batches_of(first) == batches_of(again)


def test_global_steps_do_not_depend_on_how_rows_are_dealt_to_ranks() -> None:
    """Two ranks of four rows and four ranks of two take the same rows in the same step, in the same order."""
    for rows in range(1, 100):
        order = order_of(rows, 1)
        plans = [
            plan_steps(order, None, Sampling(world_size=ranks, rows_per_batch=each), rng())
            for ranks, each in ((1, 8), (2, 4), (4, 2), (8, 1))
        ]
        steps = [[[row for batch in step for row in batch] for step in batches_of(plan)] for plan in plans]
        assert all(other == steps[0] for other in steps)


def test_balanced_global_steps_hold_the_same_rows_however_dealt() -> None:
    order, work = order_of(96, 1), some_work(96)
    plans = [
        plan_steps(order, work, Sampling(world_size=ranks, rows_per_batch=each, balance="attention"), rng(1))
        for ranks, each in ((2, 4), (4, 2), (8, 1))
    ]
    steps = [[sorted(row for batch in step for row in batch) for step in batches_of(plan)] for plan in plans]
    assert all(other == steps[0] for other in steps)


def imbalance(steps: Steps, cost: np.ndarray) -> float:
    """Mean over whole steps of the costliest rank over the mean rank."""
    per_step = [[cost[batch].sum() for batch in step] for step in batches_of(steps) if all(step)]
    return float(np.mean([max(ranks) / np.mean(ranks) for ranks in per_step]))


@pytest.mark.parametrize("balance", ["attention", "tokens", "flops"])
@pytest.mark.parametrize("options", [{"rows_per_batch": 4}, {"rows_per_batch": 8}, {"rows_per_batch": 1}], ids=str)
def test_balance_evens_out_eight_ranks(balance: str, options: dict[str, int]) -> None:
    """Lognormal costs, as sums of squared lengths are. max/mean over the ranks of a step, shuffled and balanced."""
    draw, rows = rng(8), 16_000
    attention = np.ceil(draw.lognormal(14, 1.2, rows)).astype(np.int64)
    work = Work(np.ceil(np.sqrt(attention) * draw.uniform(1, 4, rows)).astype(np.int64), attention)
    flops = FLOPS if balance == "flops" else None
    sampling = Sampling(world_size=8, balance=balance, flops=flops, **options)
    cost, order = work.cost(sampling), one_window(draw.permutation(rows))
    shuffled = imbalance(plan_steps(order, work, replace(sampling, balance=None, flops=None), rng()), cost)
    balanced = imbalance(plan_steps(order, work, sampling, rng()), cost)
    print(f"{balance} {options}: max/mean over 8 ranks {shuffled:.3f} shuffled, {balanced:.4f} balanced")
    assert shuffled > 1.2
    assert balanced < 1.005


def test_balance_does_not_change_how_many_steps_there_are() -> None:
    for rows, ranks, each in product(SOME_ROWS, RANKS, BATCHES):
        plain, balanced = (
            plan_steps(order_of(rows, 3), some_work(rows), sampling_of(mode, ranks, each), rng())
            for mode in ("rows", "rows balanced")
        )
        assert len(plain) == len(balanced) == -(-rows // (ranks * each))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rows_per_batch": 1, "tokens_per_batch": 1},
        {"rows_per_batch": -1},
        {"tokens_per_batch": -5},
        {"rows_per_batch": 1, "world_size": 0},
        {"rows_per_batch": 1, "balance": "rows"},
        {"rows_per_batch": 1, "balance": "flops"},
        {"rows_per_batch": 1, "flops": FLOPS},
        {"rows_per_batch": 1, "balance": "tokens", "flops": FLOPS},
        {"rows_per_batch": 0},
        {"tokens_per_batch": 0},
    ],
    ids=str,
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Sampling(**options).check()


# --- mixing ----------------------------------------------------------------------------------------------------------


def a_mixture(seed: int, sets: int) -> tuple[list[Order], list[np.ndarray], list[float]]:
    draw = rng(seed, sets)
    tokens = [draw.integers(1, 30, draw.integers(1, 60)) for _ in range(sets)]
    orders = [one_window(draw.permutation(len(of))) for of in tokens]
    return orders, tokens, [round(float(weight), 2) for weight in draw.uniform(0.1, 5, sets)]


def slow_mixture(orders: list[Order], tokens: list[np.ndarray], weights: list[float]) -> Iterator[tuple[int, int]]:
    """(data set, row of it): always from the one that is furthest behind; until one has no more when it is its turn."""
    rows, taken = [order.rows.tolist() for order in orders], [0 for _ in orders]
    while True:
        clocks = [of / weight for of, weight in zip(taken, weights, strict=True)]
        behind = clocks.index(min(clocks))
        if not all(rows[i] for i in range(len(rows)) if clocks[i] == clocks[behind]):
            return
        row = rows[behind].pop(0)
        taken[behind] += int(tokens[behind][row])
        yield behind, row


def as_pairs(order: Order, tokens: list[np.ndarray]) -> list[tuple[int, int]]:
    first = np.cumsum([0, *map(len, tokens)])
    source = np.searchsorted(first, order.rows, side="right") - 1
    return list(zip(source.tolist(), (order.rows - first[source]).tolist(), strict=True))


MIXTURES = [(seed, sets) for seed in range(60) for sets in (1, 2, 3, 5)]


def test_mixture_always_from_the_set_furthest_behind() -> None:
    for seed, sets in MIXTURES:
        orders, tokens, weights = a_mixture(seed, sets)
        found = as_pairs(mixed(orders, tokens, weights, None), tokens)
        assert found == list(slow_mixture(orders, tokens, weights))


def test_mixture_has_its_shares_at_every_prefix_within_a_row() -> None:
    for seed, sets in MIXTURES:
        orders, tokens, weights = a_mixture(seed, sets)
        clocks = np.zeros(sets)
        one_row = max(of.max() / weight for of, weight in zip(tokens, weights, strict=True))
        for source, row in as_pairs(mixed(orders, tokens, weights, None), tokens):
            clocks[source] += tokens[source][row] / weights[source]
            assert np.ptp(clocks) <= one_row * (1 + 1e-12)


def test_mixture_repeats_nothing_and_ends_with_the_first_set() -> None:
    for seed, sets in MIXTURES:
        orders, tokens, weights = a_mixture(seed, sets)
        order = mixed(orders, tokens, weights, None)
        found = as_pairs(order, tokens)
        assert len(set(found)) == len(found)
        counts = [sum(source == i for source, _ in found) for i in range(sets)]
        ends = [of.sum() / weight for of, weight in zip(tokens, weights, strict=True)]
        assert counts[int(np.argmin(ends))] == len(tokens[int(np.argmin(ends))])
        for i in range(sets):
            of_set = [row for source, row in found if source == i]
            assert of_set == orders[i].rows[: counts[i]].tolist(), "each in its own order"
        assert (order.windows[0], order.windows[-1]) == (0, len(found))


def test_mixture_windows() -> None:
    orders, tokens, weights = a_mixture(4, 3)
    whole, cut = (mixed(orders, tokens, weights, window) for window in (None, 7))
    assert whole.rows.tolist() == cut.rows.tolist()
    assert whole.windows.tolist() == [0, len(whole.rows)]
    assert cut.windows.tolist() == [*range(0, len(cut.rows), 7), len(cut.rows)]


def test_the_mixture_of_the_docs() -> None:
    """Weights 2 and 1, rows of 4 tokens."""
    orders = [one_window(range(9)), one_window(range(9))]
    found = as_pairs(mixed(orders, [np.full(9, 4)] * 2, [2, 1], None), [np.full(9, 4)] * 2)
    assert "".join("AB"[source] for source, _ in found[:6]) == "ABAABA"


# --- epochs and resuming ---------------------------------------------------------------------------------------------


class Rows:
    """As much of a PackedDataset as Epochs asks for."""

    def __init__(self, rows: int, *, groups: int | None = None, name: str = "data", seed: int = 0) -> None:
        self.fingerprint, self.random_access = f"{name} {rows}", groups is None
        cuts = np.linspace(0, rows, (groups or 1) + 1).astype(np.int64)
        self.group_rows, self._work = np.diff(cuts), some_work(rows, seed)
        self.row_lengths, self.stored_rows = [1024], rows

    def __len__(self) -> int:
        return int(self.group_rows.sum())

    def orders(self, seed: int, epoch: int, *, shuffle: bool, buffer_groups: int) -> list[Order]:
        buffer = None if self.random_access else buffer_groups
        return [epoch_order(self.group_rows, seed, epoch, shuffle=shuffle, buffer_groups=buffer)]

    def work(self) -> Work:
        return self._work


def epochs(data: Rows | list[Rows], rank: int, *, seed: int = 3, shuffle: bool = True, **options: Any) -> Epochs:
    datasets: Any = data if isinstance(data, list) else [data]
    weights = [1.0 + i for i in range(len(datasets))]
    return Epochs(datasets, weights, Sampling(**options), rank=rank, seed=seed, shuffle=shuffle, buffer_groups=2)


State = dict[str, Any]


def go_on(
    data: Rows | list[Rows], options: dict[str, Any], state: State | None = None, steps: int | None = None
) -> tuple[list[list[list[int]]], State]:
    """So many steps on every rank: batches by step and rank, and the state then, which is the same on every rank."""
    ranks, states = [], []
    for rank in range(options.get("world_size", 1)):
        at = epochs(data, rank, **options)
        if state is not None:
            at.load_state_dict(json.loads(json.dumps(state)))
        batches = []
        for batch in at.rows(at.done):
            if len(batches) == steps:
                break
            at.advance()
            batches.append(batch.tolist())
        ranks.append(batches)
        states.append(at.state_dict())
    assert all(one == states[0] for one in states)
    assert len({len(batches) for batches in ranks}) == 1
    return [list(step) for step in zip(*ranks, strict=True)], states[0]


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [row for step in steps for batch in step for row in batch]


OPTIONS: dict[str, dict[str, Any]] = {
    "rows": {"rows_per_batch": 2, "world_size": 3},
    "one rank": {"rows_per_batch": 3},
    "balanced": {"rows_per_batch": 2, "world_size": 2, "balance": "attention"},
    "like length": {"rows_per_batch": 2, "world_size": 2, "balance": "tokens"},
    "flops": {"rows_per_batch": 1, "world_size": 4, "balance": "flops", "flops": FLOPS},
    "tokens": {"tokens_per_batch": 60, "world_size": 2},
    "tokens padded": {"tokens_per_batch": 80, "world_size": 3, "padded": True},
    "tokens balanced": {"tokens_per_batch": 60, "world_size": 2, "balance": "attention"},
}
DATA: dict[str, Rows | list[Rows]] = {
    "any row": Rows(29),
    "groups": Rows(29, groups=7),
    "mixed": [Rows(16, seed=1), Rows(30, groups=4, name="other", seed=2)],
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", OPTIONS)
def test_datasets_7538_8145_stopped_after_every_step_it_goes_on_with_the_next(name: str, data: str) -> None:
    whole, end = go_on(DATA[data], OPTIONS[name])
    assert data == "mixed" or sorted(flat(whole)) == list(range(29))
    for stop in range(len(whole) + 1):
        before, state = go_on(DATA[data], OPTIONS[name], steps=stop)
        after, state = go_on(DATA[data], OPTIONS[name], state)
        assert before + after == whole
        assert state == end


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", OPTIONS)
def test_stopped_after_every_step_and_resumed_under_any_options(name: str, data: str) -> None:
    whole, _ = go_on(DATA[data], OPTIONS[name])
    for stop in range(len(whole) + 1):
        before, state = go_on(DATA[data], OPTIONS[name], steps=stop)
        assert before == whole[:stop]
        for other in OPTIONS.values():
            after, _ = go_on(DATA[data], other, state)
            assert sorted(flat(before) + flat(after)) == sorted(flat(whole))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("options", [{"rows_per_batch": 1}, {"rows_per_batch": 1, "balance": "attention"},
                                     {"tokens_per_batch": 40}], ids=str)  # fmt: skip
def test_torchtitan_816_bridge_5637_maxtext_1760_ranks_4_2_8_1(data: str, options: dict[str, Any]) -> None:
    """Each number of ranks takes its turn, for every number of steps that each can take."""
    whole = sorted(flat(go_on(DATA[data], options)[0]))
    for turns in product((0, 1, 3), repeat=3):
        state, seen = None, []
        for ranks, steps in zip((4, 2, 8), turns, strict=True):
            taken, state = go_on(DATA[data], options | {"world_size": ranks}, state, steps)
            seen += flat(taken)
        seen += flat(go_on(DATA[data], options | {"world_size": 1}, state)[0])
        assert sorted(seen) == whole


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPTIONS)), st.integers(0, 4)), max_size=5),
    st.sampled_from(sorted(DATA)),
    st.booleans(),
)
def test_any_way_through_an_epoch(turns: list[tuple[str, int]], data: str, shuffle: bool) -> None:
    """Also back to options that were used before."""
    whole = sorted(flat(go_on(DATA[data], {"rows_per_batch": 1, "shuffle": shuffle})[0]))
    state, seen = None, []
    for name, steps in [*turns, ("rows", 1000)]:
        taken, state = go_on(DATA[data], OPTIONS[name] | {"shuffle": shuffle}, state, steps)
        seen += flat(taken)
    assert sorted(seen) == whole


@pytest.mark.slow
def test_every_stop_of_every_small_set() -> None:
    for rows, (ranks, then) in product(range(1, 20), product((1, 2, 4, 8), repeat=2)):
        data = Rows(rows, groups=rows // 5 + 1)
        for stop in range(rows // ranks + 2):
            before, state = go_on(data, {"rows_per_batch": 1, "world_size": ranks}, steps=stop)
            after, _ = go_on(data, {"rows_per_batch": 2, "world_size": then}, state)
            assert sorted(flat(before) + flat(after)) == list(range(rows))


def test_drop_last_after_a_resume_loses_at_most_the_last_step() -> None:
    data = Rows(41)
    for stop, ranks in product(range(8), (1, 2, 4, 8)):
        before, state = go_on(data, {"rows_per_batch": 2, "world_size": 2}, steps=stop)
        after, _ = go_on(data, {"rows_per_batch": 2, "world_size": ranks, "drop_last": True}, state)
        seen = flat(before) + flat(after)
        assert len(seen) == len(set(seen)) > 41 - 2 * ranks


def test_streaming_880_the_first_row_after_a_load_is_not_row_0() -> None:
    data = Rows(41)
    before, state = go_on(data, {"rows_per_batch": 1, "shuffle": False}, steps=5)
    after, _ = go_on(data, {"rows_per_batch": 1, "shuffle": False}, state)
    assert flat(before) == [0, 1, 2, 3, 4]
    assert flat(after)[0] == 5


@pytest.mark.parametrize("name", OPTIONS)
def test_the_state_survives_json(name: str) -> None:
    _, state = go_on(DATA["groups"], OPTIONS[name], steps=2)
    _, state = go_on(DATA["groups"], OPTIONS["one rank"], state, steps=1)
    again = epochs(DATA["groups"], 0, **OPTIONS["one rank"])
    again.load_state_dict(json.loads(json.dumps(state)))
    assert json.dumps(again.state_dict()) == json.dumps(state)
    assert again.done == 1 or name == "one rank"


def test_the_state_is_small_whatever_was_taken() -> None:
    _, early = go_on(Rows(5000), {"rows_per_batch": 1}, steps=1)
    _, late = go_on(Rows(5000), {"rows_per_batch": 1}, steps=4999)
    assert len(json.dumps(late)) < len(json.dumps(early)) + 10


def test_the_state_brings_seed_shuffling_and_buffer() -> None:
    data = Rows(41, groups=7)
    whole, _ = go_on(data, {"rows_per_batch": 2, "seed": 8})
    before, state = go_on(data, {"rows_per_batch": 2, "seed": 8}, steps=3)
    after, _ = go_on(data, {"rows_per_batch": 2, "seed": 9, "shuffle": False}, state)
    assert before + after == whole


def test_veomni_853_a_state_of_other_data_is_refused() -> None:
    _, state = go_on(Rows(41), {"rows_per_batch": 1}, steps=3)
    with pytest.raises(DatasetError, match="another data set"):
        epochs(Rows(42), 0, rows_per_batch=1).load_state_dict(state)
    with pytest.raises(DatasetError, match="another data set"):
        epochs([Rows(41), Rows(41)], 0, rows_per_batch=1).load_state_dict(state)
    mixture = epochs([Rows(41), Rows(20)], 0, rows_per_batch=1).state_dict()
    swapped = epochs([Rows(20), Rows(41)], 0, rows_per_batch=1)
    with pytest.raises(DatasetError, match="another data set"):
        swapped.load_state_dict(mixture)


@pytest.mark.parametrize("change", [{"version": 0}, {"version": 2}, {"version": None}])
def test_a_state_of_another_version_is_refused(change: dict[str, Any]) -> None:
    _, state = go_on(Rows(41), {"rows_per_batch": 1}, steps=3)
    with pytest.raises(DatasetError, match="version"):
        epochs(Rows(41), 0, rows_per_batch=1).load_state_dict(state | change)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(DatasetError, match="no state"):
        epochs(Rows(41), 0, rows_per_batch=1).load_state_dict({})


def test_epochs_differ_and_set_epoch_goes_there() -> None:
    at = epochs(Rows(41), 0, rows_per_batch=2)
    orders = []
    for epoch in range(4):
        at.set_epoch(epoch)
        assert at.done == 0
        orders.append([row for batch in at.rows(0) for row in batch.tolist()])
        assert sorted(orders[-1]) == list(range(41))
    assert len({tuple(order) for order in orders}) == 4
    at.set_epoch(1)
    assert [row for batch in at.rows(0) for row in batch.tolist()] == orders[1]


def test_set_epoch_to_where_it_is_keeps_the_place() -> None:
    _, state = go_on(Rows(41), {"rows_per_batch": 2}, steps=4)
    at = epochs(Rows(41), 0, rows_per_batch=2)
    at.load_state_dict(state)
    at.set_epoch(0)
    assert at.done == 4
    at.set_epoch(1)
    assert at.done == 0


@pytest.mark.parametrize(("rank", "ranks"), [(-1, 2), (2, 2), (1, 1)])
def test_a_rank_that_is_none(rank: int, ranks: int) -> None:
    with pytest.raises(UsageError, match="rank"):
        epochs(Rows(5), rank, rows_per_batch=1, world_size=ranks)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0]], ids=str)
def test_weights_that_make_no_sense(weights: list[float]) -> None:
    datasets: Any = [Rows(5), Rows(6)]
    with pytest.raises(UsageError, match="weight"):
        Epochs(datasets, weights, Sampling(rows_per_batch=1), rank=0, seed=0, shuffle=True, buffer_groups=2)


# --- accumulating gradients by tokens --------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 50, 130, 10_000])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_optimizer_steps_when_so_many_tokens_have_come(name: str, tokens: int) -> None:
    data = Rows(41)
    at = epochs(data, 0, **OPTIONS[name])
    flags = at.optimizer_steps(tokens)
    assert flags is not None
    held = 0
    for step, flag in zip(batches_of(at.steps), flags.tolist(), strict=True):
        held += sum(int(data.work().tokens[row]) for batch in step for row in batch)
        assert flag or held < tokens
        if flag:
            held = 0
    assert held == 0, "the last step of an epoch is one of the optimizer"
    early = np.flatnonzero(flags)[:-1]
    starts = [0, *(early + 1).tolist()]
    for start, stop in pairwise(starts):
        rows = flat(batches_of(at.steps)[start:stop])
        assert data.work().tokens[rows].sum() >= tokens
        fewer = flat(batches_of(at.steps)[start : stop - 1])
        assert data.work().tokens[fewer].sum() < tokens


def test_without_a_target_there_are_no_flags() -> None:
    assert epochs(Rows(5), 0, rows_per_batch=1).optimizer_steps(None) is None


def test_every_option_of_sampling_is_in_the_state() -> None:
    options = OPTIONS["flops"]
    _, state = go_on(Rows(41), options, steps=1)
    assert state["taken"][0]["sampling"].keys() == asdict(Sampling()).keys()
