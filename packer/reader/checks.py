"""What must hold in a group of rows before batches are made of it: checked once, whole columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from packer.plan import BoolArray
from packer.schema import Layout

Numbers = NDArray[np.integer]
SEQUENCES = "cu_seqlens must begin at 0, rise, and end at the row's tokens"


def first_wrong(values: Mapping[str, Numbers], ends: Mapping[str, Numbers], layout: Layout) -> tuple[int, str] | None:
    """The first row that breaks a rule, and the rule. values, ends: as in `packer.reader.files.Group`."""
    for wrong, rule in _rules(values, ends, layout):
        if wrong.any():
            return int(np.argmax(wrong)), rule
    return None


def _rules(
    values: Mapping[str, Numbers], ends: Mapping[str, Numbers], layout: Layout
) -> Iterator[tuple[BoolArray, str]]:
    """Later ones may take earlier ones for granted."""
    counts = {name: np.diff(offsets) for name, offsets in ends.items()}
    tokens = counts["input_ids"]
    yield tokens < 1, "the row has no token"
    for name in ("labels", "position_ids"):
        if name in counts:
            yield counts[name] != tokens, f"{name} are not as many as input_ids"
    yield counts["cu_seqlens"] < 2, SEQUENCES
    yield _ill_formed(values["cu_seqlens"], ends["cu_seqlens"], tokens), SEQUENCES
    segments = counts["cu_seqlens"] - 1
    if layout.boundaries == "row":
        yield segments != 1, "a row that is one sequence has other boundaries"
        segments = counts["next_tokens"]
        yield segments < 1, "next_tokens has nothing for the row's end"
    for name in ("next_tokens", "doc_starts", "doc_lengths"):
        if name in counts:
            yield counts[name] != segments, f"{name} are not as many as the row's segments"
    if "loss_spans" in counts:
        wrong = _bad_spans(values["loss_spans"], ends["loss_spans"], tokens)
        yield wrong, "loss_spans must rise in pairs, within the row"


def _ill_formed(flat: Numbers, at: Numbers, tokens: Numbers) -> BoolArray:
    """Rows whose first value is not 0, whose last is not their tokens, or whose values do not rise."""
    start, last = at[:-1], at[1:] - 1
    base = int(at[0])
    falls = np.zeros(int(at[-1]) - base, np.bool_)
    own = flat[base : int(at[-1])]
    falls[1:] = own[1:] <= own[:-1]
    falls[start - base] = False
    wrong: BoolArray = (flat[start] != 0) | (flat[last] != tokens) | np.logical_or.reduceat(falls, start - base)
    return wrong


def _bad_spans(flat: Numbers, at: Numbers, tokens: Numbers) -> BoolArray:
    counts = np.diff(at)
    row = np.repeat(np.arange(len(tokens)), counts)
    own = flat[int(at[0]) : int(at[-1])]
    outside = (own < 0) | (own > tokens[row])
    falls = np.zeros(len(own), np.bool_)
    falls[1:] = (own[1:] <= own[:-1]) & (row[1:] == row[:-1])
    wrong: BoolArray = (counts % 2 != 0) | (np.bincount(row, weights=outside | falls, minlength=len(tokens)) > 0)
    return wrong
