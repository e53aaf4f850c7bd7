"""Concatenate all documents and cut every max_length tokens: full rows, but documents are cut where rows end.

lengths 3, 4, 2 and max_length 4      stream  a a a b b b b c c
row 0 = a[0:3] b[0:1]                 row 1 = b[1:4] c[0:1]      row 2 = c[1:2]
"""

from __future__ import annotations

import numpy as np

from packer.errors import UsageError
from packer.plan import Int32Array, Plan, offsets_of


def cut_stream(lengths: Int32Array, max_length: int, *, begin: int = 0, end: int | None = None) -> Plan:
    """Rows that start at stream positions begin, begin + max_length, ... below `end` (default: the stream's end).

    A row may run past `end`, up to the stream's own end: `end` is where the next block's rows take over.
    """
    offsets = offsets_of(lengths)
    total = int(offsets[-1])
    row_starts = np.arange(begin, total if end is None else end, max_length)
    stop = min(total, int(row_starts[-1]) + max_length) if len(row_starts) else begin
    inner = offsets[np.searchsorted(offsets, begin, side="right") : np.searchsorted(offsets, stop)]
    cuts = np.sort(np.concatenate([row_starts, inner]), kind="stable")  # two sorted runs: merged, not sorted
    starts = cuts[np.diff(cuts, prepend=-1) > 0]
    doc = np.searchsorted(offsets, starts, side="right") - 1
    return Plan(
        doc=doc,
        start=(starts - offsets[doc]).astype(np.int32),
        length=np.diff(starts, append=stop).astype(np.int32),
        row_offsets=np.append(np.searchsorted(starts, row_starts), len(starts)),
    )


def pack(
    lengths: Int32Array,
    max_length: int,
    *,
    max_segments: int | None = None,
    rng: np.random.Generator,  # noqa: ARG001  the stream is the input's order
) -> Plan:
    """See `packer.packing`. Documents may be longer than max_length."""
    if max_segments is not None:
        raise UsageError("--max-segments cannot hold for --strategy wrapped, which fills rows whatever they hold")
    return cut_stream(lengths, max_length)
