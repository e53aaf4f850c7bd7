"""`--validation R`: which documents are held out, by a hash of their token ids.

The hash is of a + b r + c r^2 + ... modulo 2^64, for the ids a, b, c, ..., of their number, and of the seed, which is
the salt: sums over a batch, without a loop over documents. Equal documents always go to one side, wherever they are and
whatever else there is, so no validation document is trained on. Another seed holds out others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from packer.encoding import Encoded
from packer.plan import BoolArray, Int64Array, offsets_of

Words = NDArray[np.uint64]
BASE = 0x9E3779B97F4A7C15  # odd, so that its powers have inverses
INVERSE = pow(BASE, -1, 1 << 64)
ONE, LAST = np.uint64(1), np.uint64((1 << 64) - 1)


def held_out(ids: NDArray[np.int32], offsets: Int64Array, ratio: float, seed: int) -> BoolArray:
    """bool (n,) for documents of at least one token. ids: (t,); offsets: int64 (n+1,)."""
    if len(offsets) == 1:
        return np.zeros(0, np.bool_)
    salt = _mixed(np.full(1, seed & int(LAST), np.uint64))
    hashes = _mixed(_sums(ids, offsets) ^ salt ^ _mixed(np.diff(offsets).astype(np.uint64)))
    limit = min(int(ratio * 2.0**64), int(LAST))
    return np.asarray(hashes < np.uint64(limit), np.bool_)


def parted(batch: Encoded, ratio: float, seed: int) -> tuple[Encoded, Encoded]:
    """The documents that stay, with the batch's counts, and those that are held out."""
    held = held_out(batch.ids, batch.offsets, ratio, seed)
    return _taken(batch, ~held), replace(_taken(batch, held), empty=0, checked=0)


def _taken(batch: Encoded, chosen: BoolArray) -> Encoded:
    lengths = np.diff(batch.offsets)
    tokens = np.repeat(chosen, lengths)
    return replace(
        batch,
        ordinals=batch.ordinals[chosen],
        ids=batch.ids[tokens],
        offsets=offsets_of(lengths[chosen]),
        mask=None if batch.mask is None else batch.mask[tokens],
        masked=batch.masked[chosen],
        traits=None if batch.traits is None else batch.traits.take(chosen),
    )


def _sums(ids: NDArray[np.int32], offsets: Int64Array) -> Words:
    """The polynomial of each document: all powers count from the batch's start, and are taken back at the end."""
    powers = _powers(BASE, len(ids))
    sums = np.add.reduceat(ids.astype(np.uint64) * powers, offsets[:-1])
    return np.asarray(sums * _powers(INVERSE, int(offsets[-2]) + 1)[offsets[:-1]], np.uint64)


def _powers(base: int, count: int) -> Words:
    """base^0, base^1, ... modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = ONE
    return np.asarray(np.multiply.accumulate(powers, dtype=np.uint64), np.uint64)


def _mixed(words: Words) -> Words:
    """Every bit depends on every bit: the finalizer of splitmix64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)), np.uint64)
