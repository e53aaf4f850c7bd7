"""OUT by URL: one whole data set at each moment, nothing foreign removed, the same bytes as OUT here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from packer import upload
from packer.manifest import load
from packer.reader import PackedDataset
from packer.remote import RemotePath
from packer.upload import MARK, stated_md5
from packer.verify import verify

Listing = Callable[[str], dict[str, bytes]]
Packer = Callable[..., int]
OUT = "memory://out"
PACK = ["pack", "--quiet", "--out", OUT, "--max-length"]
PUTS = ("pipe_file", "put_file", "rm_file")


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


@pytest.fixture
def source(tmp_path: Path, documents: bytes) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_bytes(documents)
    return path


def whole(out: str = OUT) -> int | None:
    """max_length of the data set at OUT, of which each shard is what the manifest says; None: there is none."""
    place = RemotePath(out)
    if not (place / "manifest.json").exists():
        return None
    manifest = load(place)
    for shard in manifest.shards:
        assert hashlib.sha256((place / shard.path).read_bytes()).hexdigest() == shard.sha256
    return manifest.max_length


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "arrow-stream"])
@pytest.mark.parametrize(
    "command",
    [
        ["pack", "--max-length", "8"],
        ["pack", "--max-length", "8", "--validation", "0.2"],
        ["pack", "--max-length", "8", "--max-length", "4", "--epochs", "2"],
        ["window", "--context-size", "4", "--stride", "2"],
    ],
)
def test_the_same_bytes_as_here(
    store: MemoryFileSystem,
    packer: Packer,
    listing: Listing,
    source: Path,
    tmp_path: Path,
    command: list[str],
    file_format: str,
) -> None:
    store.pipe_file("/in/docs.jsonl", source.read_bytes())
    options = ["--format", file_format, "--rows-per-shard", "10", "--quiet"]
    assert packer(*command, source, "--out", tmp_path / "out", *options) == 0
    assert packer(*command, "memory://in", "--out", OUT, *options) == 0
    here = {str(path.relative_to(tmp_path / "out")): path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    there = listing("/out")
    assert there.keys() == here.keys()
    for name, content in there.items():
        if name != "manifest.json":
            assert content == here[name].read_bytes()
    manifests = [json.loads(here["manifest.json"].read_bytes()), json.loads(there["manifest.json"])]
    (inputs,) = manifests[1].pop("inputs")
    (expected,) = manifests[0].pop("inputs")
    assert manifests[0] == manifests[1]
    assert inputs == expected | {"path": "memory://in/docs.jsonl", "size": source.stat().st_size}
    assert list((tmp_path / "temporary").iterdir()) == []
    verify(OUT, ["memory://in/*.jsonl"])
    assert packer("verify", OUT, source, "--quiet") == 0
    assert packer("inspect", OUT, "--quiet") == 0


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "arrow-stream"])
def test_the_reader_reads_there(
    store: MemoryFileSystem, packer: Packer, source: Path, tmp_path: Path, file_format: str
) -> None:
    for out in (OUT, tmp_path / "out"):
        options = ["--format", file_format, "--rows-per-shard", "10", "--quiet"]
        assert packer("pack", source, "--max-length", "8", "--out", out, *options) == 0
    here, there = PackedDataset(tmp_path / "out"), PackedDataset(OUT)
    assert store.exists("/out/manifest.json")
    assert (len(there), there.fingerprint, there.random_access) == (len(here), here.fingerprint, False)
    for mine, other in zip(here, there, strict=True):
        for name, value in mine.items():
            np.testing.assert_array_equal(value, other[name])


def test_an_existing_out_is_refused_unless_it_may_be_replaced(
    store: MemoryFileSystem, packer: Packer, listing: Listing, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert packer(*PACK, 8, source) == 0
    before = listing("/out")
    assert packer(*PACK, 16, source) == 1
    assert "memory://out holds a finished data set; --overwrite replaces it" in capsys.readouterr().err
    assert listing("/out") == before
    assert packer(*PACK, 16, source, "--overwrite") == 0
    assert whole() == 16
    verify(OUT, [str(source)])
    names = {name for name in listing("/out") if name.startswith("data/")}
    assert len(names) == 1
    assert not names & before.keys()  # never a shard under a name that the replaced one had
    assert not store.exists("/out/.tmp")


def test_packing_the_same_again_keeps_its_names(
    store: MemoryFileSystem, packer: Packer, listing: Listing, source: Path
) -> None:
    assert packer(*PACK, 8, source) == 0
    before = listing("/out")
    assert packer(*PACK, 8, source, "--overwrite") == 0
    assert listing("/out") == before
    assert store.exists("/out")


@pytest.mark.parametrize("foreign", ["notes.txt", "data/notes.txt", ".tmp/x", "data/sub/x.parquet"])
@pytest.mark.parametrize("finished", [True, False])
def test_what_is_not_ours_is_never_removed(
    store: MemoryFileSystem, packer: Packer, listing: Listing, source: Path, foreign: str, finished: bool
) -> None:
    if finished:
        assert packer(*PACK, 8, source) == 0
    store.pipe_file(f"/out/{foreign}", b"precious")
    before = listing("/out")
    assert packer(*PACK, 16, source, "--overwrite") == 1
    assert listing("/out") == before


def test_a_manifest_that_is_not_ours(
    store: MemoryFileSystem, packer: Packer, listing: Listing, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.pipe_file("/out/manifest.json", b'{"format": "somebody"}')
    store.pipe_file("/out/.tmp/written-by-packer", b"not ours either")
    before = listing("/out")
    assert packer(*PACK, 8, source, "--overwrite") == 1
    assert "manifest.json, which is not packer's" in capsys.readouterr().err
    assert listing("/out") == before


def test_a_mark_cannot_name_what_is_no_shard(
    store: MemoryFileSystem, packer: Packer, listing: Listing, source: Path
) -> None:
    store.pipe_file("/precious", b"precious")
    store.pipe_file("/out/x", b"precious")
    mark = {"format": "packer", "run": "1", "shards": ["../precious", "x", "data/../x"]}
    store.pipe_file(f"/out/{MARK}", json.dumps(mark).encode())
    before = listing("/out")
    assert packer(*PACK, 8, source, "--overwrite") == 1
    assert listing("/out") == before
    store.rm_file("/out/x")
    assert packer(*PACK, 8, source, "--overwrite") == 0
    assert store.cat_file("/precious") == b"precious"


class Ended(BaseException):
    """The end of a process: nothing of it is done after that."""


def ending(monkeypatch: pytest.MonkeyPatch, step: int, *, after: bool) -> None:
    """From the so-manyth change of the store on, each raises: before or after it was made."""
    made = [0]

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            made[0] += 1
            if made[0] > step or (made[0] == step and not after):
                raise Ended
            result = method(*arguments, **options)
            if made[0] == step:
                raise Ended
            return result

        return run

    for name in PUTS:
        monkeypatch.setattr(MemoryFileSystem, name, wrap(getattr(MemoryFileSystem, name)))


STEPS = [(step, after) for step in range(1, 14) for after in (False, True)]


@pytest.mark.parametrize(("step", "after"), STEPS)
def test_a_run_that_is_killed_leaves_a_whole_data_set_or_none(
    packer: Packer,
    listing: Listing,
    source: Path,
    tmp_path: Path,
    step: int,
    after: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First a run onto nothing, then one that replaces; each ends at the step, and a next one makes it good."""
    options = ["--rows-per-shard", "10", "--staging", tmp_path / "staging"]
    ended = []
    for length, before in ((8, None), (16, 8)):
        with monkeypatch.context() as patched:
            ending(patched, step, after=after)
            try:
                ended.append(packer(*PACK, length, source, *options, *(["--overwrite"] if before else [])) != 0)
            except Ended:
                ended.append(True)
        assert whole() in (before, length)
        if not ended[-1]:
            assert whole() == length
        assert packer(*PACK, length, source, *options, "--overwrite") == 0
        assert whole() == length
        verify(OUT, [str(source)])
        assert not [name for name in listing("/out") if name.startswith(".")]
    assert step > 8 or ended[1]
    assert list((tmp_path / "staging").glob("*")) == []


