"""Work that tokenizes, with the engine that suits its input; done again by the reference if that engine fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from packer import engines, tokenizer
from packer.corpus import Source
from packer.counting import Progress
from packer.errors import InputError
from packer.job import TokenizerOptions
from packer.loading import COMPRESSED

Result = TypeVar("Result")

HUB_BYTES = 1 << 30  # a hub data set does not say its size: taken as worth a fast engine
LIMITED_RECORD_BYTES = 4 << 10  # of a record, where --limit says how many


def choose(
    options: TokenizerOptions, sources: Sequence[Source], limit: int | None
) -> tuple[TokenizerOptions, engines.Choice]:
    """The options with the engine that these sources shall have, and the choice. Loads the tokenizer."""
    text_bytes = _text_bytes(sources, limit)
    engines.load_ahead(tokenizer.find(options.source), options.engine, text_bytes)
    loaded = tokenizer.load(options.source)
    choice = engines.choose(loaded, options.engine, options.special_in_text, text_bytes)
    return replace(options, engine=choice.name), choice


def run(
    work: Callable[[TokenizerOptions | None, Progress | None], Result],
    options: TokenizerOptions | None,
    choice: engines.Choice | None,
    sources: Sequence[Source],
    clear: Callable[[], None],
    progress: Progress | None = None,
) -> tuple[Result, engines.Choice | None]:
    """work(options, progress), where `choose` gave options and choice. Where the fast engine fails, `clear()`, the
    progress taken back, and the same with the reference.

    Returns the choice that held, its note naming the document if there was a difference.
    """
    told = _Told(progress)
    try:
        return work(options, told if progress else None), choice
    except engines.EngineError as error:
        if options is None or choice is None or choice.name == "hf":
            raise
        if any(source.format == "stdin" for source in sources):
            raise InputError(
                f"{choice.version} failed at {error}, and a pipe cannot be read again: run with --tokenizer-engine hf"
            ) from error
        reference = replace(engines.reference(), note=f"{choice.version} failed at {error}; everything was done again")
    clear()
    told.take_back()
    return work(replace(options, engine=reference.name), progress), reference


@dataclass
class _Told:
    """Progress that can be taken back."""

    progress: Progress | None
    documents: int = 0
    tokens: int = 0

    def __call__(self, documents: int, tokens: int) -> None:
        if self.progress:
            self.documents, self.tokens = self.documents + documents, self.tokens + tokens
            self.progress(documents, tokens)

    def take_back(self) -> None:
        self(-self.documents, -self.tokens)


def _text_bytes(sources: Sequence[Source], limit: int | None) -> int:
    """About how many bytes of text there are. A pipe counts as none: it cannot be read a second time."""
    total = 0
    for source in sources:
        if source.format == "hub":
            total += HUB_BYTES
        elif source.schema is None or source.schema.kind != "input_ids":
            total += source.size * (COMPRESSED if source.compression or source.format == "parquet" else 1)
    return total if limit is None else min(total, limit * LIMITED_RECORD_BYTES)
