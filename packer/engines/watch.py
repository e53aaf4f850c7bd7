"""The fast engine watched while it runs: a sample of documents is encoded by the reference too.

All of the corpus's first megabyte, then about 1 document in 1000, chosen by seed and ordinal, so that the sample is the
same however the work is spread. One difference ends the run's first attempt: everything is done again by the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from packer.engines.engine import Engine, fault_in
from packer.engines.errors import DifferenceError, EngineError
from packer.plan import Int32Array, Int64Array

FIRST_BYTES = 1 << 20  # of the first partition
ONE_IN = 1000


class Watch:
    """Of one partition. `pick` is called with its batches in order; the others from any thread."""

    def __init__(self, reference: Engine, *, vocab_size: int, seed: int, partition: int) -> None:
        self._reference = reference
        self._vocab_size = vocab_size
        self._key = np.uint64((seed * 0x9E3779B97F4A7C15 + partition * 0xC2B2AE3D27D4EB4F) & 0xFFFFFFFFFFFFFFFF)
        self._left = FIRST_BYTES if partition == 0 else 0
        self._seconds: list[float] = []

    def pick(self, ordinals: Int64Array, texts: Sequence[str]) -> list[int]:
        """Which of a batch's texts to compare."""
        first = 0
        while self._left > 0 and first < len(texts):
            self._left -= len(texts[first])
            first += 1
        chosen = _mixed(ordinals.astype(np.uint64) + self._key) % np.uint64(ONE_IN) == 0
        chosen[:first] = True
        return np.flatnonzero(chosen).tolist()

    def encode(
        self, engine: Engine, ordinals: Int64Array, texts: Sequence[str], picked: Sequence[int]
    ) -> tuple[Int32Array, Int64Array]:
        """The engine's ids of all texts. Raises DifferenceError where it fails, or a picked text's ids are wrong."""
        expected = self.expected(texts, picked) if picked else None  # first: the engine may still be loading
        try:
            found = engine.encode(texts)
            if fault := fault_in(found, len(texts), self._vocab_size):
                raise EngineError(fault)
        except EngineError as error:
            where = "" if len(texts) == 1 else f"in the {len(texts)} documents from here on: "
            raise DifferenceError(int(ordinals[0]), f"{where}{error}") from error
        if expected is not None:
            self.compare(expected, found, picked, ordinals)
        return found

    def expected(self, texts: Sequence[str], picked: Sequence[int]) -> tuple[Int32Array, Int64Array]:
        """The reference's ids of the picked texts."""
        began = perf_counter()
        try:
            return self._reference.encode([texts[i] for i in picked])
        finally:
            self._seconds.append(perf_counter() - began)

    @property
    def seconds(self) -> float:
        """What the reference has taken for the sample so far, added up over threads."""
        return sum(self._seconds)

    @staticmethod
    def compare(
        expected: tuple[Int32Array, Int64Array],
        found: tuple[Int32Array, Int64Array],
        picked: Sequence[int],
        ordinals: Int64Array,
    ) -> None:
        """Raises DifferenceError at the first picked document whose ids are not the expected ones."""
        (right, ends), (ids, offsets) = expected, found
        for i, text in enumerate(picked):
            own, other = ids[offsets[text] : offsets[text + 1]], right[ends[i] : ends[i + 1]]
            if not np.array_equal(own, other):
                shared = min(len(own), len(other))
                at = int(np.argmax(np.append(own[:shared] != other[:shared], True)))
                raise DifferenceError(int(ordinals[text]), f"token {at} differs between the engines")


def _mixed(values: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """splitmix64's finalizer (Steele, Lea and Flood 2014): neighbouring numbers become unrelated ones."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