@pytest.mark.parametrize("step", range(1, 12))
def test_a_run_that_fails_leaves_what_was_there(
    packer: Packer,
    listing: Listing,
    source: Path,
    tmp_path: Path,
    step: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The store fails once, for good, at the step: what this run had put is gone again, or all is there."""
    for length, before in ((8, None), (16, 8)):
        found = listing("/out")
        failed = [0]

        def wrap(method: Callable[..., Any], failed: list[int]) -> Callable[..., Any]:
            def run(*arguments: Any, **options: Any) -> Any:
                failed[0] += 1
                if failed[0] == step:
                    raise PermissionError("Forbidden for AKIA")
                return method(*arguments, **options)

            return run

        with monkeypatch.context() as patched:
            for name in PUTS:
                patched.setattr(MemoryFileSystem, name, wrap(getattr(MemoryFileSystem, name), failed))
            code = packer(*PACK, length, source, "--rows-per-shard", "10", *(["--overwrite"] if before else []))
        message = capsys.readouterr().err
        assert code == (failed[0] >= step)
        if code:
            assert len(message.splitlines()) == 1
            assert "memory://out" in message
            assert "access is denied" in message
        if code and "complete" not in message:
            assert listing("/out") == found
        else:
            assert whole() == length
        assert packer(*PACK, length, source, "--rows-per-shard", "10", "--overwrite") == 0
        assert list((tmp_path / "temporary").iterdir()) == []


def test_a_failure_that_passes_is_tried_again(
    store: MemoryFileSystem, packer: Packer, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = dict.fromkeys(PUTS, 2)
    for name in PUTS:
        method = getattr(MemoryFileSystem, name)

        def run(*arguments: Any, method: Any = method, name: str = name, **options: Any) -> Any:
            failures[name] -= 1
            if failures[name] >= 0:
                raise ConnectionError("reset")
            return method(*arguments, **options)

        monkeypatch.setattr(MemoryFileSystem, name, run)
    assert packer(*PACK, 8, source) == 0
    verify(OUT, [str(source)])
    assert store.exists("/out/manifest.json")


def test_an_upload_that_arrives_changed(
    store: MemoryFileSystem, packer: Packer, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    put = MemoryFileSystem.put_file

    def cut(self: Any, lpath: str, rpath: str, **options: Any) -> None:
        put(self, lpath, rpath, **options)
        self.pipe_file(rpath, self.cat_file(rpath)[:-1])

    monkeypatch.setattr(MemoryFileSystem, "put_file", cut)
    assert packer(*PACK, 8, source) == 1
    assert "data/train-00000-of-00001.parquet cannot be written: " in (message := capsys.readouterr().err)
    assert "bytes arrived of" in message
    assert store.find("/out") == []


@pytest.mark.usefixtures("store")
def test_the_stores_checksum_is_compared(
    packer: Packer, source: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One that is not the MD5, as of encrypted objects, is no error: then the shard is read back."""
    info = MemoryFileSystem.info
    monkeypatch.setattr(MemoryFileSystem, "info", lambda *a, **k: {**info(*a, **k), "ETag": f'"{"0" * 32}"'})
    assert packer(*PACK, 8, source) == 0
    put = MemoryFileSystem.put_file

    def flip(self: Any, lpath: str, rpath: str, **options: Any) -> None:
        put(self, lpath, rpath, **options)
        content = bytearray(self.cat_file(rpath))
        content[50] ^= 1
        self.pipe_file(rpath, bytes(content))

    monkeypatch.setattr(MemoryFileSystem, "put_file", flip)
    assert packer(*PACK, 16, source, "--overwrite") == 1
    assert "its content arrived changed" in capsys.readouterr().err
    assert whole() == 8


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"ETag": '"0123456789abcdef0123456789ABCDEF"'}, "0123456789abcdef0123456789abcdef"),
        ({"ETag": '"0123456789abcdef0123456789abcdef-3"'}, None),
        ({"md5Hash": "ASNFZ4mrze8BI0VniavN7w=="}, "0123456789abcdef0123456789abcdef"),
        ({"content_settings": {"content_md5": bytearray(b"\x01\x23")}}, "0123"),
        ({"content_settings": {"content_md5": None}}, None),
        ({}, None),
    ],
)
def test_checksums_that_stores_state(info: dict[str, Any], expected: str | None) -> None:
    assert stated_md5(info) == expected


