"""A stored file as a binary stream. The network may break off at any time: then it is opened again where it was.

fsspec's stores retry single requests, each in its own way or not at all. Here a read that fails is tried again a few
times whatever the store, and only if the file is still the one that was opened first.
"""

from __future__ import annotations

import io
from functools import partial
from typing import Any

from packer.errors import InputError, PackerError
from packer.remote.stores import Stat, filesystem, reason_of, stat_of
from packer.remote.trying import tried
from packer.remote.urls import in_this_process, shown

BLOCK = 8 << 20  # bytes asked for at once
RANDOM_BLOCK, RANDOM_BLOCKS = 4 << 20, 16  # of these so many are kept, where reads jump between columns


class RemoteFile(io.RawIOBase):
    """Reads a stored file; each read gives all that is asked for, or what there is up to the end.

    expected: what it must still be, or it is "changed while it was being read"; random: reads will jump. Raises
    `error`, one line without secrets. Opened by the first read.
    """

    def __init__(
        self, url: str, error: type[PackerError] = InputError, expected: Stat | None = None, *, random: bool = False
    ) -> None:
        self._url, self._error, self._expected, self._random = url, error, expected, random
        self._stored: Any = None
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        self._at = max(0, offset + (self.size() if base is None else base))
        if self._stored is not None:
            self._stored.seek(self._at)
        return self._at

    def size(self) -> int:
        if self._expected is None:
            self._try(lambda: None)
        assert self._expected is not None  # opening has set it
        return self._expected.size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self.size() - self._at))
        done = 0
        while done < wanted:
            data = self._try(partial(self._read, wanted - done))
            view[done : done + len(data)] = data
            done += len(data)
            self._at += len(data)
        return done

    def close(self) -> None:
        self._drop()
        super().close()

    def _read(self, count: int) -> bytes:
        data: bytes = self._stored.read(count)
        if not data:
            raise EOFError(f"it ends after {self._at} of {self.size()} bytes")
        return data

    def _try(self, action: Any) -> Any:
        """What `action` gives, with the file open. Tries again after a failure that may pass."""

        def opened() -> Any:
            if self._stored is None:
                self._open()
            return action()

        try:
            return tried(opened, self._drop)
        except Exception as error:  # each store has its own
            raise self._told(error) from None  # the cause would show the URL with its secrets

    def _told(self, error: Exception) -> PackerError:
        if isinstance(error, PackerError):
            return error
        return self._error(f"{shown(self._url)}: cannot be read: {reason_of(error, self._url)}")

    def _open(self) -> None:
        fs, path = filesystem(self._url)
        fs.invalidate_cache()
        found = stat_of(fs.info(path))
        if self._expected is None:
            self._expected = found
        elif found != self._expected:
            raise self._error(f"{shown(self._url)}: changed while it was being read; run again when it stays as it is")
        if in_this_process(self._url):  # fsspec gives every reader the same object, with one position for all
            self._stored = io.BytesIO(fs.cat_file(path))
        elif self._random:
            options = {"cache_type": "blockcache", "cache_options": {"maxblocks": RANDOM_BLOCKS}}
            self._stored = fs.open(path, "rb", block_size=RANDOM_BLOCK, **options)
        else:
            self._stored = fs.open(path, "rb", block_size=BLOCK)
        if self._at:
            self._stored.seek(self._at)

    def _drop(self) -> None:
        stored, self._stored = self._stored, None
        if stored is not None:
            try:
                stored.close()
            except Exception:  # it is given up; what matters has been told
                return
