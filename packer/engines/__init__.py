"""Texts to token ids: the reference engine, a much faster one, and the choice between them.

hf          Hugging Face `tokenizers`: its ids are the right ones, by definition
fast        native code that gives the same ids many times as fast, for the tokenizers that it serves
structure   which tokenizers those may be
hostile     strings that have told engines apart
trial       both engines on these, once a tokenizer; the verdict is kept
watch       a sample of the documents encoded by both, while the fast one runs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import tokenizers

from packer import loading
from packer.engines import fast, trial
from packer.engines.engine import Engine
from packer.engines.errors import DifferenceError, EngineError
from packer.engines.fast import FastEngine
from packer.engines.hf import HfEngine
from packer.engines.watch import Sample, Watch
from packer.errors import UsageError
from packer.loading import WORTHWHILE_BYTES
from packer.tokenizer import Tokenizer

__all__ = [
    "Choice",
    "DifferenceError",
    "Engine",
    "EngineError",
    "FastEngine",
    "HfEngine",
    "Sample",
    "Watch",
    "choose",
    "load_ahead",
    "make",
    "reference",
    "when_loaded",
]


@dataclass(frozen=True)
class Choice:
    """name: "hf" or "fast"; version: of its library; note: what a user should know about the choice, or None;
    trial_seconds: what it took to find out whether the fast one may serve."""

    name: str
    version: str
    note: str | None = None
    trial_seconds: float = field(default=0.0, compare=False)


def load_ahead(path: Path, asked: str, text_bytes: int) -> None:
    """Begins to load what `choose` may choose, for native code loads while Python goes on."""
    if fast.version() is not None and (asked == "fast" or (asked == "auto" and text_bytes >= WORTHWHILE_BYTES)):
        loading.load_ahead(path)


def when_loaded(path: Path, call: Callable[[], object]) -> None:
    """Calls when the fast engine's native code has loaded, from whatever thread; at once if it has already."""
    loading.load_ahead(path).add_done_callback(lambda _: call())


def reference() -> Choice:
    return Choice("hf", f"tokenizers {tokenizers.__version__}")


def choose(tokenizer: Tokenizer, asked: str, special_in_text: str, text_bytes: int) -> Choice:
    """The engine for a run over about so many bytes of text. Raises UsageError where `fast` is asked for in vain.

    `auto` takes the fast one where it is installed, pays, and passes its trial.
    """
    if asked == "hf" or (asked == "auto" and text_bytes < WORTHWHILE_BYTES):
        return reference()
    began = perf_counter()
    version = fast.version()
    reason = fast.reason_against(version) or trial.reason_against(tokenizer, special_in_text)
    seconds = perf_counter() - began
    if reason is None:
        return Choice("fast", f"{fast.LIBRARY} {version}", trial_seconds=seconds)
    if asked == "fast":
        raise UsageError(f"--tokenizer-engine fast does not serve {tokenizer.source}: {reason}; auto takes hf then")
    return replace(reference(), note=f"not the fast one: {reason}", trial_seconds=seconds)


def make(name: str, tokenizer: Tokenizer, special_in_text: str) -> Engine:
    return (FastEngine if name == "fast" else HfEngine)(tokenizer, special_in_text=special_in_text)