@pytest.mark.parametrize("moment", ["publish", "_check_ours"])
def test_two_runs_at_once(
    store: MemoryFileSystem, packer: Packer, source: Path, moment: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A second run is refused; one that takes OUT over makes the first one end without having published."""
    method = getattr(upload.RemoteOutput, moment)
    codes: list[int] = []

    def meanwhile(*arguments: Any) -> Any:
        if not codes:
            codes.append(-1)
            codes.append(packer(*PACK, 4, source))
            assert "the remains of an unfinished run, if it is not still being written" in capsys.readouterr().err
            codes.append(packer(*PACK, 16, source, "--overwrite"))
        return method(*arguments)

    monkeypatch.setattr(upload.RemoteOutput, moment, meanwhile)
    assert packer(*PACK, 8, source) == 1
    assert codes == [-1, 1, 0]
    assert "another run is writing there too; this one has published nothing" in capsys.readouterr().err
    assert whole() == 16
    assert store.exists("/out/manifest.json")


def test_options_that_make_no_sense(
    store: MemoryFileSystem, packer: Packer, source: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out"
    assert packer("pack", source, "--max-length", 8, "--out", out, "--staging", tmp_path / "s") == 2
    assert "is for an --out that is a URL" in capsys.readouterr().err
    assert packer("pack", source, "--max-length", 8, "--out", "https://u:secret@host/out") == 2
    assert "https://host/out: a web server cannot be written to" in (message := capsys.readouterr().err)
    assert "secret" not in message
    assert packer("pack", source, "--max-length", 8, "--out", "https://host/out?sig=secret") == 2
    assert "https://host/out: has parameters after a ?" in (message := capsys.readouterr().err)
    assert "secret" not in message
    assert packer("pack", source, "--max-length", 8, "--out", f"file://{out}", "--quiet") == 0
    assert packer("verify", f"local://{out}", f"file://{source}", "--quiet") == 0
    assert store.find("/") == []


def test_no_data_set(store: MemoryFileSystem, packer: Packer, capsys: Any) -> None:
    for command in ("verify", "inspect"):
        assert packer(command, "memory://nothing") == 1
        assert "memory://nothing is no packer data set" in capsys.readouterr().err
    assert store.find("/") == []
