"""Several data sets as one stream in which each has its share of the tokens, at every point of it.

Each row gets the time at which it would begin if its data set were read at a speed of `weight` tokens a second; rows
are merged by that time (weighted fair queueing; Demers, Keshav and Shenker 1989). Weights 2 and 1, rows of 4 tokens:

    A  0  2  4  6  8        B  0     4     8          A B A A B A ...
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array, offsets_of
from packer.sampling.order import Order


def mixed(
    orders: Sequence[Order], tokens: Sequence[NDArray[np.integer]], weights: Sequence[float], window_rows: int | None
) -> Order:
    """One order over all rows, those of data set i counted on from those before it.

    tokens: of each row, by row number, one array a data set. window_rows: rows a window; None where any row can be read
    alone. It ends where the first data set ends: nothing is repeated, and what is left of the others is left out.
    """
    times: list[NDArray[np.float64]] = []
    rows: list[Int64Array] = []
    first = 0
    end = np.inf
    for order, lengths, weight in zip(orders, tokens, weights, strict=True):
        clock = offsets_of(lengths[order.rows]) / weight
        times.append(clock[:-1])
        end = min(end, float(clock[-1]))
        rows.append(order.rows + first)
        first += len(lengths)
    time = np.concatenate(times)
    merged = np.argsort(time, kind="stable")
    merged = merged[: int(np.searchsorted(time[merged], end))]
    return Order(
        np.concatenate(rows)[merged],
        np.append(np.arange(0, len(merged), window_rows or max(len(merged), 1)), len(merged)),
    )
