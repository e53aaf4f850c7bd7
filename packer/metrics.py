"""What a plan costs, and what no plan can go below, from counts alone."""

from __future__ import annotations

import numpy as np

from packer.lengths import Histogram


def lower_bound(tokens: int, max_length: int) -> int:
    """Rows that no plan can go below: ceil(tokens / max_length)."""
    return -(-tokens // max_length)


def packing_bound(pieces: Histogram, max_length: int) -> int:
    """Rows that no plan can go below which leaves pieces whole: L2 of Martello and Toth (1990).

    A piece of more than max_length - a shares its row with none of at least a, one of more than half with at most one:

        L2 = max over a <= max_length / 2 of   pieces of more than half
                                             + what those of a .. half need beyond the room beside the large ones

    It can lie far above ceil(tokens / max_length): pieces of 0.6 max_length fill no row by more than 60%.
    """
    lengths, counts = pieces.lengths, pieces.counts
    half = max_length // 2
    large = lengths > half
    rows = int(counts[large].sum())
    small_lengths = lengths[~large]
    candidates = np.concatenate([[0], small_lengths])  # between two lengths the bound does not change
    tokens = np.concatenate([[0], np.cumsum(lengths * counts)])
    documents = np.concatenate([[0], np.cumsum(counts)])
    first_large = len(small_lengths)
    small = tokens[first_large] - tokens[np.searchsorted(lengths, candidates)]
    fitting = np.searchsorted(lengths, max_length - candidates, side="right")  # ends those that leave room for a
    room = (documents[fitting] - documents[first_large]) * max_length - (tokens[fitting] - tokens[first_large])
    beyond = np.maximum(small - room, 0)
    return rows + int((-(-beyond // max_length)).max())


def efficiency(tokens: int, rows: int, max_length: int) -> float:
    """Share of the rows' room that holds tokens, 0 to 1."""
    return tokens / (rows * max_length) if rows else 0.0
