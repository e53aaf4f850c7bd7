"""A run that ended early and was gone on with gives the bytes of one that was not; or it says why it cannot go on."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packer import attempts, engines, pipeline
from packer.cli import main
from packer.commit import Output
from packer.corpus import ReadOptions
from packer.errors import InputError, OutputError
from packer.finish import Output as Shards
from packer.job import Job
from packer.manifest import load
from packer.schema import Layout
from packer.verify import verify

FILES = 5
OPTIONS = ["--quiet", "--max-length", "16", "--partition-bytes", "2600", "--block-tokens", "150"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Files of one partition each."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for n in range(FILES):
        records = [{"input_ids": [100 * n + i % 50 + 1] * (i % 7 + 1)} for i in range(60)]
        (folder / f"{n}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def packer(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return int(ended.value.code or 0)


def pack(corpus: Path, out: Path, *options: object) -> int:
    return packer("pack", corpus, "--out", out, *OPTIONS, *options)


def fail(corpus: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: object) -> None:
    """A run that fails at a bad record in the last file, which is then put right."""
    last = corpus / f"{FILES - 1}.jsonl"
    whole, stamps = last.read_bytes(), last.stat()
    last.write_bytes(whole + b"nonsense\n")
    assert pack(corpus, out, *options) == 1
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert f"{FILES - 1}.jsonl, line 61" in error
    assert error.rstrip().endswith(f"{FILES - 1} of {FILES} partitions are kept: --resume goes on from there")
    last.write_bytes(whole)
    os.utime(last, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))


def hashes(out: Path) -> dict[str, str]:
    """Of every file; nothing hidden may be there."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*")
        if path.is_file()
    }


def kept(out: Path) -> list[str]:
    return sorted(path.name for path in (out / ".tmp").glob("part-*"))


