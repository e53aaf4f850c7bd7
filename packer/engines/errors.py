"""Why an engine's work is thrown away and done again by the reference."""

from __future__ import annotations

from packer.errors import PackerError


class EngineError(PackerError):
    """The engine broke, or refused a tokenizer or a text that the reference takes."""


class DifferenceError(EngineError):
    """A document's ids differ from the reference's, or the engine breaks at it or after it. document: its ordinal in
    its partition."""

    def __init__(self, document: int, reason: str) -> None:
        self.document, self.reason = document, reason
        super().__init__(f"document {document}: {reason}")

    def __reduce__(self) -> tuple[type[DifferenceError], tuple[int, str]]:
        return type(self), (self.document, self.reason)
