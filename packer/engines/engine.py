"""What an engine is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from packer.plan import Int32Array, Int64Array


class Engine(Protocol):
    """Called from several threads at once. May raise EngineError, except the reference."""

    name: str

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        """ids: int32 (t,) of all texts end to end; offsets: int64 (n+1,). Nothing added before or after a text."""