@pytest.mark.parametrize("options", [[], ["--strategy", "wrapped"], ["--order", "plan", "--seed", "3"]], ids=" ".join)
def test_the_same_bytes_as_undisturbed(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert pack(corpus, tmp_path / "whole", *options) == 0
    out = tmp_path / "out"
    fail(corpus, out, capsys, *options)
    assert len(kept(out)) == FILES - 1
    assert pack(corpus, out, *options, "--resume") == 0
    assert hashes(out) == hashes(tmp_path / "whole")
    assert verify(out, [str(corpus)])


def test_with_a_limit(tmp_path: Path, corpus: Path) -> None:
    """Each partition gets what those before it have left, done now or before."""
    assert pack(corpus, tmp_path / "whole", "--limit", 295) == 0
    stopped_at(3, corpus, tmp_path / "out", "--limit", 295)
    assert len(kept(tmp_path / "out")) == 3
    assert pack(corpus, tmp_path / "out", "--limit", 295, "--resume") == 0
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


def test_with_workers(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pack(corpus, tmp_path / "whole") == 0
    last = corpus / f"{FILES - 1}.jsonl"
    whole, stamps = last.read_bytes(), last.stat()
    last.write_bytes(whole + b"nonsense\n")
    assert pack(corpus, tmp_path / "out", "--workers", 2) == 1
    assert f"{FILES - 1}.jsonl, line 61" in capsys.readouterr().err
    last.write_bytes(whole)
    os.utime(last, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert pack(corpus, tmp_path / "out", "--workers", 2, "--resume") == 0
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


def stopped_at(partition: int, corpus: Path, out: Path, *options: object) -> None:
    """A run that fails at a file that has vanished."""
    path = corpus / f"{partition}.jsonl"
    code = (
        "import sys; from pathlib import Path; from packer import running; from packer.cli import main\n"
        "whole = running.stage_all\n"
        "def stage_all(*arguments):\n    Path(sys.argv.pop(1)).rename(sys.argv.pop(1)); return whole(*arguments)\n"
        "running.stage_all = stage_all; main(sys.argv[3:])"
    )
    aside = path.with_name(".aside")
    arguments = ["pack", corpus, "--out", out, *OPTIONS, *options]
    command = [sys.executable, "-c", code, path, aside, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    aside.rename(path)
    assert done.returncode == 1, done.stderr
    assert f"{path}: cannot be read: No such file or directory; {partition} of" in done.stderr


def test_only_what_is_missing_is_done(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    fail(corpus, out, capsys)
    assert pack(corpus, out, "--resume", "--report", report) == 0
    facts = json.loads(report.read_text())
    assert (facts["partitions"], facts["resumed"]) == (FILES, FILES - 1)


CHANGED = [
    (["--max-length", "32"], "--max-length was 16, is 32"),
    (["--seed", "1"], "--seed was 0, is 1"),
    (["--strategy", "ffd"], "--strategy was bfd, is ffd"),
    (["--overlong", "drop"], "--overlong was not set, is drop"),
    (["--block-tokens", "151"], "--block-tokens was 150, is 151"),
    (["--on-error", "skip"], "--on-error was fail, is skip"),
    (["--partition-bytes", "2601"], "--partition-bytes was 2600, is 2601"),
]


@pytest.mark.parametrize(("options", "words"), CHANGED, ids=[words for _, words in CHANGED])
def test_other_settings_are_refused(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    out = tmp_path / "out"
    fail(corpus, out, capsys)
    before = kept(out)
    assert pack(corpus, out, "--resume", *options) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert kept(out) == before
    assert pack(corpus, out, "--resume") == 0


def test_other_output_options_are_not(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is staged does not depend on how it is written at the end."""
    out, options = tmp_path / "out", ["--format", "arrow", "--labels", "shifted", "--rows-per-shard", "20"]
    fail(corpus, out, capsys)
    assert pack(corpus, out, "--resume", *options) == 0
    assert pack(corpus, tmp_path / "whole", *options) == 0
    assert hashes(out) == hashes(tmp_path / "whole")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"input_ids": [7]}\n')


def same_size(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))


CHANGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("grown", append, "1.jsonl changed"),
    ("same size", same_size, "1.jsonl changed"),
    ("gone", Path.unlink, "corpus/1.jsonl where it has"),
]


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES])
def test_changed_inputs_are_refused(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object], words: str
) -> None:
    out = tmp_path / "out"
    fail(corpus, out, capsys)
    change(corpus / "1.jsonl")
    assert pack(corpus, out, "--resume") == 1
    assert words in capsys.readouterr().err
    assert len(kept(out)) == FILES - 1


def test_the_same_size_and_time_is_not_the_same_file(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, path = tmp_path / "out", corpus / "1.jsonl"
    fail(corpus, out, capsys)
    stamps = path.stat()
    same_size(path)
    os.utime(path, ns=(stamps.st_atime_ns, stamps.st_mtime_ns))
    assert pack(corpus, out, "--resume") == 1
    assert "1.jsonl changed" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tokens.bin", "segments.bin", "rows.bin"])
@pytest.mark.parametrize("damage", ["a bit", "cut", "gone"])
def test_damaged_staging_is_done_again(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], name: str, damage: str
) -> None:
    """A disk that lost power may have a file's size right and its content not."""
    out = tmp_path / "out"
    fail(corpus, out, capsys)
    path = next((out / ".tmp" / "part-00002").glob(f"*/{name}"))
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:] if damage == "a bit" else data[:-4])
    if damage == "gone":
        path.unlink()
    assert pack(corpus, out, "--resume") == 0
    assert pack(corpus, tmp_path / "whole") == 0
    assert hashes(out) == hashes(tmp_path / "whole")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"settings": {}, "inputs": [], "report": 3}'])
def test_a_report_that_cannot_be_read_is_none(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    out = tmp_path / "out"
    fail(corpus, out, capsys)
    (out / ".tmp" / "part-00001" / "report.json").write_bytes(content)
    assert pack(corpus, out, "--resume") == 0
    assert pack(corpus, tmp_path / "whole") == 0
    assert hashes(out) == hashes(tmp_path / "whole")


def test_a_partition_without_its_name_is_nothing(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fail(corpus, out, capsys)
    part = out / ".tmp" / "part-00001"
    part.rename(part.with_name("part-00001-0123456789abcdef"))
    assert pack(corpus, out, "--resume") == 0
    assert not (out / ".tmp").exists()


def test_without_remains_it_simply_runs(tmp_path: Path, corpus: Path) -> None:
    assert pack(corpus, tmp_path / "out", "--resume") == 0


def test_a_pipe_cannot_be_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"input_ids": [1]}\n')))
    assert packer("pack", "-", "--out", tmp_path / "out", *OPTIONS, "--resume") == 2
    assert "a pipe cannot be read again" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert packer("pack", "-", "--out", tmp_path / "out", *OPTIONS, "--workers", 2) == 0  # in this process


def test_remains_are_refused_with_both_ways_out(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fail(corpus, out, capsys)
    assert pack(corpus, out) == 1
    assert "--resume goes on from there, --overwrite replaces it" in capsys.readouterr().err
    assert pack(corpus, out, "--overwrite", "--seed", 4) == 0
    assert load(out).seed == 4


def test_a_finished_set_needs_overwrite_too(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert pack(corpus, out, "--seed", 4) == 0
    old = hashes(out)
    fail(corpus, out, capsys, "--overwrite")
    assert {name: digest for name, digest in hashes(out).items() if not name.startswith(".tmp")} == old
    assert verify(out, [str(corpus)])
    assert pack(corpus, out, "--resume") == 1
    assert "--overwrite" in capsys.readouterr().err
    assert pack(corpus, out, "--resume", "--overwrite") == 0
    assert load(out).seed == 0


def test_the_engine_of_what_is_kept_goes_on(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: Path
) -> None:
    """What is kept was done by the reference, for the fast engine had failed: it is not tried again."""
    for n, path in enumerate(sorted(corpus.iterdir())):
        path.write_text("".join(json.dumps({"text": f"a b c {'d ' * ((n + i) % 9)}"}) + "\n" for i in range(60)))
    out, tokenizer = tmp_path / "out", ["--tokenizer", str(words)]
    assert pack(corpus, tmp_path / "whole", *tokenizer) == 0
    fail(corpus, out, capsys, *tokenizer)
    fast = engines.Choice("fast", "fastokens 9.9")
    monkeypatch.setattr(attempts, "choose", lambda options, *_: (options, fast))
    assert pack(corpus, out, "--resume", *tokenizer) == 0
    assert hashes(out) == hashes(tmp_path / "whole")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<unk>", *"abcd"])}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


# --- two writers, inputs that change, files that are not ours --------------------------------------------------------


def test_a_second_writer_is_refused(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = Output(tmp_path / "out")
    first.open()
    for options in ([], ["--overwrite"], ["--resume"]):
        assert pack(corpus, tmp_path / "out", *options) == 1
        assert "another run is writing there" in capsys.readouterr().err
    first.abandon()
    assert pack(corpus, tmp_path / "out") == 0


def test_the_lock_is_of_the_process_alone(tmp_path: Path, corpus: Path) -> None:
    """A killed run leaves its mark, and no lock."""
    code = "import os, sys; from pathlib import Path; from packer.commit import Output\n"
    code += "Output(Path(sys.argv[1])).open(); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")]).returncode == 9
    mark = tmp_path / "out" / ".tmp" / "written-by-packer"
    with open(mark) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert pack(corpus, tmp_path / "out") == 0


JOB = Job(ReadOptions(partition_bytes=2600), None, "bfd", 16, None, 0, None, 0, "shuffle", 150)
LAYOUT = Layout(labels="aligned", boundaries="document", positions="segment", columns="full")
SHARDS = Shards("train", "parquet", "zstd", None)


def during(corpus: Path, out: Path, action: Callable[[], object], **options: Any) -> None:
    """Packs, with something that happens when the first batch has been read."""
    actions = [action]

    def progress(*_: int) -> None:
        if actions:
            actions.pop()()

    pipeline.pack([str(corpus)], out, JOB, LAYOUT, SHARDS, progress=progress, **options)


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("change", [append, same_size, Path.unlink], ids=["grown", "same size", "gone"])
def test_an_input_that_changes_during_the_run(
    tmp_path: Path, corpus: Path, number: int, change: Callable[[Path], object]
) -> None:
    out, path = tmp_path / "out", corpus / f"{number}.jsonl"
    words = "cannot be read: No such file" if change is Path.unlink else "changed while it was being packed"
    with pytest.raises(InputError, match=rf"{number}\.jsonl: {words}"):
        during(corpus, out, lambda: change(path))
    assert not (out / "manifest.json").exists()


def test_an_input_that_changes_after_its_partition(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = pipeline._finish
    monkeypatch.setattr(pipeline, "_finish", lambda *a: (append(corpus / "0.jsonl"), finish(*a))[1])
    with pytest.raises(InputError, match=r"0\.jsonl: changed"):
        pipeline.pack([str(corpus)], tmp_path / "out", JOB, LAYOUT, SHARDS)
    assert not (tmp_path / "out" / "manifest.json").exists()


FOREIGN = ["mine.txt", "data/mine.parquet", ".tmp/mine.txt", ".tmp/mine/deep.txt"]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("state", ["absent", "finished", "unfinished"])
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_no_file_that_is_not_ours_is_ever_deleted(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str], name: str, when: str, state: str, ends: str
) -> None:
    out = tmp_path / "out"
    if state == "finished":
        assert pack(corpus, out) == 0
    if state == "unfinished":
        fail(corpus, out, capsys)
    path = out / name

    def put() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        if ends == "badly":
            append(corpus / "4.jsonl")

    if when == "before":
        put()
        assert pack(corpus, out, "--overwrite") == 1
        assert "not packer's" in capsys.readouterr().err
    elif ends == "badly" or name.startswith("data"):
        with pytest.raises(InputError if ends == "badly" else OutputError):
            during(corpus, out, put, overwrite=True, resume=state == "unfinished")
    else:
        during(corpus, out, put, overwrite=True, resume=state == "unfinished")
        assert verify(out, [str(corpus)])
    assert path.read_text() == "mine"
