"""How much alike the documents of a row are, against documents at random: what planning by similarity came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from packer.plan import Int64Array, offsets_of
from packer.similarity.vectors import Float32Array, Int8Array, inverse_norms, pair_similarities

PAIRS = 1 << 19  # compared, of each kind; where there are more, as many are drawn
STEPS = 1 << 12  # similarities are added as whole numbers, so that the sum is the same in any order


@dataclass(frozen=True)
class Likeness:
    """Sums over blocks. rows: with the documents whose similarity is known; best_fit_rows: what best fit needs for the
    same; pairs: of segments within a row; near: those above the threshold; compared and similarity: how many of the
    pairs were looked at, and the sum of theirs in STEPS; random_compared, random_similarity: of random pairs."""

    rows: int = 0
    best_fit_rows: int = 0
    pairs: int = 0
    near: int = 0
    compared: int = 0
    similarity: int = 0
    random_compared: int = 0
    random_similarity: int = 0

    def __add__(self, other: Likeness) -> Likeness:
        return Likeness(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


def measured(
    vectors: Int8Array, document: Int64Array, row_offsets: Int64Array, threshold: float, rng: np.random.Generator
) -> Likeness:
    """Of a plan. document: int64 (s,), whose vector each segment has; row_offsets: int64 (r+1,).

    Two segments of one document are no pair.
    """
    inverse = inverse_norms(vectors)
    counts = np.diff(row_offsets)
    pairs = offsets_of(counts * (counts - 1) // 2)
    total = int(pairs[-1])
    chosen = np.arange(total) if total <= PAIRS else rng.integers(0, total, PAIRS)
    row = np.searchsorted(pairs, chosen, side="right") - 1
    low, high = pair_of(chosen - pairs[row])
    a, b = document[row_offsets[row] + low], document[row_offsets[row] + high]
    found = pair_similarities(vectors, inverse, a[a != b], b[a != b])
    near = int((found > threshold).sum())
    random = _random(vectors, inverse, document, rng)
    return Likeness(
        rows=len(counts),
        pairs=total,
        near=near if total <= PAIRS else near * total // PAIRS,
        compared=len(found),
        similarity=_sum(found),
        random_compared=len(random),
        random_similarity=_sum(random),
    )


def pair_of(number: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The pairs i < j in the order 01 02 12 03 13 23 ..., by their number: int64 (p,) each."""
    high = ((1 + np.sqrt(1.0 + 8.0 * number)) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > number
    high += (high + 1) * high // 2 <= number
    return number - high * (high - 1) // 2, high


def _random(vectors: Int8Array, inverse: Float32Array, document: Int64Array, rng: np.random.Generator) -> Float32Array:
    a, b = document[rng.integers(0, max(len(document), 1), (2, min(PAIRS, 16 * len(document))))]
    return pair_similarities(vectors, inverse, a[a != b], b[a != b])


def _sum(similarities: Float32Array) -> int:
    return int(np.rint(similarities * np.float32(STEPS)).astype(np.int64).sum())


@dataclass(frozen=True)
class Similarity:
    """What `semantic` came to, as the manifest has it. by: what documents were compared by; rows, best_fit_rows: its
    rows, and those that best fit needs for the same documents; in_row, random: the mean cosine similarity of two
    segments of a row, and of two at random; near_duplicates_per_row: pairs above the threshold. None where documents
    had no vectors, or no two share a row."""

    by: str
    threshold: float
    rows: int
    best_fit_rows: int
    in_row: float | None
    random: float | None
    near_duplicates_per_row: float | None

    @classmethod
    def of(cls, found: Likeness, by: str, threshold: float) -> Similarity:
        return cls(
            by,
            threshold,
            found.rows,
            found.best_fit_rows,
            found.similarity / STEPS / found.compared if found.compared else None,
            found.random_similarity / STEPS / found.random_compared if found.random_compared else None,
            found.near / found.rows if found.compared else None,
        )
