"""URLs as INPUT: which files a folder or a glob in a store holds. One listing of the store tells all of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic

from packer import remote
from packer.corpus.sources import Source
from packer.errors import InputError, PackerError, UsageError
from packer.remote.urls import WEB, scheme

MANIFEST = "manifest.json"
SAVED = ("dataset_dict.json", "state.json")  # what `datasets`' save_to_disk writes


@dataclass(frozen=True)
class Files:
    """URLs of files in order. packed: packer data sets among them, which are left out; saved: the files are those of a
    `datasets` folder, all to be read as they come."""

    names: list[str]
    packed: list[str]
    saved: bool


def expand(url: str) -> list[str]:
    """The URLs that a glob matches, in bytewise order; without a glob the URL itself. A `?` is a glob's only in a store
    that has no parameters in its URLs."""
    kind = scheme(url)
    path = url.partition("://")[2]
    magic = has_magic(path.partition("?")[0] if kind in WEB or "?versionId=" in url else path)
    if not magic:
        return [url]
    if kind in WEB:
        raise UsageError(f"{remote.shown(url)}: a web server does not say which files it has; name each one")
    fs, pattern = remote.filesystem(url)
    fs.invalidate_cache()
    with _told(url):
        if fs.isfile(pattern):  # a file may be called so
            return [url]
        found = fs.glob(pattern, detail=True)
    folders = {name for name, info in found.items() if info.get("type") == "directory"}
    names = set(found) - (folders if "**" in url else set())  # which matches a folder's files as well as the folder
    names = {name for name in names if _is_hidden(pattern) or not _is_hidden(name)}
    if not names:
        raise InputError(f"{remote.shown(url)}: no file matches")
    return [_with_name(url, pattern, name) for name in sorted(names, key=os.fsencode)]


def files_of(
    url: str,
    out: str | None,
    is_packed: Callable[[str], bool],
    saved_files: Callable[[str], list[str] | None],
) -> Files | None:
    """The files of a folder, without hidden ones, those of `out` and of packer data sets; None for a file."""
    if scheme(url) in WEB:
        if url.endswith("/"):
            raise UsageError(f"{remote.shown(url)}: a web server does not say which files it has; name each one")
        return None
    folder = url.rstrip("/")
    with _told(url):
        fs, path = remote.filesystem(url)
        fs.invalidate_cache()
        names = set() if fs.isfile(path) else set(remote.listed(folder))
    if not names:
        return None
    if MANIFEST in names and is_packed(folder):
        raise UsageError(f"{remote.shown(url)}: is a packer data set: its documents are already packed")
    if names & set(SAVED) and (saved := saved_files(folder)) is not None:
        return Files(saved, [], saved=True)
    left_out = [f"{name.rpartition('/')[0]}/" for name in names if name.endswith(f"/{MANIFEST}")]
    left_out = [below for below in left_out if is_packed(f"{folder}/{below}".rstrip("/"))]
    packed = sorted(f"{folder}/{below}".rstrip("/") for below in left_out)
    if out is not None and out.startswith(real := f"{remote.canonical(folder)}/"):
        left_out.append(f"{out.removeprefix(real)}/")
    parts = {f"{name.rpartition('/')[0]}/" for name in names if name.rpartition("/")[2] in SAVED}
    kept: list[str] = []
    for below in sorted(parts):
        if not below.startswith(tuple(left_out)) and (found := saved_files(f"{folder}/{below}".rstrip("/"))):
            kept += found
            left_out.append(below)
    kept += [f"{folder}/{name}" for name in names if not name.startswith(tuple(left_out)) and not _is_hidden(name)]
    return Files(sorted(kept, key=os.fsencode), packed, saved=False)


def check_workers(sources: Sequence[Source]) -> None:
    """Raises UsageError where another process could not read a source."""
    for source in sources:
        if remote.in_this_process(source.location):
            raise UsageError(f"{source.path}: is in the memory of this process, where no worker can read it")


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _with_name(url: str, pattern: str, name: str) -> str:
    """The URL with the name that the store gave in place of the pattern: credentials and host stay."""
    at = url.rfind(pattern.lstrip("/"))
    if at < 0:
        raise InputError(f"{remote.shown(url)}: cannot be matched in this store; name the files")
    return url[:at] + name.lstrip("/")


@contextmanager
def _told(url: str) -> Iterator[None]:
    """What a store raises as one line that names the URL."""
    try:
        yield
    except PackerError:
        raise
    except Exception as error:  # each store has its own
        raise InputError(f"{remote.shown(url)}: cannot be read: {remote.reason_of(error, url)}") from None
