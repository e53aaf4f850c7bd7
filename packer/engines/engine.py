"""What an engine is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from packer.plan import Int32Array, Int64Array


class Engine(Protocol):
    """Called from several threads at once. May raise EngineError, except the reference."""

    name: str

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        """ids: int32 (t,) of all texts end to end; offsets: int64 (n+1,). Nothing added before or after a text."""


def fault_in(found: tuple[Int32Array, Int64Array], texts: int, vocab_size: int) -> str | None:
    """Why an answer for so many texts is none at all, whatever its ids, or None."""
    ids, offsets = found
    if ids.dtype != np.int32 or offsets.dtype != np.int64:
        return f"ids and offsets come as {ids.dtype} and {offsets.dtype}"
    if offsets.shape != (texts + 1,) or ids.ndim != 1:
        return f"{texts} texts have offsets of shape {offsets.shape}"
    if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
        return f"the offsets do not divide the {len(ids)} ids among {texts} texts"
    if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
        return f"an id is outside the vocabulary of {vocab_size}"
    return None
