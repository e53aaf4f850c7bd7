"""Vectors of documents from their token ids alone: hashed TF-IDF of unigrams and bigrams, reduced by random signs.

    term       a token, or two that follow one another, each hashed to one of 2^19 (Weinberger et al. 2009)
    weight     (1 + log2 tf) * log2(1 + n / df), tf in the document, df among the n documents of the block; 0 for what
               only one of them has, for it tells nothing; a quarter for bigrams, of which there are so many more
    vector     each term adds its weight to two of the components, with random signs: a sparse random projection
               (Li, Hastie and Church 2006; Kane and Nelson 2014)

There are 1024 components, but of more than 131,072 documents 512 or 256, so that vectors stay below 256 bytes a
document or 128 MiB.

No model and no language is assumed. Weights are whole numbers (fourths and sixteenths), their sums are exact in any
order, and the logarithm is taken by its exponent and a straight line between powers of two, for that of a library
differs between processors in the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int32Array, Int64Array
from packer.similarity.vectors import MOST_WIDTH, SEED, Int8Array, quantized

BITS = 20  # of a term's hash
TERM = np.uint32((1 << BITS) - 1)
BIGRAM = np.uint32(1 << (BITS - 1))  # set in the hash of a bigram
LEAST_WIDTH, VECTOR_BYTES = 256, 128 << 20
CHUNK_DOCUMENTS = 1 << (32 - BITS)  # a document and a term are one 32-bit key
CHUNK_TOKENS = 1 << 20
COMPONENTS_A_TERM = 2
TF_STEPS, IDF_STEPS = 4, 16  # parts of one in which weights are counted
FIRST, SECOND, MIX = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D)

UInt32Array = NDArray[np.uint32]


def vectors_of(ids: Int32Array, offsets: Int64Array) -> Int8Array:
    """int8 (n, `width_for(n)`) of n documents. ids: int32 (t,); offsets: int64 (n+1,). Takes 10 bytes a token."""
    documents = len(offsets) - 1
    width = width_for(documents)
    vectors = np.zeros((documents, width), np.int8)
    frequency = np.zeros(1 << BITS, np.int64)
    chunks = []
    for first, last in _chunks(offsets):
        keys, counts = _counted(terms(ids, offsets[first : last + 1]))
        frequency += np.bincount(keys & TERM, minlength=1 << BITS)
        chunks.append((first, last, keys, (TF_STEPS * (1 + log2(counts))).astype(np.uint8)))
    rarity = (IDF_STEPS * log2(1 + documents / np.maximum(frequency, 1))).astype(np.int32)
    rarity[BIGRAM:] //= 4
    rarity[frequency < 2] = 0
    for first, last, keys, weights in chunks:
        kept = rarity[keys & TERM] > 0
        keys = keys[kept]
        vectors[first:last] = quantized(_summed(keys, weights[kept] * rarity[keys & TERM], last - first, width))
    return vectors


def width_for(documents: int) -> int:
    """Components of the vectors of so many documents: a power of two."""
    width = MOST_WIDTH
    while width > LEAST_WIDTH and width * documents > VECTOR_BYTES:
        width //= 2
    return width


def _chunks(offsets: Int64Array) -> Iterator[tuple[int, int]]:
    """Runs of documents [first, last) of a bounded number and, but for a long one, of bounded tokens."""
    first, documents = 0, len(offsets) - 1
    while first < documents:
        full = int(np.searchsorted(offsets, offsets[first] + CHUNK_TOKENS, side="right")) - 1
        last = min(max(full, first + 1), first + CHUNK_DOCUMENTS, documents)
        yield first, last
        first = last


def terms(ids: Int32Array, offsets: Int64Array) -> UInt32Array:
    """The document (from 0, in the upper bits) and the hashed term of each unigram, then of each bigram. Offsets:
    int64 (n+1,), of at most 4,096 documents."""
    tokens = ids[offsets[0] : offsets[-1]].astype(np.uint32)
    lengths = np.diff(offsets)
    document = np.repeat(np.arange(len(lengths), dtype=np.uint32) << np.uint32(BITS), lengths)
    found = np.empty(max(2 * len(tokens) - 1, 0), np.uint32)
    found[: len(tokens)] = document | (_hashed(tokens * FIRST) & ~BIGRAM)
    pairs = tokens[:-1] * FIRST + (tokens[1:] + np.uint32(1)) * SECOND
    found[len(tokens) :] = document[1:] | _hashed(pairs) | BIGRAM
    ends = (offsets[1:-1] - offsets[0])[(offsets[1:-1] > offsets[0]) & (offsets[1:-1] < offsets[-1])]
    return np.delete(found, len(tokens) + np.unique(ends) - 1)  # pairs of two documents


def _hashed(values: UInt32Array) -> UInt32Array:
    mixed = (values ^ (values >> np.uint32(15))) * MIX
    return (mixed ^ (mixed >> np.uint32(13))) & TERM


def _counted(keys: UInt32Array) -> tuple[UInt32Array, Int64Array]:
    """The distinct keys, and how often each is there."""
    keys.sort()
    firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
    return keys[firsts], np.diff(np.append(firsts, len(keys)))


def log2(values: NDArray[np.number]) -> NDArray[np.float64]:
    """Of numbers from 1 on, exact at powers of two and a straight line between: at most 0.09 too low."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.asarray(exponent + 2 * mantissa - 2, np.float64)


def _summed(keys: UInt32Array, weights: Int32Array, documents: int, width: int) -> NDArray[np.float64]:
    """The weights of each document's terms in the components that they go to: whole numbers, (documents, width)."""
    total = np.zeros(documents * width)
    place = (keys >> np.uint32(BITS)).astype(np.int64) * width
    term = keys & TERM
    for component, sign in zip(*components(), strict=True):
        total += np.bincount(
            place + (component[term] & np.uint16(width - 1)), weights * sign[term], minlength=len(total)
        )
    return total.reshape(documents, width)


@lru_cache(maxsize=1)
def components() -> tuple[NDArray[np.uint16], Int8Array]:
    """The components that each term goes to (of fewer: modulo their number), and the signs with which it does:
    (COMPONENTS_A_TERM, 2^BITS) each."""
    rng = np.random.default_rng(SEED)
    shape = (COMPONENTS_A_TERM, 1 << BITS)
    return rng.integers(0, MOST_WIDTH, shape, np.uint16), (2 * rng.integers(0, 2, shape, np.int8) - 1).astype(np.int8)
