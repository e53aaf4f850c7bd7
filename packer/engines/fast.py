"""The fast engine: `fastokens`, native code that does byte-pair encoding many times as fast, and without the GIL.

It never runs unwatched: `packer.engines.trial` compares it before a run, `packer.encoding` samples it during one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata, util

import numpy as np

from packer.engines.errors import EngineError
from packer.errors import TokenizerError
from packer.loading import load_ahead
from packer.plan import Int32Array, Int64Array
from packer.tokenizer import Tokenizer

LIBRARY = "fastokens"
OLDEST = (0, 3, 5)  # earlier ones are not safe to call from several threads
PANICS = "pyo3_runtime"  # the module of what a panic of native code is raised as, which is no Exception


def version() -> str | None:
    """The library's version, None where it is not installed."""
    try:
        return metadata.version(LIBRARY) if util.find_spec(LIBRARY) else None
    except metadata.PackageNotFoundError:  # files of that name that nobody installed
        return None


def reason_against(version: str | None) -> str | None:
    """Why the library as installed cannot be used, or None."""
    if version is None:
        return f"{LIBRARY} is not installed (pip install 'packer[fast]')"
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < OLDEST:
        return f"{LIBRARY} {version} is too old (pip install 'packer[fast]')"
    return None


class FastEngine:
    name = "fast"

    def __init__(self, tokenizer: Tokenizer, *, special_in_text: str = "parse") -> None:
        self._loading = load_ahead(tokenizer.path)
        self._fingerprint, self._source = tokenizer.fingerprint, tokenizer.source
        self._literal = special_in_text == "literal"

    def encode(self, texts: Sequence[str]) -> tuple[Int32Array, Int64Array]:
        """Raises EngineError where the native code refuses the tokenizer or a text, or breaks."""
        try:
            native, fingerprint = self._loading.result()
            ids, offsets = native.encode_batch_flat(list(texts), split_special_tokens=self._literal)
            flat = np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64)
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__module__ != PANICS:
                raise  # someone wants this thread to stop
            raise EngineError(" ".join(str(error).split()) or type(error).__name__) from error
        if fingerprint != self._fingerprint:
            raise TokenizerError(f"tokenizer {self._source} changed while it was being loaded: run again")
        return flat
