"""The fast engine: `fastokens`, native code that does byte-pair encoding many times as fast, and without the GIL.

It never runs unwatched: `packer.engines.trial` compares it before a run, `packer.encoding` samples it during one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from packer.engines.errors import EngineError
from packer.errors import TokenizerError
from packer.plan import Int32Array, Int64Array
from packer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import fastokens

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


def load_ahead(path: Path) -> Future[tuple[fastokens.Tokenizer, str]]:
    """The native tokenizer and the sha256 of its file, being loaded in a thread of its own: that takes seconds, and
    holds no lock. Loaded once a process, while the file stays as it is."""
    return _load_ahead(path, path.stat().st_mtime_ns)


@cache
def _load_ahead(path: Path, stamp: int) -> Future[tuple[fastokens.Tokenizer, str]]:  # noqa: ARG001  the cache's
    pool = ThreadPoolExecutor(1, thread_name_prefix="load-tokenizer")
    try:
        return pool.submit(_load, path)
    finally:
        pool.shutdown(wait=False)


def _load(path: Path) -> tuple[fastokens.Tokenizer, str]:
    import fastokens

    data = path.read_bytes()
    native = fastokens.Tokenizer.from_json_str(data.decode())
    native.no_truncation()
    native.no_padding()
    return native, hashlib.sha256(data).hexdigest()
