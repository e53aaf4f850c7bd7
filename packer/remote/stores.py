"""Stores, through fsspec, which is imported with the first URL. What goes wrong in one is told in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from packer.errors import PackerError, UsageError
from packer.remote.urls import scheme, shown, shown_in, split

ETAGS = ("ETag", "etag", "e_tag", "md5Hash")
TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
EXTRAS = {"s3": "packer[s3]", "s3a": "packer[s3]", "http": "packer[remote]", "https": "packer[remote]"}


@dataclass(frozen=True)
class Stat:
    """size: bytes; stamp: changes when the content does: "etag:..." where the store has one, else "time:..." """

    size: int
    stamp: str | None


def filesystem(url: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and its name for what the URL names. Raises UsageError."""
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{shown(url)}: URLs need fsspec: pip install 'packer[remote]'") from None
    if "::" in url:
        raise UsageError(f"{shown_in(url, url)}: chained URLs are not read; copy what it holds and name the copy")
    kind, options = scheme(url), {}
    if kind in ("s3", "s3a"):
        credentials, url = split(url)
        if credentials:
            key, _, secret = credentials.partition(":")
            options = {"key": unquote(key), "secret": unquote(secret)}
    try:
        return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = EXTRAS.get(str(kind))
        advice = f"pip install '{extra}'" if extra else str(error)
        raise UsageError(f"{shown(url)}: a package for {kind}:// is missing: {advice}") from None
    except Exception as error:  # each store has its own
        raise UsageError(f"{shown(url)}: cannot be opened: {reason_of(error, url)}") from None


def stat(url: str) -> Stat:
    """Raises FileNotFoundError, and whatever else the store raises."""
    fs, path = filesystem(url)
    fs.invalidate_cache()
    info = fs.info(path)
    if info.get("type") == "directory":
        raise IsADirectoryError(path)
    return stat_of(info)


def stat_of(info: dict[str, Any]) -> Stat:
    if not isinstance(size := info.get("size"), int):
        raise OSError("the server does not say how large it is; copy it and name the copy")
    etag = next((str(info[key]) for key in ETAGS if info.get(key)), None)
    time = next((str(info[key]) for key in TIMES if info.get(key)), None)
    return Stat(size, f"etag:{etag.strip(chr(34))}" if etag else f"time:{time}" if time else None)


def listed(url: str) -> dict[str, dict[str, Any]]:
    """What lies below a folder, at any depth: the store's facts by relative path. Nothing for what is not there."""
    fs, path = filesystem(url)
    fs.invalidate_cache()
    root = path.rstrip("/")
    try:
        found = fs.find(root, detail=True)
    except FileNotFoundError:
        return {}
    return {
        name[len(root) + 1 :]: info
        for name, info in found.items()
        if name.startswith(f"{root}/") and not name.endswith("/") and info.get("type") != "directory"
    }


def reason_of(error: BaseException, *urls: str) -> str:
    """What a store says, as one line without secrets."""
    if isinstance(error, PackerError):
        return str(error)
    lines = str(error).strip().splitlines()
    said = shown_in(lines[0], *urls) if lines else type(error).__name__
    if isinstance(error, FileNotFoundError):
        return "there is no such file, folder or bucket"
    if isinstance(error, PermissionError):
        return f"access is denied ({said}); set the store's credentials in the environment"
    if type(error).__name__ == "NoCredentialsError":
        return "there are no credentials for this store; set them in the environment, as its own tools need them"
    return said
