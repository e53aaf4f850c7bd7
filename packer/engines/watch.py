"""The fast engine watched while it runs: a sample of documents is encoded by the reference too.

All of the corpus's first megabyte, then about 1 document in 1000, chosen by seed and ordinal, so that the sample is the
same however the work is spread. One difference ends the run's first attempt: everything is done again by the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from packer.engines.engine import Engine, fault_in
from packer.engines.errors import DifferenceError, EngineError
from packer.plan import Int32Array, Int64Array

FIRST_BYTES = 1 << 20  # of the first partition
ONE_IN = 1000


class Watch:
    """Of one partition. `pick` is called with its batches in order, `encode` from any thread. The reference works in a
    thread of its own, so that nothing waits for it; seconds: that it has taken so far."""

    def __init__(self, reference: Engine, *, vocab_size: int, seed: int, partition: int) -> None:
        self._reference = reference
        self._vocab_size = vocab_size
        self._key = np.uint64((seed * 0x9E3779B97F4A7C15 + partition * 0xC2B2AE3D27D4EB4F) & 0xFFFFFFFFFFFFFFFF)
        self._left = FIRST_BYTES if partition == 0 else 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reference")
        self.seconds = 0.0

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
    ) -> tuple[Int32Array, Int64Array, Sample | None]:
        """The engine's ids of all texts, and what remains to be compared. Raises DifferenceError where it fails."""
        expected = self._pool.submit(self._expected, [texts[i] for i in picked]) if picked else None
        try:
            found = engine.encode(texts)
            if fault := fault_in(found, len(texts), self._vocab_size):
                raise EngineError(fault)
        except EngineError as error:
            where = "" if len(texts) == 1 else f"in the {len(texts)} documents from here on: "
            raise DifferenceError(int(ordinals[0]), f"{where}{error}") from error
        if expected is None:
            return *found, None
        ids, offsets = found
        own = [ids[offsets[i] : offsets[i + 1]].copy() for i in picked]  # a view would keep all the ids in memory
        return ids, offsets, Sample(ordinals[list(picked)].tolist(), own, expected)

    def _expected(self, texts: Sequence[str]) -> list[Int32Array]:
        """The reference's ids. One text at a time, on one core: the fast engine, or what loads it, has the rest."""
        began = perf_counter()
        try:
            return [self._reference.encode([text])[0] for text in texts]
        finally:
            self.seconds += perf_counter() - began

    def close(self) -> None:
        """What is not compared by now never is."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class Sample:
    """Picked documents of a batch. documents: their ordinals; found: the engine's ids, int32 (t,) each; expected: the
    reference's."""

    documents: list[int]
    found: list[Int32Array]
    expected: Future[list[Int32Array]]

    def __len__(self) -> int:
        return len(self.documents)

    def compare(self) -> None:
        """Waits for the reference. Raises DifferenceError at the first document whose ids are not its."""
        for document, own, other in zip(self.documents, self.found, self.expected.result(), strict=True):
            if not np.array_equal(own, other):
                shared = min(len(own), len(other))
                at = int(np.argmax(np.append(own[:shared] != other[:shared], True)))
                raise DifferenceError(document, f"token {at} differs between the engines")


def _mixed(values: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """splitmix64's finalizer (Steele, Lea and Flood 2014): neighbouring numbers become unrelated ones."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
