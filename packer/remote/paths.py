"""A folder here or in a store. Those who only read one need of `pathlib.Path` what `RemotePath` has too.

Files in a store are opened for reads that jump: a shard's columns lie apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packer.errors import DatasetError, UsageError
from packer.remote.files import RemoteFile
from packer.remote.stores import listed, reason_of, stat
from packer.remote.urls import WEB, is_url, local_path, scheme, shown


@dataclass(frozen=True, repr=False)
class RemotePath:
    """What a URL names. As a text it has no credentials; `url` has them. Raises DatasetError."""

    url: str

    def __str__(self) -> str:
        return shown(self.url)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self.url.rstrip('/')}/{name}")

    def exists(self) -> bool:
        """Whether it is there, as a file."""
        return self._size() is not None

    is_file = exists

    def size(self) -> int:
        size = self._size()
        if size is None:
            raise DatasetError(f"{self}: there is no such file")
        return size

    def open(self, mode: str = "rb") -> RemoteFile:
        if mode != "rb":
            raise ValueError(f"{mode!r}: files in a store are only read here, as bytes")
        return RemoteFile(self.url, DatasetError, random=True)

    def read_bytes(self) -> bytes:
        with RemoteFile(self.url, DatasetError) as file:
            return file.read(file.size()) or b""

    def _size(self) -> int | None:
        try:
            return stat(self.url).size
        except (FileNotFoundError, IsADirectoryError):
            return None
        except Exception as error:  # each store has its own
            raise DatasetError(f"{self}: cannot be read: {reason_of(error, self.url)}") from None


Place = Path | RemotePath


def place(text: str | Place) -> Place:
    """The folder that a path or URL names. Raises UsageError for a URL with parameters: a folder's files have none."""
    if not isinstance(text, str):
        return text
    if not is_url(text):
        return Path(local_path(text))
    if "?" in text:
        raise UsageError(f"{shown(text)}: has parameters after a ?, which name one file and no folder; leave them out")
    return RemotePath(text)


def size_of(file: Place) -> int:
    return file.stat().st_size if isinstance(file, Path) else file.size()


def names_in(folder: Place) -> set[str] | None:
    """Names in a folder; None where that cannot be told: web servers have no listing."""
    if isinstance(folder, Path):
        return {path.name for path in folder.glob("*")}
    if scheme(folder.url) in WEB:
        return None
    try:
        return {name.partition("/")[0] for name in listed(folder.url)}
    except Exception as error:  # each store has its own
        raise DatasetError(f"{folder}: cannot be listed: {reason_of(error, folder.url)}") from None
