"""The same inputs, options and seed give the same bytes; another seed gives other rows."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from packer import manifest as manifests
from packer.cli import main
from packer.shards import read_shard

SAMPLES = Path(__file__).parents[1] / "sample_data"
SMALL = ["--max-length", "128", "--block-tokens", "4000", "--partition-bytes", "40000", "--rows-per-shard", "100"]
WAYS = {
    "bfd": [],
    "wrapped": ["--strategy", "wrapped"],
    "optimal": ["--strategy", "optimal", "--block-tokens", "20000"],
    "first-fit compact": ["--strategy", "first-fit", "--columns", "compact", "--labels", "shifted"],
    "arrow": ["--format", "arrow", "--strategy", "ffd"],
    "arrow-stream": ["--format", "arrow-stream", "--boundaries", "row"],
    "plan": ["--order", "plan"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Inputs under the same relative names for every run: these stand in the manifest."""
    for name in ("articles.jsonl", "token_ids.jsonl", "notes.txt"):
        shutil.copy(SAMPLES / name, tmp_path / name)
    shutil.copytree(SAMPLES / "tokenizer", tmp_path / "tokenizer")
    monkeypatch.chdir(tmp_path)
    return tmp_path


TEXTS = ["articles.jsonl", "notes.txt", "--split-text", "line", "--tokenizer", "tokenizer"]
IDS = ["token_ids.jsonl"]


def pack(out: str, *arguments: str) -> Path:
    with pytest.raises(SystemExit) as ended:
        main(["pack", "--quiet", "--out", out, *SMALL, *arguments])
    assert ended.value.code == 0
    return Path(out)


def hashes(out: Path) -> dict[str, str]:
    """sha256 of every file by its relative path."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in out.rglob("*")
        if path.is_file()
    }


def rows(out: Path) -> list[str]:
    """Every row in order, all its columns, as something to compare and count."""
    facts = manifests.load(out)
    return [
        json.dumps(row)
        for shard in facts.shards
        for batch in read_shard(out / shard.path, facts.file_format)
        for row in batch.to_pylist()
    ]


def run_elsewhere(folder: Path, out: str, *arguments: str, **environment: str) -> Path:
    """The same in a process of its own, with another environment."""
    command = [sys.executable, "-m", "packer", "pack", "--quiet", "--out", out, *SMALL, *arguments]
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, timeout=60)
    return folder / out


@pytest.mark.parametrize("way", WAYS)
def test_same_bytes_again(folder: Path, way: str) -> None:
    first = hashes(pack("one", *IDS, *WAYS[way]))
    assert hashes(pack("two", *IDS, *WAYS[way])) == first
    assert "manifest.json" in first
    listed = {shard.path: shard.sha256 for shard in manifests.load(folder / "one").shards}
    assert {name: value for name, value in first.items() if name != "manifest.json"} == listed


def test_same_bytes_in_any_environment(folder: Path) -> None:
    """Threads, hash seed, time zone and language of the process; text of two inputs in several partitions."""
    first = hashes(pack("out", *TEXTS))
    assert len(first) > 2
    for i, environment in enumerate(
        [
            {"RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"},
            {"RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "2", "TZ": "America/Lima", "LC_ALL": "C", "PYTHONUTF8": "0"},
            {"TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "random", "OMP_NUM_THREADS": "1"},
        ]
    ):
        assert hashes(run_elsewhere(folder, f"other{i}", *TEXTS, **environment)) == first


def test_same_bytes_from_another_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same relative INPUT in a copy elsewhere, and absolute INPUT from any current folder."""
    relative = hashes(pack("out", *IDS))
    copy = folder / "elsewhere" / "deeper"
    copy.mkdir(parents=True)
    shutil.copy("token_ids.jsonl", copy)
    absolute = str(folder / "token_ids.jsonl")
    first = hashes(pack("absolute", absolute))
    monkeypatch.chdir(copy)
    assert hashes(pack("out", *IDS)) == relative
    assert hashes(pack("absolute", absolute)) == first
    assert first.keys() == relative.keys()
    assert {k: v for k, v in first.items() if k != "manifest.json"} == {
        k: v for k, v in relative.items() if k != "manifest.json"
    }, "the name of an INPUT stands in the manifest only"


def test_time_does_not_show(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hashes(pack("one", *IDS))
    os.utime(folder / "token_ids.jsonl", (1e9, 1e9))
    for clock in ("time", "time_ns", "monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{clock}", lambda: 4_102_444_800)
    monkeypatch.setattr("packer.pipeline.perf_counter", lambda: 4_102_444_800.0)
    assert hashes(pack("two", *IDS)) == first


@pytest.mark.usefixtures("folder")
def test_leftovers_and_an_older_set_do_not_show() -> None:
    first = hashes(pack("one", *IDS))
    pack("two", *IDS, "--seed", "5", "--format", "arrow")
    assert hashes(pack("two", *IDS, "--overwrite")) == first


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("way", ["bfd", "wrapped", "first-fit compact"])
def test_another_seed_gives_other_rows_at_the_same_count(way: str) -> None:
    zero, one, again = (pack(name, *IDS, *WAYS[way], "--seed", seed) for name, seed in ("a0", "b1", "c0"))
    assert hashes(zero) == hashes(again)
    assert rows(zero) != rows(one)
    assert len(rows(zero)) == len(rows(one))
    tokens = [manifests.load(out).totals for out in (zero, one)]
    assert tokens[0].placed_tokens == tokens[1].placed_tokens
    if way == "bfd":  # ties between documents of one length are settled otherwise, not only the order of rows
        assert Counter(rows(zero)) != Counter(rows(one))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("way", ["bfd", "wrapped", "first-fit compact", "arrow"])
def test_order_is_only_an_order(way: str) -> None:
    shuffled, planned = (pack(order, *IDS, *WAYS[way], "--order", order) for order in ("shuffle", "plan"))
    assert rows(shuffled) != rows(planned)
    assert Counter(rows(shuffled)) == Counter(rows(planned))


@pytest.mark.usefixtures("folder")
def test_layout_and_format_do_not_change_what_is_in_a_row() -> None:
    def tokens(out: Path) -> list[tuple[list[int], list[int]]]:
        return [(row["input_ids"], row["doc_ids"]) for row in map(json.loads, rows(out))]

    first = tokens(pack("first", *IDS))
    for i, options in enumerate([["--format", "arrow"], ["--columns", "compact"], ["--labels", "shifted"]]):
        assert tokens(pack(f"other{i}", *IDS, *options)) == first
    assert sorted(tokens(pack("small", *IDS, "--rows-per-shard", "7"))) == sorted(first)
