"""Vectors as small integers, and their cosine similarity, with the same bits on every machine.

Sums of floats depend on the order in which a matrix product adds them: on the BLAS, its threads and the processor. Here
the components are integers of at most 127 in size and there are at most 1024 of them, so that every sum that a product
can meet is an integer below 2^24. float32 holds those exactly, so any order gives the same. What follows a sum
(square roots, divisions, products) is done one number at a time, which IEEE 754 rounds in one way only.

A wider vector is reduced by a random projection of signs (Johnson and Lindenstrauss; Achlioptas 2003): the similarity
of two documents then errs by about (1 - s^2) / sqrt(width), least for those that are nearly the same.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from packer.plan import Int64Array

Int8Array = NDArray[np.int8]
Float32Array = NDArray[np.float32]

MOST_WIDTH = 1024  # components: 1024 * 127^2 is below 2^24
GIVEN_WIDTH = 512  # to which wider vectors are reduced
TOP = 127  # of a component
EXACT = 1 << 24  # integers up to it are exact in float32, and so are sums that stay below
MOST_COMPONENTS = 1 << 16  # of a vector that is given
SEED = 0x5EED
CHUNK = 1 << 12  # vectors made, or pairs compared, at a time


def compact(values: NDArray[np.floating]) -> Int8Array:
    """Finite vectors (n, d) as int8 (n, min(d, GIVEN_WIDTH)), those of more components reduced."""
    width = values.shape[1]
    made = np.empty((len(values), min(width, GIVEN_WIDTH)), np.int8)
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        if width > GIVEN_WIDTH:
            part = scaled(part, min(EXACT // width - 1, 1 << 14)).astype(np.float32) @ _signs(width)
        made[start : start + CHUNK] = quantized(part)
    return made


def quantized(values: NDArray[np.floating]) -> Int8Array:
    """int8 (n, d), each vector scaled to its own largest component; the null vector stays."""
    return scaled(values, TOP).astype(np.int8)


def scaled(values: NDArray[np.floating], top: int) -> NDArray[np.float64]:
    """Whole numbers of at most `top` in size, in the proportions of each vector: (n, d)."""
    largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0).astype(np.float64)
    factors = np.divide(top, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.asarray(np.rint(values * factors), np.float64)


@lru_cache(maxsize=2)
def _signs(width: int) -> Float32Array:
    signs = np.random.default_rng([SEED, width]).integers(0, 2, (width, GIVEN_WIDTH), np.int8)
    return (2 * signs - 1).astype(np.float32)


def inverse_norms(vectors: Int8Array) -> Float32Array:
    """1 / the length of each vector, 0 for the null vector, which is like nothing: float32 (n,)."""
    inverse = np.zeros(len(vectors), np.float32)
    for start in range(0, len(vectors), CHUNK):
        part = vectors[start : start + CHUNK].astype(np.float32)
        squares = np.einsum("ij,ij->i", part, part).astype(np.float64)
        norms = np.sqrt(squares)
        inverse[start : start + CHUNK] = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return inverse


def pair_similarities(vectors: Int8Array, inverse: Float32Array, a: Int64Array, b: Int64Array) -> Float32Array:
    """The cosine similarity of vectors a[i] and b[i]: float32 (p,). a, b: int64 (p,)."""
    found = np.empty(len(a), np.float32)
    for start in range(0, len(a), CHUNK):
        i, j = a[start : start + CHUNK], b[start : start + CHUNK]
        products = np.einsum("ij,ij->i", vectors[i].astype(np.float32), vectors[j].astype(np.float32))
        found[start : start + CHUNK] = products * inverse[i] * inverse[j]
    return found
