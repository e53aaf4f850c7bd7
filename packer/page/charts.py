"""What the charts show, small whatever the corpus: bins, the stops of the slider with exact figures, and curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from packer.lengths import Histogram
from packer.plan import Int64Array
from packer.stats import PERCENTILES, Stats

STEEP = 20  # times the bins that most are below: a bin so high hides the others, unless on a log axis
BINS = (20, 200)  # at least and at most
LINEAR_END = 99.5  # percentile at which the linear histogram ends
STEPS = 32  # stops of the slider from one power of two to the next


def data(stats: Stats) -> dict[str, Any]:
    """Everything that page.js needs. Documents and tokens of stops are text: they may be beyond 2**53."""
    histogram = histogram_of(stats)
    at = stops(histogram, [one.max_length for one in stats.truncation])
    lost = [histogram.longer_than(stop) for stop in at]
    bins = min(max(int(2 * stats.documents**0.5), BINS[0]), BINS[1])
    linear = linear_edges(histogram, bins)
    log = _binned(histogram, log_edges(histogram, bins))
    return {
        "documents": stats.documents,
        "tokens": stats.tokens,
        "max": stats.length.max,
        "percentiles": [[name.upper(), getattr(stats.length, name)] for name in PERCENTILES],
        "linear": _binned(histogram, linear),
        "beyond": histogram.longer_than(int(linear[-1]) - 1)[0],
        "log": log,
        "steep": max(log["counts"]) > STEEP * float(np.percentile([n for n in log["counts"] if n], 90)),
        "stops": at,
        "longer": [str(documents) for documents, _ in lost],
        "beyond_stop": [str(tokens) for _, tokens in lost],
        "start": stats.recommendation.max_length,
        "strategies": _pad_ratios(stats),
    }


def histogram_of(stats: Stats) -> Histogram:
    lengths = np.fromiter(stats.length.histogram.keys(), np.int64)
    return Histogram(lengths, np.fromiter(stats.length.histogram.values(), np.int64))


def linear_edges(histogram: Histogram, bins: int) -> Int64Array:
    """Bins of one width, a whole number, up to the percentile LINEAR_END or a little further."""
    first, end = int(histogram.lengths[0]), int(np.ceil(histogram.percentiles([LINEAR_END])[0]))
    width = -(-(end + 1 - first) // bins)
    return np.arange(first, end + width + 1, width, dtype=np.int64)


def log_edges(histogram: Histogram, bins: int) -> Int64Array:
    """Bins whose widths grow with the length, in whole numbers, past the longest document."""
    first, last = int(histogram.lengths[0]), int(histogram.lengths[-1])
    growth = max(float((last + 1) / first) ** (1 / bins) - 1, 1e-9)
    edges = [first]
    while edges[-1] <= last:
        edges.append(edges[-1] + max(1, int(edges[-1] * growth)))
    return np.array(edges, np.int64)


def _binned(histogram: Histogram, edges: Int64Array) -> dict[str, list[int]]:
    """Documents of each bin, edges[i] <= length < edges[i + 1]."""
    ends = np.append(0, np.cumsum(histogram.counts))
    return {"edges": edges.tolist(), "counts": np.diff(ends[np.searchsorted(histogram.lengths, edges)]).tolist()}


def stops(histogram: Histogram, max_lengths: list[int]) -> list[int]:
    """Lengths at which the slider stops, ascending: round numbers at equal ratios, the priced ones, and the longest
    document. The first is short enough to cut almost everything."""
    longest = int(histogram.lengths[-1])
    first = min([*max_lengths, int(histogram.percentiles([1])[0])])
    last = max([*max_lengths, longest])
    found = {*max_lengths, longest}
    for octave in range(first.bit_length() - 1, last.bit_length() + 1):
        low = 1 << octave
        found.update(range(low, 2 * low, max(1, low // STEPS)))
    start = 1 << (first.bit_length() - 1)
    return sorted(stop for stop in found if start <= stop <= last)


def _pad_ratios(stats: Stats) -> list[dict[str, Any]]:
    """One curve for each strategy."""
    return [
        {
            "name": name,
            "x": [price.max_length for price in stats.strategies if price.strategy == name],
            "y": [price.pad_ratio for price in stats.strategies if price.strategy == name],
        }
        for name in dict.fromkeys(price.strategy for price in stats.strategies)
    ]
