"""Planning by what documents have in common: their groups, and for `semantic` their vectors too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from packer import packing
from packer.lengths import Histogram
from packer.packing import semantic
from packer.packing.bfd import TightestRoom
from packer.packing.decreasing import moves_of
from packer.packing.grouped import rows_by_group
from packer.packing.placing import plan_from_rows
from packer.plan import Int32Array, Int64Array, Plan
from packer.similarity import Traits, likeness, tfidf
from packer.similarity.likeness import Likeness


def traits_of(strategy: str, given: Traits | None, ids: Int32Array, offsets: Int64Array) -> Traits | None:
    """What documents are planned by. given: what came with them; `semantic` falls back on their tokens, int32 (t,), of
    which document i has those from offsets[i] to offsets[i + 1]."""
    if strategy != "semantic" or given is not None:
        return given
    return Traits(tfidf.vectors_of(ids, offsets))


def planned(
    strategy: str,
    lengths: Int32Array,
    max_length: int,
    max_segments: int | None,
    rng: np.random.Generator,
    traits: Traits | None,
    threshold: float,
) -> Plan:
    """The strategy's plan; documents of two groups never share a row. traits: of what has these lengths."""
    if strategy == "semantic":
        return semantic.pack(
            lengths, max_length, max_segments=max_segments, rng=rng, traits=traits, threshold=threshold
        )
    pack = packing.load(strategy)
    if traits is None or traits.groups is None or strategy == "none":
        return pack(lengths, max_length, max_segments=max_segments, rng=rng)

    def rows_of(documents: Int64Array) -> Int64Array:
        return pack(lengths[documents], max_length, max_segments=max_segments, rng=rng).document_rows()

    return plan_from_rows(rows_by_group(rows_of, lengths, traits.groups, max_length, max_segments), lengths)


def likeness_of(
    strategy: str,
    traits: Traits | None,
    plan: Plan,
    lengths: Int32Array,
    max_length: int,
    max_segments: int | None,
    threshold: float,
    rng: np.random.Generator,
) -> Likeness:
    """What planning by similarity came to: nothing for other strategies than `semantic`.

    traits: of the documents of the plan; lengths: int32 (s,), what each segment counts as.
    """
    if strategy != "semantic" or not plan.rows:
        return Likeness()
    found = Likeness(rows=plan.rows)
    if traits is not None and traits.vectors is not None:
        found = likeness.measured(traits.vectors, plan.doc, plan.row_offsets, threshold, rng)
    moves = moves_of(Histogram.of(lengths), max_length, TightestRoom, max_segments=max_segments)
    return replace(found, best_fit_rows=int((moves.first + moves.rows).max()))
