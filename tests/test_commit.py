"""OUT is a finished data set or what it was before; nothing foreign in it is ever deleted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.cli import main
from packer.verify import verify

Listing = dict[str, bytes | None]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"input_ids": [n + 1] * (n % 7 + 1)}) + "\n" for n in range(40)))
    return path


@pytest.fixture
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What keeps a process busy for seconds: many tiny blocks to stage."""
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    path.write_text('{"input_ids": [1, 2, 3]}\n' * 40_000)
    return path


SLOW = ["--max-length", "8", "--block-tokens", "3"]


def packer(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return int(ended.value.code or 0)


def pack(out: Path, *arguments: object) -> int:
    return packer("pack", "--quiet", "--max-length", 8, "--out", out, *arguments)


def listing(folder: Path) -> Listing:
    """Every path below a folder, with the bytes of files."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def shown(folder: Path) -> Listing:
    """The files of the listing that are not hidden."""
    found = {name: content for name, content in listing(folder).items() if content is not None}
    return {name: content for name, content in found.items() if ".tmp" not in Path(name).parts}


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    return lines[0]


def refused(out: Path, source: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Packing into OUT is refused with one line, and changes nothing around it."""
    before = listing(out.parent)
    assert pack(out, source, *options) == 1
    assert listing(out.parent) == before
    return error_line(capsys)


def start(out: Path, source: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "packer", "pack", str(source), "--out", str(out), *SLOW, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def when(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Waits for it while the process runs."""
    deadline = time.monotonic() + 20
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def staged(out: Path, blocks: int = 20) -> Callable[[], bool]:
    return lambda: len(list((out / ".tmp").glob("part-*/*"))) >= blocks


# --- what becomes a data set -----------------------------------------------------------------------------------------


def test_new_folder_with_its_parents(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "a" / "b" / "out"
    assert pack(out, source, "--rows-per-shard", 5) == 0
    assert verify(out, [str(source)])
    assert sorted(path.name for path in out.iterdir()) == ["data", "manifest.json"]
    shards = [shard.path for shard in verify(out).manifest.shards]
    assert sorted(str(path.relative_to(out)) for path in (out / "data").iterdir()) == shards
    assert len(shards) > 1


def test_empty_folder(tmp_path: Path, source: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert pack(out, source) == 0
    assert sorted(path.name for path in out.iterdir()) == ["data", "manifest.json"]
    assert verify(out)


def test_finished_set_is_replaced_only_when_asked(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert pack(out, source, "--rows-per-shard", 3) == 0
    assert "--overwrite" in refused(out, source, capsys)
    old = listing(out)
    assert pack(out, source, "--overwrite", "--format", "arrow") == 0
    assert sorted(listing(out)) == ["data", "data/train-00000-of-00001.arrow", "manifest.json"]
    assert verify(out, [str(source)])
    assert pack(out, source, "--overwrite", "--rows-per-shard", 3) == 0
    assert listing(out) == old


# --- what is not ours ------------------------------------------------------------------------------------------------


def mark(out: Path) -> None:
    (out / ".tmp").mkdir()
    (out / ".tmp" / "written-by-packer").touch()


FOREIGN = [
    "notes.txt",
    ".hidden",
    "folder/notes.txt",
    "data/notes.txt",
    "data/.hidden",
    "data/deeper/train-00000-of-00001.parquet",
    "data/train-00000-of-00001.parquet.bak",
    "data/x.parquet",
    ".tmp/notes.txt",
    "data",
    ".tmp",
]


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("options", [[], ["--overwrite"]], ids=["", "overwrite"])
@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_file(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], name: str, options: list[str], finished: bool
) -> None:
    out = tmp_path / "out"
    if finished and name != "data":
        assert pack(out, source) == 0
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("mine")
    assert name.split("/")[0] in refused(out, source, capsys, *options)


@pytest.mark.parametrize(
    "content", ['{"format": "webdataset"}', "{", '{"format": "packer", "format_version": 99}', "[]"]
)
@pytest.mark.parametrize("data", [False, True])
def test_manifest_of_another_tool(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], content: str, data: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "manifest.json").write_text(content)
    if data:
        (out / "data").mkdir()
        (out / "data" / "train-00000-of-00001.parquet").write_text("mine")
    assert "manifest.json" in refused(out, source, capsys, "--overwrite")


def write_foreign_shard(path: Path) -> None:
    """As the hub's data sets name theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": ["mine"]}), path)


def test_data_set_of_another_tool(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shards whose names are like ours, but no manifest and no mark of a run."""
    out = tmp_path / "out"
    write_foreign_shard(out / "data" / "train-00000-of-00001.parquet")
    refused(out, source, capsys, "--overwrite")


def test_shard_of_another_tool_beside_ours(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that the manifest does not list."""
    out = tmp_path / "out"
    assert pack(out, source) == 0
    write_foreign_shard(out / "data" / "test-00000-of-00001.parquet")
    refused(out, source, capsys, "--overwrite")


def test_out_is_a_file(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    assert "not a folder" in refused(out, source, capsys, "--overwrite")


def test_out_below_a_file(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    before = listing(tmp_path)
    assert pack(tmp_path / "file" / "out", source) == 1
    assert listing(tmp_path) == before
    assert "file" in error_line(capsys)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_parent_that_is_read_only(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    parent.chmod(0o500)
    try:
        assert not os.access(parent, os.W_OK)
        assert pack(parent / "out", source) == 1
        assert list(parent.iterdir()) == []
        assert str(parent) in error_line(capsys)
    finally:
        parent.chmod(0o700)


# --- OUT and INPUT ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--overwrite"]], ids=["", "overwrite"])
def test_out_that_is_or_contains_an_input(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    inside = folder / "docs.jsonl"
    inside.write_bytes(source.read_bytes())
    link = tmp_path / "link"
    link.symlink_to(folder)
    before = listing(tmp_path)
    for out, given in ((inside, inside), (folder, inside), (folder, folder), (link, folder), (tmp_path, inside)):
        assert pack(out, source, given, *options) in (1, 2), out
        assert "this INPUT" in error_line(capsys)
        assert listing(tmp_path) == before


def test_out_inside_an_input_folder(tmp_path: Path, source: Path) -> None:
    """It is no part of the INPUT, also when it is there already."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "docs.jsonl").write_bytes(source.read_bytes())
    out = folder / "packed"
    assert pack(out, folder) == 0
    first = listing(out)
    assert pack(out, folder, "--overwrite") == 0
    assert listing(out) == first
    assert [file.documents for file in verify(out, [str(folder)]).manifest.inputs] == [40]


# --- runs that fail --------------------------------------------------------------------------------------------------


@pytest.fixture
def bad(source: Path) -> Path:
    """The last record is bad."""
    path = source.with_name("bad.jsonl")
    path.write_bytes(source.read_bytes() * 50 + b'{"input_ids": [1, "x"]}\n')
    return path


@pytest.mark.parametrize("state", ["absent", "absent parents", "empty", "finished"])
def test_failed_run_leaves_out_as_it_was(
    tmp_path: Path, source: Path, bad: Path, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    out = tmp_path / "a" / "b" / "out" if state == "absent parents" else tmp_path / "out"
    if state == "empty":
        out.mkdir()
    elif state == "finished":
        assert pack(out, source, "--rows-per-shard", 5) == 0
    before = listing(tmp_path)
    assert pack(out, bad, "--overwrite", "--block-tokens", 100) == 1
    assert "bad.jsonl, line 2001" in error_line(capsys)
    assert listing(tmp_path) == before
    assert state != "finished" or verify(out, [str(source)])


def test_nothing_to_pack_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"input_ids": []}\n')
    assert pack(tmp_path / "out", empty) == 1
    assert "nothing to pack" in error_line(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.jsonl"]


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from packer.cli import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("file_format", "limit", "fails_in"),
    [("parquet", 20_000, "staging"), ("arrow", 60_000, "shard"), ("arrow-stream", 60_000, "shard")],
)
@pytest.mark.parametrize("state", ["absent", "finished"])
def test_file_that_cannot_be_written(
    tmp_path: Path, source: Path, state: str, file_format: str, limit: int, fails_in: str
) -> None:
    """A limit on the size of files stands for a full disk. Blocks are staged in smaller files than the shard's."""
    many = tmp_path / "many.jsonl"
    many.write_bytes(source.read_bytes() * 50)
    out = tmp_path / "out"
    if state == "finished":
        assert pack(out, source) == 0
    before = shown(tmp_path)
    block = [] if fails_in == "staging" else ["--block-tokens", "2000"]
    arguments = ["pack", many, "--out", out, "--max-length", 8, "--format", file_format, "--overwrite", *block]
    command = [sys.executable, "-c", LIMITED, str(limit), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "File too large" in done.stderr
    assert "unexpected" not in done.stderr
    assert done.stdout == ""
    assert f"--out {out}: there is no room left" in done.stderr
    assert shown(tmp_path) == before
    assert state == "absent" or verify(out, [str(source)])
    assert ("1 of 1 partitions is kept: --resume goes on" in done.stderr) == (fails_in == "shard")
    assert packer(*arguments, "--resume") == 0
    assert verify(out, [str(many)])
    assert not (out / ".tmp").exists()


# --- runs that are killed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["absent", "finished"])
def test_killed_run(tmp_path: Path, source: Path, large: Path, capsys: pytest.CaptureFixture[str], state: str) -> None:
    """Its remains are refused, and with --overwrite replaced. A set that stood there is still whole."""
    out = tmp_path / "out"
    if state == "finished":
        assert pack(out, source) == 0
    before = listing(out)
    process = start(out, large, "--overwrite")
    when(process, staged(out))
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    remains = listing(out)
    assert (out / ".tmp").is_dir()
    assert {name: content for name, content in remains.items() if not name.startswith(".tmp")} == before
    if state == "finished":
        assert verify(out, [str(source)])
    else:
        assert packer("verify", out) == 1
        assert "no manifest.json" in error_line(capsys)
    assert "--overwrite" in refused(out, source, capsys)
    assert pack(out, source, "--overwrite") == 0
    assert sorted(path.name for path in out.iterdir()) == ["data", "manifest.json"]
    assert verify(out, [str(source)])


@pytest.mark.parametrize("at", ["manifest.json gone", "data renamed"])
def test_killed_while_it_replaced(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str], at: str) -> None:
    """The states between: no manifest, so no data set, and --overwrite goes on from there."""
    out = tmp_path / "out"
    assert pack(out, source) == 0
    mark(out)
    (out / "manifest.json").rename(out / ".tmp" / "manifest.json")
    if at == "data renamed":
        (out / "data").rename(out / ".tmp" / "replaced")
    assert packer("verify", out) == 1
    assert "no manifest.json" in error_line(capsys)
    assert "unfinished" in refused(out, source, capsys)
    assert pack(out, source, "--overwrite") == 0
    assert verify(out, [str(source)])
    assert not (out / ".tmp").exists()


@pytest.mark.parametrize("state", ["absent", "finished"])
@pytest.mark.parametrize("blocks", [pytest.param(1, marks=pytest.mark.slow), 60])
def test_interrupted_run(tmp_path: Path, source: Path, large: Path, state: str, blocks: int) -> None:
    out = tmp_path / "out"
    if state == "finished":
        assert pack(out, source) == 0
    before = listing(tmp_path)
    process = start(out, large, "--overwrite")
    when(process, staged(out, blocks))
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert printed == ""
    assert errors.strip() == "packer: interrupted"
    assert time.monotonic() - began < 10
    assert listing(tmp_path) == before
    assert state == "absent" or verify(out, [str(source)])


@pytest.mark.parametrize("delay", [0.0, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.01, 0.02, 0.04, 0.08))])
def test_interrupted_while_it_writes_shards(tmp_path: Path, delay: float) -> None:
    """A thread may be in the middle of a row group. After the longer delays a fast machine may be done."""
    source = tmp_path / "docs.jsonl"
    source.write_text(json.dumps({"input_ids": list(range(50))}) + "\n")
    source.write_bytes(source.read_bytes() * 150_000)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "packer", "pack", str(source), "--out", str(out), "--max-length", "128"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    when(process, lambda: any((out / ".tmp" / "data").glob("*")))
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=20)
    if delay and (out / "manifest.json").exists():
        assert verify(out)
        assert not (out / ".tmp").exists()
        return
    assert (process.returncode, printed) == (130, "")
    assert errors.strip() == "packer: interrupted; 1 of 1 partitions is kept: --resume goes on from there"
    assert sorted(shown(tmp_path)) == ["docs.jsonl"]
    assert sorted(path.name for path in (out / ".tmp").iterdir()) == ["part-00000", "written-by-packer"]


class Stopped(BaseException):
    """An interrupt at a chosen moment."""


@pytest.mark.parametrize("state", ["absent", "empty", "finished"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(5))
def test_stopped_at_every_step_of_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, done: bool, step: int
) -> None:
    """Whatever the moment, what is at OUT afterwards is what was there, or the whole new data set."""
    old, new, out = tmp_path / "old.jsonl", tmp_path / "new.jsonl", tmp_path / "out"
    old.write_text('{"input_ids": [1, 2, 3]}\n')
    new.write_text('{"input_ids": [4, 5]}\n')
    if state == "empty":
        out.mkdir()
    if state == "finished":
        assert pack(out, old) == 0
    before = shown(tmp_path)
    rename, calls = Path.rename, iter(range(100))

    def stopping(path: Path, target: Path) -> Path:
        if out not in path.parents or path.parent.name.startswith("part-") or path.name.startswith("part-"):
            return rename(path, target)  # of the partitions, long before
        last = next(calls) == step
        if last and not done:
            raise Stopped
        result = rename(path, target)
        if last:
            raise Stopped
        return result

    monkeypatch.setattr(Path, "rename", stopping)
    try:
        pack(out, new, "--overwrite")
        finished = True
    except Stopped:
        finished = False
    monkeypatch.undo()
    if finished or ((out / "manifest.json").exists() and shown(tmp_path) != before):
        assert verify(out, [str(new)]).tokens_compared == 2
        assert sorted(path.name for path in out.iterdir()) == ["data", "manifest.json"]
    else:
        assert shown(tmp_path) == before
        assert pack(out, new, "--overwrite", "--resume") == 0
        assert verify(out, [str(new)]).tokens_compared == 2


def test_killed_while_publishing_then_a_run_that_fails(tmp_path: Path) -> None:
    """No one could clean up after the first; the second must not take the old data set with it."""
    old, bad, out = tmp_path / "old.jsonl", tmp_path / "bad.jsonl", tmp_path / "out"
    old.write_text('{"input_ids": [1, 2, 3]}\n')
    bad.write_text('{"input_ids": [4, 5]}\nnonsense\n')
    assert pack(out, old) == 0
    before = listing(tmp_path)
    hidden = out / ".tmp"
    (hidden / "data").mkdir(parents=True)
    (hidden / "written-by-packer").touch()
    (hidden / "manifest.json").write_bytes((out / "manifest.json").read_bytes())
    (out / "manifest.json").rename(hidden / "replaced.json")
    (out / "data").rename(hidden / "replaced")
    assert pack(out, bad, "--overwrite") == 1
    assert listing(tmp_path) == before
    assert verify(out, [str(old)]).tokens_compared == 3
