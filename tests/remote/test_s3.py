"""The whole of it against a server that speaks S3, on loopback, and its objects by plain HTTP."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from packer.reader import PackedDataset
from packer.verify import verify

server_module = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # other projects' deprecations

SAMPLE = Path(__file__).parents[2] / "sample_data"
KEY, SECRET = "AKIAEXAMPLEKEY", "wJalrXUtn/FEMI+bPxRfi"
Packer = Callable[..., int]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An S3 file system with a bucket that holds texts as JSON Lines, Parquet and gzip, and a tokenizer."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = s3fs.S3FileSystem()
    store.mkdir("bucket")
    lines = (SAMPLE / "articles.jsonl").read_bytes().splitlines(keepends=True)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(lines[:150]))
    table = pa.table({"text": [json.loads(line)["text"] for line in lines[150:250]]})
    pq.write_table(table, folder / "b.parquet", row_group_size=20)
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[250:])))
    store.put(str(folder), "bucket/in", recursive=True)
    for path in (SAMPLE / "tokenizer").iterdir():
        store.put_file(str(path), f"bucket/tok/{path.name}")
    yield store
    store.invalidate_cache()
    store.rm("bucket", recursive=True)


OPTIONS = ["--max-length", "512", "--rows-per-shard", "60", "--partition-bytes", "40000", "--quiet"]


def content(store: Any, folder: str) -> dict[str, bytes]:
    store.invalidate_cache()
    return {name.removeprefix(f"{folder}/"): store.cat_file(name) for name in store.find(folder)}


def test_the_same_bytes_as_from_files_here(bucket: Any, packer: Packer, tmp_path: Path) -> None:
    here, out = tmp_path / "out", "s3://bucket/out"
    assert packer("pack", tmp_path / "in", "--tokenizer", SAMPLE / "tokenizer", "--out", here, *OPTIONS) == 0
    assert packer("pack", "s3://bucket/in", "--tokenizer", "s3://bucket/tok", "--out", out, *OPTIONS) == 0
    there = content(bucket, "bucket/out")
    files = {str(path.relative_to(here)): path.read_bytes() for path in here.rglob("*") if path.is_file()}
    manifests = [json.loads(side.pop("manifest.json")) for side in (files, there)]
    assert there == files
    inputs = manifests[1].pop("inputs")
    names = ("a.jsonl", "b.parquet", "c.jsonl.gz")
    assert [file.pop("path") for file in inputs] == [f"s3://bucket/in/{name}" for name in names]
    etags = [bucket.info(f"bucket/in/{name}")["ETag"].strip('"') for name in names]
    assert [file.pop("etag") for file in inputs] == etags
    assert [file["documents"] for file in inputs] == [150, 100, 110]
    assert manifests[1].pop("tokenizer") | {"source": ""} == manifests[0].pop("tokenizer") | {"source": ""}
    assert manifests[1] | {"inputs": None} == manifests[0] | {"inputs": None}
    verdict = verify(out, ["s3://bucket/in/*"])
    assert verdict.tokens_compared == manifests[0]["totals"]["placed_tokens"]
    ours, theirs = PackedDataset(here), PackedDataset(out)
    assert [row["input_ids"].tolist() for row in ours] == [row["input_ids"].tolist() for row in theirs]  # type: ignore[attr-defined]


def test_replacing(bucket: Any, packer: Packer) -> None:
    source, out = f"s3://{KEY}:{SECRET}@bucket/in/a.jsonl", f"s3://{KEY}:{SECRET}@bucket/out"
    command = ["pack", source, "--tokenizer", "s3://bucket/tok", "--out", out, "--quiet"]
    assert packer(*command, "--max-length", 512) == 0
    before = content(bucket, "bucket/out")
    assert packer(*command, "--max-length", 256) == 1
    assert content(bucket, "bucket/out") == before
    assert packer(*command, "--max-length", 256, "--overwrite") == 0
    after = content(bucket, "bucket/out")
    assert after.keys() & before.keys() == {"manifest.json"}
    assert len(after) == 2
    assert verify("s3://bucket/out").manifest.max_length == 256
    assert not [name for name, data in after.items() if KEY.encode() in data or SECRET.encode() in data]


def test_what_is_not_there(bucket: Any, packer: Packer, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["s3://bucket/none.jsonl", "--out", "s3://bucket/out"], "s3://bucket/none.jsonl: cannot be read: there is no"),
        (
            ["s3://bucket/in/a.jsonl", "--out", "s3://no-bucket/out"],
            "--out s3://no-bucket/out cannot be written: there",
        ),
        (["s3://no-bucket/*.jsonl", "--out", "s3://bucket/out"], "s3://no-bucket/*.jsonl: "),
    ):
        assert packer("pack", *arguments, "--tokenizer", "s3://bucket/tok", *OPTIONS) == 1
        line = capsys.readouterr().err
        assert len(line.splitlines()) == 1
        assert words in line
    assert not bucket.exists("bucket/out")


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "packer", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def when_marked(store: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        store.invalidate_cache()
        if store.exists("bucket/out/.tmp/written-by-packer"):
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


def test_a_run_that_is_interrupted(
    bucket: Any, tmp_path: Path, packer: Packer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # of the processes started below
    command = ["pack", "s3://bucket/in", "--tokenizer", "s3://bucket/tok", "--out", "s3://bucket/out", *OPTIONS]
    slow = [*command, "--block-tokens", "20"]
    process = start(*slow)
    when_marked(bucket, process)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "packer: interrupted\n")
    assert content(bucket, "bucket/out") == {}
    assert list((tmp_path / "temporary").iterdir()) == []

    process = start(*slow)
    when_marked(bucket, process)
    process.kill()
    process.communicate(timeout=60)
    assert set(content(bucket, "bucket/out")) == {".tmp/written-by-packer"}
    assert packer(*command) == 1
    assert packer(*command, "--overwrite") == 0
    verify("s3://bucket/out")


def test_objects_by_http(bucket: Any, endpoint: str, packer: Packer, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    for name in ("in/a.jsonl", "in/b.parquet", "in/c.jsonl.gz", "tok/tokenizer.json", "tok/tokenizer_config.json"):
        bucket.chmod(f"bucket/{name}", "public-read")
    names = [f"{endpoint}/bucket/in/{name}" for name in ("a.jsonl", "b.parquet", "c.jsonl.gz")]
    signed = [names[0] + "?X-Amz-Signature=c2lnbmF0dXJl", *names[1:]]
    out, tokenizer = tmp_path / "out", f"{endpoint}/bucket/tok/tokenizer.json"
    assert packer("pack", *signed, "--tokenizer", tokenizer, "--out", out, *OPTIONS) == 0
    assert [file["path"] for file in json.loads((out / "manifest.json").read_bytes())["inputs"]] == names
    assert packer("verify", out, tmp_path / "in", "--tokenizer", SAMPLE / "tokenizer", "--quiet") == 0
    bucket.put(str(out), "bucket/public", recursive=True)
    for name in bucket.find("bucket/public"):
        bucket.chmod(name, "public-read")
    verify(f"{endpoint}/bucket/public")
    assert len(PackedDataset(f"{endpoint}/bucket/public")) == len(PackedDataset(out))
