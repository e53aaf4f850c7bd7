"""What the strategies share: documents in descending order, and rows turned into a `Plan`."""

from __future__ import annotations

import numpy as np

from packer.plan import Int32Array, Int64Array, Plan, offsets_of


def descending(lengths: Int32Array, rng: np.random.Generator) -> Int64Array:
    """Document numbers by falling length, equal lengths in an order that `rng` permutes: int64 (n,)."""
    shuffled = rng.permutation(len(lengths))
    keys = lengths[shuffled].max(initial=0) - lengths[shuffled]
    if len(keys) and keys.max() <= np.iinfo(np.uint16).max:
        keys = keys.astype(np.uint16)  # NumPy sorts 16-bit keys by radix: about ten times as fast
    return shuffled[np.argsort(keys, kind="stable")]


def plan_from_rows(row: Int64Array, lengths: Int32Array) -> Plan:
    """The plan in which document i lies whole in row `row[i]`: int64 (n,), rows numbered from 0 without a gap.

    Within a row documents stand in input order: that is neutral to length, and their tokens are read in order.
    """
    order = np.argsort(row, kind="stable")
    return Plan(
        doc=order,
        start=np.zeros(len(order), np.int32),
        length=lengths[order].astype(np.int32),
        row_offsets=offsets_of(np.bincount(row)),
    )
