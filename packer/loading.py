"""The fast engine's native tokenizer, loaded in a thread of its own: that takes a second or more, and holds no lock.

A command that will likely need it begins here before it imports anything heavy, so this module imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fastokens

WORTHWHILE_BYTES = 8 << 20  # of text: below, the reference is done before the fast engine has loaded and been watched
COMPRESSED = 3  # bytes of text in a byte of a compressed file
COMPRESSING = (".bz2", ".gz", ".parquet", ".xz", ".zst")


def load_ahead(path: Path) -> Future[tuple[fastokens.Tokenizer, str]]:
    """The native tokenizer of a tokenizer.json, and the file's sha256. Loaded once a process, while the file stays as
    it is."""
    return _load_ahead(path, path.stat().st_mtime_ns)


def guess_ahead(source: str | None, inputs: Sequence[str], engine: str) -> None:
    """Begins where the names alone say that a run over these inputs use it; a wrong guess costs a thread's work."""
    if source is None or engine == "hf":
        return
    path = Path(source, "tokenizer.json") if os.path.isdir(source) else Path(source)
    if path.is_file() and (engine == "fast" or sum(map(_text_bytes, inputs)) >= WORTHWHILE_BYTES):
        load_ahead(path)


def _text_bytes(name: str) -> int:
    """About how much text a file, or the files of a folder, hold."""
    if os.path.isdir(name):
        with os.scandir(name) as entries:
            return sum(_text_bytes(entry.path) for entry in entries if entry.is_file())
    size = os.path.getsize(name) if os.path.isfile(name) else 0
    return size * COMPRESSED if name.endswith(COMPRESSING) else size


@cache
def _load_ahead(path: Path, stamp: int) -> Future[tuple[fastokens.Tokenizer, str]]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="load-tokenizer")
    try:
        return pool.submit(_load, path, stamp)
    finally:
        pool.shutdown(wait=False)


def _load(path: Path, stamp: int) -> tuple[fastokens.Tokenizer, str]:
    """The sha256 is empty where the file is not what it was any more."""
    import fastokens

    from packer import memory

    native = fastokens.Tokenizer.from_file(str(path))  # from a string it takes longer, and holds the lock for longer
    memory.trim()
    native.no_truncation()
    native.no_padding()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return native, digest if path.stat().st_mtime_ns == stamp else ""
