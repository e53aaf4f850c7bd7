"""Reading from a store: the bytes that are there, whatever the order of reads and however often the network fails."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer.errors import InputError
from packer.remote import RemoteFile, files, stat, stores, trying


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200), st.lists(st.tuples(st.sampled_from(["read", "set", "cur", "end"]), st.integers(-50, 250)))
)
def test_it_reads_as_a_file_does(store: MemoryFileSystem, content: bytes, steps: list[tuple[str, int]]) -> None:
    store.pipe_file("/f", content)
    reference = io.BytesIO(content)
    with RemoteFile("memory://f") as file:
        for step, number in steps:
            if step == "read":
                assert file.read(number) == reference.read(number)
                continue
            base = {"set": 0, "cur": reference.tell(), "end": len(content)}[step]
            whence = {"set": io.SEEK_SET, "cur": io.SEEK_CUR, "end": io.SEEK_END}[step]
            reference.seek(max(0, base + number))
            offset = max(0, number) if step == "set" else number
            assert file.seek(offset, whence) == reference.tell()


def test_two_readers_of_one_file_do_not_disturb_each_other(store: MemoryFileSystem) -> None:
    store.pipe_file("/f", bytes(range(100)))
    first, second = RemoteFile("memory://f"), RemoteFile("memory://f")
    assert first.read(10) == bytes(range(10))
    assert second.read(5) == bytes(range(5))
    assert first.read(3) == bytes(range(10, 13))


class Flaky:
    """A stored file of which every so-manyth read fails, or gives less than it should."""

    def __init__(self, content: bytes, rng: random.Random, failures: float) -> None:
        self._file, self._rng, self._failures = io.BytesIO(content), rng, failures

    def read(self, count: int) -> bytes:
        if self._rng.random() < self._failures:
            raise ConnectionResetError("connection reset by key=SECRETSECRET")
        return self._file.read(self._rng.randint(1, max(1, count)))

    def seek(self, place: int) -> int:
        return self._file.seek(place)

    def close(self) -> None:
        raise OSError("closing fails too")


def flaky(monkeypatch: pytest.MonkeyPatch, content: bytes, failures: float) -> None:
    rng = random.Random(1)
    monkeypatch.setattr(files, "in_this_process", lambda _: False)
    monkeypatch.setattr(MemoryFileSystem, "open", lambda *_, **__: Flaky(content, rng, failures))


def test_a_read_that_fails_is_tried_again_where_it_was(
    store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = random.Random(0).randbytes(5000)
    store.pipe_file("/f", content)
    flaky(monkeypatch, content, 0.2)
    with RemoteFile("memory://f") as file:
        assert b"".join(iter(lambda: file.read(37), b"")) == content


def test_it_gives_up_after_a_few_tries(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    store.pipe_file("/f", b"abc")
    flaky(monkeypatch, b"abc", 1.0)
    slept: list[float] = []
    monkeypatch.setattr(trying, "WAITS", (1, 4, 16))
    monkeypatch.setattr(trying, "sleep", slept.append)
    with pytest.raises(InputError, match=r"^memory://f: cannot be read: connection reset") as caught:
        RemoteFile("memory://f").read(1)
    assert slept == [1, 4, 16]
    assert caught.value.__suppress_context__


def test_a_file_that_ends_too_soon(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    store.pipe_file("/f", b"abcdef")
    flaky(monkeypatch, b"abc", 0.0)
    with pytest.raises(InputError, match="memory://f: cannot be read: it ends after 3 of 6 bytes"):
        RemoteFile("memory://f").read()


def test_a_file_that_changes(store: MemoryFileSystem) -> None:
    store.pipe_file("/f", b"abcdef")
    expected = stat("memory://f")
    store.pipe_file("/f", b"ABCDEF")
    with pytest.raises(InputError, match="memory://f: changed while it was being read"):
        RemoteFile("memory://f", expected=expected).read()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"size": 1, "ETag": '"abc"', "LastModified": 5}, "etag:abc"),
        ({"size": 1, "mtime": 5.5}, "time:5.5"),
        ({"size": 1}, None),
    ],
)
def test_the_stamp_is_the_etag_if_there_is_one(info: dict[str, Any], expected: str | None) -> None:
    assert stores.stat_of(info) == stores.Stat(1, expected)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("https://u:p@h/x"), "there is no such file"),
        (PermissionError("Forbidden"), "access is denied (Forbidden); set the store's credentials"),
        (type("NoCredentialsError", (Exception,), {})(), "there are no credentials"),
        (OSError(""), "OSError"),
        (ValueError("first line\nsecond"), "first line"),
    ],
)
def test_a_failure_is_one_line(error: Exception, words: str) -> None:
    told = stores.reason_of(error, "https://u:p@h/x")
    assert told.startswith(words)
    assert "\n" not in told
    assert "u:p" not in told
