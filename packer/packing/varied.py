"""Further packings of the same documents that share few pairs with the first, in no more rows.

A strategy permutes documents of equal length, but of long ones hardly two are equal, so the same would meet the same
again. Here the documents are parted at random, each part is planned alone, and the emptiest rows of all parts are taken
apart and planned once more together, because every part has a few that are not full:

    documents ─▶ 16 parts ─▶ plan each ─▶ the fullest 90% of the rows stay
                                          the documents of the others ─▶ plan together

Two documents can only meet if they fall into the same part, and then other lengths are there to choose from. Where that
needs more rows than one plan of all, there are fewer parts, and more rows are taken apart. Exchanging documents of near
length between rows was tried instead: full rows have no room for it, and most pairs stay.
"""

from __future__ import annotations

import numpy as np

from packer.packing import Strategy
from packer.plan import Int32Array, Int64Array, Plan, offsets_of

TRIES = ((16, 0.1), (8, 0.1), (8, 0.3), (4, 0.3), (2, 0.3))  # parts, and rows that are planned again
TOLERANCE = 0.001  # more rows than that are worse than rows with the same documents


def of(strategy: Strategy) -> Strategy:
    """The strategy with other rows. Has as many rows as the strategy itself, or fewer; where no parting allows that,
    up to 0.1% more."""

    def pack(
        lengths: Int32Array, max_length: int, *, max_segments: int | None = None, rng: np.random.Generator
    ) -> Plan:
        def plan_of(documents: Int64Array) -> Plan:
            plan = strategy(lengths[documents], max_length, max_segments=max_segments, rng=rng)
            return Plan(documents[plan.doc], plan.start, plan.length, plan.row_offsets)

        whole = best = plan_of(np.arange(len(lengths)))
        for parts, again in TRIES if whole.rows > 1 else ():
            part = rng.integers(0, parts, len(lengths))
            found = _joined([plan_of(np.flatnonzero(part == i)) for i in range(parts) if (part == i).any()])
            emptiest_last = np.argsort(-found.row_lengths(), kind="stable")
            stay = max(0, found.rows - max(4 * parts, int(again * found.rows)))
            loose = found.take_rows(np.sort(emptiest_last[stay:]))
            found = _joined([found.take_rows(np.sort(emptiest_last[:stay])), plan_of(np.sort(loose.doc))])
            if found.rows <= whole.rows:
                return found
            if best is whole or found.rows < best.rows:
                best = found
        return best if best.rows <= whole.rows * (1 + TOLERANCE) else whole

    return pack


def _joined(plans: list[Plan]) -> Plan:
    """All their rows."""
    counts = np.concatenate([np.diff(plan.row_offsets) for plan in plans])
    doc, start, length = (
        np.concatenate([getattr(plan, name) for plan in plans]) for name in ("doc", "start", "length")
    )
    return Plan(doc, start, length, offsets_of(counts))
