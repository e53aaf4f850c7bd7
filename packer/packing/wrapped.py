"""Concatenate all documents and cut every max_length tokens: full rows, but documents are cut where rows end.

lengths 3, 4, 2 and max_length 4      stream  a a a b b b b c c
row 0 = a[0:3] b[0:1]                 row 1 = b[1:4] c[0:1]      row 2 = c[1:2]

These are the windows over the corpus whose stride is their size; here the last may be one token alone.
"""

from __future__ import annotations

import numpy as np

from packer.errors import UsageError
from packer.plan import Int32Array, Plan
from packer.windowing import Windowing, plan

SHORTEST = 1  # tokens of the last row: none is lost


def end_to_end(max_length: int) -> Windowing:
    return Windowing(max_length, scope="corpus", tail="keep")


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
    return plan(lengths, max_length, end_to_end(max_length), shortest=SHORTEST)[0]
