"""Neighbourhoods: documents cut into buckets of like ones, each small enough to compare all of it with all.

A tree of halves. Each node is cut at the median along one direction, so all buckets have nearly the same size whatever
the vectors are, equal ones too. The direction is that of balanced 2-means on a sample: two documents that are unlike,
then twice the difference of the means of the halves that it gives. Random projection trees (Dasgupta and Freund 2008)
cut along any direction; this one needs fewer levels to part topics.
"""

from __future__ import annotations

import numpy as np

from packer.plan import Int64Array
from packer.similarity.vectors import TOP, Float32Array, Int8Array, scaled

SAMPLE = 512  # documents of a node that its direction comes from
ROUNDS = 2
CHUNK = 1 << 14  # documents looked at together


def buckets(
    vectors: Int8Array, inverse: Float32Array, documents: Int64Array, size: int, rng: np.random.Generator
) -> list[Int64Array]:
    """The documents, int64 (n,), in buckets of at most `size`; buckets next to each other are more alike."""
    found: list[Int64Array] = []
    nodes = [documents] if len(documents) else []
    while nodes:
        node = nodes.pop()
        if len(node) <= size:
            found.append(node)
            continue
        order = np.argsort(_along(vectors, inverse, node, _direction(vectors, inverse, node, rng)), kind="stable")
        middle = (len(node) + 1) // 2
        nodes += [node[order[middle:]], node[order[:middle]]]
    return found


def _along(vectors: Int8Array, inverse: Float32Array, node: Int64Array, direction: Float32Array) -> Float32Array:
    """Where each document of the node lies along a direction of whole numbers up to TOP: float32 (n,)."""
    place = np.empty(len(node), np.float32)
    for start in range(0, len(node), CHUNK):
        part = node[start : start + CHUNK]
        place[start : start + CHUNK] = (vectors[part].astype(np.float32) @ direction) * inverse[part]
    return place


def _direction(vectors: Int8Array, inverse: Float32Array, node: Int64Array, rng: np.random.Generator) -> Float32Array:
    sample = node[rng.integers(0, len(node), min(SAMPLE, len(node)))]
    values = vectors[sample].astype(np.float32)
    units = np.rint(values * (inverse[sample] * np.float32(TOP))[:, None])
    first = int(np.argmin(units @ units[0]))
    second = int(np.argmin(units @ units[first]))
    direction = _whole(units[first] - units[second])
    for _ in range(ROUNDS):
        order = np.argsort((values @ direction) * inverse[sample], kind="stable")
        halves = np.array_split(units[order], 2)
        direction = _whole(halves[1].sum(axis=0) - halves[0].sum(axis=0))
    return direction


def _whole(direction: Float32Array) -> Float32Array:
    whole: Float32Array = scaled(direction[None], TOP)[0].astype(np.float32)
    return whole
