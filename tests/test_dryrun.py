"""`--dry-run`: figures from a sample that hold for the whole, and nothing written."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer import manifest as manifests
from packer.cli import main
from packer.corpus.sources import Source
from packer.corpus.streams import stored_per_byte
from packer.dryrun import Figure, sample
from packer.dryrun.table import size

TOKENIZER = Path(__file__).parents[1] / "sample_data" / "tokenizer"
WORDS = ["alpha", "beta", "gamma", "delta", "the", "of", "to", "and"]


def packer(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(1, 120))) for _ in range(4000)]


def write(path: Path, texts: list[str]) -> Path:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=500)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, pa.schema([("text", pa.string())])) as writer:
            writer.write_table(pa.table({"text": texts}), max_chunksize=500)
    elif path.suffix == ".csv":
        path.write_text("text\n" + "".join(f"{text}\n" for text in texts))
    elif path.suffix == ".json":
        path.write_text(json.dumps([{"text": text} for text in texts]))
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


def estimated(tmp_path: Path, *arguments: object, command: str = "pack") -> dict[str, Any]:
    out, report = tmp_path / "out", tmp_path / "report.json"
    assert packer(command, *arguments, "--out", out, "--dry-run", "--report", report) == 0
    assert not out.exists()
    return dict(json.loads(report.read_bytes()))


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz", "in.parquet", "in.arrow", "in.csv", "in.json"])
def test_estimates_hold_for_the_whole(
    texts: list[str], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "HEAD_BYTES", 8 << 10)
    monkeypatch.setattr(sample, "COLUMN_BYTES", 8 << 10)
    monkeypatch.setattr(sample, "SECONDS", 60)
    source = write(tmp_path / name, texts)
    options = ["--tokenizer", TOKENIZER, "--max-length", 512]
    found = estimated(tmp_path, source, *options)
    assert packer("pack", source, "--quiet", "--out", tmp_path / "real", *options) == 0
    facts = manifests.load(tmp_path / "real")
    assert 0 < found["sampled_documents"] <= (4000 if name.endswith(("parquet", "arrow", "json")) else 2000)
    assert found["partitions"] == 1
    for key, real in (("documents", 4000), ("tokens", facts.totals.tokens), ("rows", facts.totals.rows)):
        assert abs(found[key]["value"] - real) <= max(0.1 * real, found[key]["error"]), key
    data = sum(shard.bytes for shard in facts.shards)
    assert 0.5 < found["data_bytes"]["value"] / data < 2
    assert found["seconds"]["value"] >= 0


def test_what_was_read_whole_is_exact(texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", texts[:50])
    found = estimated(tmp_path, source, "--tokenizer", TOKENIZER, "--max-length", 64)
    assert found["documents"] == {"value": 50, "error": 0}
    assert found["tokens"] == {"value": found["sampled_tokens"], "error": 0}
    shown = capsys.readouterr().out
    assert "documents    50\n" in shown
    assert "a dry run: nothing was written" in shown


def test_rows_are_those_of_one_packing(texts: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", texts[:200])
    options = [source, "--tokenizer", TOKENIZER, "--max-length", 256]
    once, thrice = (estimated(tmp_path, *options, "--epochs", epochs) for epochs in (1, 3))
    assert thrice["rows"] == once["rows"]
    assert thrice["data_bytes"]["value"] > 2 * once["data_bytes"]["value"]


def test_rows_of_groups_are_said_to_be_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"input_ids": [1, 2, 3], "topic": i}) + "\n" for i in range(40)))
    found = estimated(tmp_path, source, "--max-length", 60, "--group-field", "topic")  # each fills a row of its own
    assert found["rows"]["value"] == 2
    assert found["grouped"]
    assert "rows         2, and more: groups are not counted\n" in capsys.readouterr().out


def test_a_packer_data_set_and_windows(texts: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", texts[:200])
    assert packer("pack", source, "--quiet", "--tokenizer", TOKENIZER, "--max-length", 64, "--out", tmp_path / "a") == 0
    facts = manifests.load(tmp_path / "a")
    found = estimated(tmp_path, tmp_path / "a", "--context-size", 32, "--stride", 16, command="window")
    assert found["documents"] == {"value": facts.totals.documents, "error": 0}
    assert found["tokens"] == {"value": facts.totals.tokens, "error": 0}
    assert found["sampled_documents"] == 0


def test_stdin_does_not_say_how_much_it_holds(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[:40]).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    found = estimated(tmp_path, "-", "--tokenizer", TOKENIZER, "--max-length", 64)
    assert found["sampled_documents"] == 40
    assert found["documents"] == {"value": None, "error": None}
    assert found["unknown"] == ["-"]
    assert "documents    unknown" in capsys.readouterr().out


def test_limit_and_many_files(texts: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(30):
        write(folder / f"{i:02}.jsonl", texts[i * 20 : i * 20 + 20])
    options = ["--tokenizer", TOKENIZER, "--max-length", 64, "--partition-bytes", 20_000]
    found = estimated(tmp_path, folder, *options)
    assert found["inputs"] == 30
    assert abs(found["documents"]["value"] - 600) < 100
    assert found["partitions"] > 1
    assert estimated(tmp_path, folder, *options, "--limit", 60)["documents"]["value"] == 60


def test_nothing_to_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": ""}\n')
    options = ["--tokenizer", TOKENIZER, "--max-length", 64, "--out", tmp_path / "out", "--dry-run"]
    assert packer("pack", tmp_path / "in.jsonl", *options) == 1
    assert "there is nothing to estimate" in capsys.readouterr().err


def test_stored_bytes_of_a_compressed_file(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 16, 12 << 20).astype(np.uint8).tobytes()
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(data, 1))
    source = Source(str(path), str(path), "jsonl", "gzip", path.stat().st_size, None)
    assert stored_per_byte(source) == pytest.approx(path.stat().st_size / len(data), rel=0.05)


def test_figures_and_sizes() -> None:
    assert Figure.of(10.4, 0.1) == Figure(10, 1)
    assert [size(n) for n in (0, 999, 1234567, 5e13)] == ["0 bytes", "999 bytes", "1.2 MB", "50.0 TB"]
