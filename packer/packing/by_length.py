"""Rows of several lengths: each document goes to the shortest that holds it, and fills rows there with its like.

Documents that need a length are longer than the one below it, so alone they cannot fill rows: of lengths 512 and 1024,
documents of 700 tokens leave 324 empty. With gaps "fill" the strategy plans them together with all shorter documents,
and rows that hold none that needs the length are taken apart again for the next shorter one:

    lengths 4 and 8, documents 7 5 3 2 1      rows of 8: 7+1, 5+3     rows of 4: 2
    with gaps "leave"                         rows of 8: 7, 5         rows of 4: 3+1, 2

Either way every row holds a document that no shorter length serves. Sources: Dataset Decomposition (Pouransari et al.
2024) trains on buckets of one length each, made by cutting documents; Hierarchical Balance Packing (Yao et al. 2025)
packs whole ones to several lengths and fills the longer rows with short ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from packer.packing import Strategy
from packer.plan import Int32Array, Plan


def pack(
    strategy: Strategy,
    lengths: Int32Array,
    row_lengths: Sequence[int],
    *,
    gaps: str = "fill",
    max_segments: int | None = None,
    rng: np.random.Generator,
) -> list[Plan]:
    """A plan for each of row_lengths, which rise; together they place every document. lengths: int32 (n,), at most the
    last of them, unless there is only one and the strategy takes longer ones. `doc` counts through all of them."""
    plans: list[Plan] = []
    left = np.arange(len(lengths))
    for size, below in zip(reversed(row_lengths), [*reversed(row_lengths[:-1]), 0], strict=True):
        needs = lengths[left] > below
        chosen = left if gaps == "fill" else left[needs]
        plan = strategy(lengths[chosen], size, max_segments=max_segments, rng=rng)
        plan = Plan(chosen[plan.doc], plan.start, plan.length, plan.row_offsets)
        if below and plan.rows:
            longest = np.maximum.reduceat(lengths[plan.doc], plan.row_offsets[:-1])
            plan = plan.take_rows(np.flatnonzero(longest > below))
        plans.append(plan)
        placed = np.zeros(len(lengths), np.bool_)
        placed[plan.doc] = True
        left = left[~placed[left]]
    return plans[::-1]
