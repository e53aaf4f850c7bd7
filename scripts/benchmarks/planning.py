"""Plans: time and rows beside TRL's, for lengths as real corpora have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.clock import Cost, now
from benchmarks.inputs import SEED
from benchmarks.page import table
from packer import packing
from packer.metrics import lower_bound
from packer.plan import Int32Array, offsets_of

COUNTS = (100_000, 1_000_000)  # documents to plan
MAX_LENGTHS = (2048, 8192, 32768)
STRATEGIES = ("bfd", "ffd", "first-fit")
LENGTH_MEDIAN, LENGTH_SIGMA = 600, 1.2  # of the lognormal lengths, in tokens, before they are clipped
TRL_ONCE_FROM = 1_000_000  # documents from which one run of TRL's has to do


def lognormal_lengths(count: int, max_length: int) -> Int32Array:
    drawn = np.random.default_rng(SEED).lognormal(math.log(LENGTH_MEDIAN), LENGTH_SIGMA, count)
    return np.clip(np.rint(drawn), 1, max_length).astype(np.int32)


def hollow_lists(lengths: Int32Array) -> pa.Table:
    """Lists of these lengths whose elements take no memory, so that TRL copies no token: planning is what is left."""
    offsets = offsets_of(lengths)
    values = pa.nulls(int(offsets[-1]))
    return pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)})


def trl_contenders(lengths: Int32Array, max_length: int) -> dict[str, Callable[[], int]]:
    """TRL's public entry, and the function that it maps; each returns its rows."""
    import datasets
    from trl.data_utils import _pack_bfd, pack_dataset

    datasets.disable_progress_bars()
    examples = hollow_lists(lengths)
    dataset = datasets.Dataset(examples)
    whole = {"batch_size": len(lengths)}
    return {
        "TRL pack_dataset": lambda: len(pack_dataset(dataset, max_length, strategy="bfd", map_kwargs=whole)),
        "TRL _pack_bfd": lambda: len(_pack_bfd(examples, max_length)),
    }


def packer_contender(strategy: str, lengths: Int32Array, max_length: int) -> Callable[[], int]:
    pack = packing.load(strategy)
    return lambda: pack(lengths, max_length, rng=np.random.default_rng(SEED)).rows


def plan_once(count: int, max_length: int, rounds: int) -> dict[str, Any]:
    lengths = lognormal_lengths(count, max_length)
    trl = trl_contenders(lengths, max_length)
    contenders = {name: packer_contender(name, lengths, max_length) for name in STRATEGIES} | trl
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    rows: dict[str, int] = {}
    for turn in range(rounds):
        for name, run in contenders.items():
            if turn and name in trl and count >= TRL_ONCE_FROM:
                continue
            start = now()
            rows[name] = run()
            costs[name].append(now() - start)
    bound = lower_bound(int(lengths.sum(dtype=np.int64)), max_length)
    return {
        "documents": count,
        "max_length": max_length,
        "lower_bound": bound,
        "rows": rows,
        "costs": {name: [asdict(cost) for cost in of] for name, of in costs.items()},
    }


def measure(rounds: int) -> dict[str, Any]:
    for name in STRATEGIES:  # what is imported or compiled at the first call is not planning
        packer_contender(name, lognormal_lengths(1000, 2048), 2048)()
    return {
        "rounds": rounds,
        "plans": [plan_once(count, length, rounds) for count in COUNTS for length in MAX_LENGTHS],
    }


def report(result: dict[str, Any]) -> str:
    times, fills = [], []
    for plan in result["plans"]:
        begin = [f"{plan['documents']:,}", f"{plan['max_length']:,}"]
        seconds, cpu = (
            {name: median(cost[clock] for cost in of) for name, of in plan["costs"].items()}
            for clock in ("wall", "cpu")
        )
        whole, inner = "TRL pack_dataset", "TRL _pack_bfd"
        times.append(
            [
                *begin,
                *(f"{seconds[name]:.2f} s" for name in (whole, inner)),
                *(f"{seconds[name] * 1e3:,.0f} ms" for name in STRATEGIES),
                *(f"{of[name] / of['bfd']:,.0f}" for name in (whole, inner) for of in (seconds, cpu)),
            ]
        )
        above = [plan["rows"][name] - plan["lower_bound"] for name in ("TRL _pack_bfd", *STRATEGIES)]
        fills.append([*begin, f"{plan['lower_bound']:,}", *(f"+{rows:,}" for rows in above)])
    head = ["documents", "max length"]
    ratios = ["`pack_dataset` / bfd", "same, CPU", "`_pack_bfd` / bfd", "same, CPU"]
    return f"""## Planning, against TRL

Lengths are lognormal (median {LENGTH_MEDIAN} tokens, sigma {LENGTH_SIGMA}), clipped to the max length.
Ours: lengths in, plan out. TRL's: `pack_dataset(..., strategy="bfd")` with all documents in one batch, and
`_pack_bfd`, the function that it maps, called by itself: truncation, the segment tree, the output's offsets. Both are
given lists whose elements take no memory, so neither side copies a token. Medians of {result["rounds"]} rounds; of one
for TRL from {TRL_ONCE_FROM:,} documents on.

{table([*head, "TRL `pack_dataset`", "TRL `_pack_bfd`", *STRATEGIES, *ratios], times)}

Rows, above the lower bound ceil(tokens / max length):

{table([*head, "lower bound", "TRL", *STRATEGIES], fills)}
"""
