"""Batches of unpacked documents, from their lengths: which documents come together, and in what order.

    dynamic        shuffled, so many documents a batch, each batch padded to its longest
    bucketed       shuffled, sorted by length within windows of many batches, the batches shuffled again ("sortish",
                   as in fairseq and the length-grouped sampler of transformers)
    token_budget   sorted in the same way, as many documents a batch as fit the budget when padded to the longest
    token_sum      shuffled, as many documents a batch as fit the budget end to end, without padding

Each takes lengths (n,) and gives `Batches`. All are exact permutations: every document is in one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from packer.plan import Int32Array, Int64Array, offsets_of, runs

WINDOW = 50  # batches sorted together


@dataclass(frozen=True)
class Batches:
    """documents: int64 (n,), positions among the lengths; offsets: int64 (b+1,), batch i is
    documents[offsets[i]:offsets[i+1]]."""

    documents: Int64Array
    offsets: Int64Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def take(self, order: Int64Array) -> Batches:
        """The same batches in another order."""
        counts = np.diff(self.offsets)[order]
        return Batches(self.documents[runs(self.offsets[:-1][order], counts)], offsets_of(counts))


def dynamic(lengths: Int32Array, batch_size: int, rng: np.random.Generator) -> Batches:
    return Batches(rng.permutation(len(lengths)), _every(len(lengths), batch_size))


def bucketed(lengths: Int32Array, batch_size: int, rng: np.random.Generator) -> Batches:
    order = _sorted_in_windows(lengths, batch_size, rng)
    batches = Batches(order, _every(len(lengths), batch_size))
    return batches.take(rng.permutation(len(batches)))


def token_budget(lengths: Int32Array, batch_size: int, budget: int, multiple: int, rng: np.random.Generator) -> Batches:
    """documents * longest <= budget, lengths counting as rounded up to `multiple`; a document of more than the budget
    is a batch of its own. batch_size sets the windows' size only."""
    order = _sorted_in_windows(lengths, batch_size, rng)
    widths = (-(-lengths[order] // multiple) * multiple).tolist()
    size = WINDOW * batch_size
    offsets = [0]
    for window in range(0, len(widths), size):
        end = min(window + size, len(widths))
        while offsets[-1] < end:  # longest first: the first document's width is the batch's
            offsets.append(min(end, offsets[-1] + max(1, budget // widths[offsets[-1]])))
    batches = Batches(order, np.array(offsets, np.int64))
    return batches.take(rng.permutation(len(batches)))


def token_sum(lengths: Int32Array, budget: int, rng: np.random.Generator) -> Batches:
    """The sum of the lengths <= budget; a document of more than that is a batch of its own."""
    order = rng.permutation(len(lengths))
    ends = offsets_of(lengths[order])
    offsets = [0]
    while offsets[-1] < len(order):
        start = offsets[-1]
        offsets.append(max(start + 1, int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1))
    return Batches(order, np.array(offsets, np.int64))


def _every(documents: int, size: int) -> Int64Array:
    return np.append(np.arange(0, documents, size), documents)


def _sorted_in_windows(lengths: Int32Array, batch_size: int, rng: np.random.Generator) -> Int64Array:
    """A shuffled order, longest first within each window of WINDOW batches."""
    order = rng.permutation(len(lengths))
    window = np.arange(len(lengths)) // (WINDOW * batch_size)
    return order[np.lexsort((-lengths[order].astype(np.int64), window))]
