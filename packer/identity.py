"""What an input is, so that it can be told whether it is still the same; and whether it changed during a run.

A file is its path, size and time of change, and the hash of its first and last bytes: what a copy or a rewrite within
one tick of the clock leaves as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from packer import remote
from packer.corpus import Slice, Source
from packer.corpus.streams import input_errors
from packer.errors import InputError, PackerError

ENDS = 64 << 10  # bytes hashed at each end
DIGEST = 16


@dataclass(frozen=True)
class Identity:
    """A slice of an input. path: as the user named it; digest: of the file's two ends, of a folder's listing, or ""
    where there is neither (stdin, the hub, a store); stamp: what a store says that changes with the content."""

    path: str
    format: str
    start: int
    stop: int | None
    size: int
    modified: int | None
    stamp: str | None
    digest: str
    commit: str | None


def identity_of(piece: Slice) -> Identity:
    source = piece.source
    return Identity(
        source.path,
        source.format,
        piece.start,
        piece.stop,
        source.size,
        source.modified,
        source.stamp,
        _digest(source),
        source.commit,
    )


def require_unchanged(sources: Iterable[Source]) -> None:
    """Raises InputError at the first file that is not what it was when the run began."""
    for source in sources:
        if source.remote:
            _require_unchanged_there(source)
        if source.modified is None:
            continue
        with input_errors(source.path):
            now = os.stat(source.location)
        if (now.st_size, now.st_mtime_ns) != (source.size, source.modified):
            raise InputError(f"{source.path}: changed while it was being packed; run again when it is complete")


def _require_unchanged_there(source: Source) -> None:
    try:
        now = remote.stat(source.location)
    except PackerError:
        raise
    except Exception as error:  # each store has its own
        raise InputError(f"{source.path}: cannot be read: {remote.reason_of(error, source.location)}") from None
    if (now.size, now.stamp) != (source.size, source.stamp):
        raise InputError(f"{source.path}: changed while it was being packed; run again when it is complete")


def _digest(source: Source) -> str:
    if not source.location or source.remote:
        return ""
    seen = blake2b(digest_size=DIGEST)
    with input_errors(source.path):
        if os.path.isdir(source.location):
            for line in _listing(source.location):
                seen.update(line)
            return seen.hexdigest()
        with open(source.location, "rb") as file:
            seen.update(file.read(ENDS))
            file.seek(max(0, source.size - ENDS))
            seen.update(file.read(ENDS))
    return seen.hexdigest()


def _listing(folder: str) -> Iterable[bytes]:
    for above, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(above, name)
            found = os.stat(path)
            yield f"{os.path.relpath(path, folder)}\0{found.st_size}\0{found.st_mtime_ns}\n".encode(errors="replace")
