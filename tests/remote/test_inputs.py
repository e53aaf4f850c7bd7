"""INPUT by URL: the same documents, partitions and refusals as from the same files here."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from packer.corpus import PartitionReader, ReadOptions, TextBatch, find_sources, partition, stored
from packer.corpus.streams import zstd
from packer.errors import InputError, UsageError

TEXTS = [f"Document {n}, {'long ' * (n % 40)}ended.\nSecond line é." for n in range(400)]
JSONL = "".join(json.dumps({"text": text, "n": 1}) + "\n" for text in TEXTS).encode()
TABLE = pa.table({"id": pa.array(range(400)), "text": TEXTS, "junk": ["x" * 100] * 400})


def write_parquet(path: Path) -> None:
    pq.write_table(TABLE, path, row_group_size=50)


def write_ids(path: Path) -> None:
    pq.write_table(pa.table({"input_ids": [[n, n + 1] for n in range(400)]}), path, row_group_size=50)


def write_arrow(path: Path, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(path, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=50)


def write_stream(path: Path) -> None:
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=50)


def write_csv(path: Path) -> None:
    rows = "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS))
    path.write_text("id,text\n" + rows, encoding="utf-8", newline="")


WRITERS: dict[str, Any] = {
    "a.jsonl": lambda path: path.write_bytes(JSONL),
    "a.json": lambda path: path.write_text(json.dumps([{"text": text} for text in TEXTS], indent=1)),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(JSONL[:900]) + gzip.compress(JSONL[900:])),
    "a.jsonl.bz2": lambda path: path.write_bytes(bz2.compress(JSONL)),
    "a.jsonl.xz": lambda path: path.write_bytes(lzma.compress(JSONL)),
    "a.jsonl.zst": lambda path: path.write_bytes(zstd.compress(JSONL)),
    "a.parquet": write_parquet,
    "ids.parquet": write_ids,
    "a.arrow": write_arrow,
    "compressed.arrow": lambda path: write_arrow(path, "zstd"),
    "stream.arrow": write_stream,
    "a.feather": lambda path: pyarrow.feather.write_feather(TABLE, path),
    "a.csv": write_csv,
    "a.txt": lambda path: path.write_text("\n\n".join(TEXTS)),
}


CUT = {"a.jsonl", "a.parquet", "ids.parquet", "a.arrow", "compressed.arrow"}  # those of which parts can be read


def read(*inputs: str, **options: Any) -> tuple[list[Any], list[Any]]:
    """The documents, and the partitions as (start, stop) of their slices."""
    chosen = ReadOptions(**options)
    partitions = partition(find_sources(inputs, chosen).sources, chosen)
    partitions = pickle.loads(pickle.dumps(partitions))  # as a worker gets them
    found: list[Any] = []
    for part in partitions:
        for batch in PartitionReader(part, chosen):
            found += batch.texts if isinstance(batch, TextBatch) else [batch.ids.tolist(), batch.offsets.tolist()]
    return found, [[(piece.start, piece.stop) for piece in part.slices] for part in partitions]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("partition_bytes", [3000, 1 << 20])
def test_every_format_reads_as_it_does_here(
    store: MemoryFileSystem, tmp_path: Path, name: str, partition_bytes: int
) -> None:
    WRITERS[name](tmp_path / name)
    store.pipe_file(f"/in/{name}", (tmp_path / name).read_bytes())
    here = read(str(tmp_path / name), partition_bytes=partition_bytes)
    assert read(f"memory://in/{name}", partition_bytes=partition_bytes) == here
    assert here[0]
    assert (len(here[1]) > 1) == (name in CUT and partition_bytes == 3000)


@pytest.mark.parametrize("split", ["line", "paragraph"])
def test_text_in_parts(store: MemoryFileSystem, tmp_path: Path, split: str) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS))
    store.pipe_file("/a.txt", (tmp_path / "a.txt").read_bytes())
    options = {"split_text": split, "partition_bytes": 2000}
    assert read("memory://a.txt", **options) == read(str(tmp_path / "a.txt"), **options)


@pytest.fixture
def corpus(copy: Callable[[Path, str], None], tmp_path: Path) -> Path:
    """A folder of all that a folder's reading has to know, here and at memory://corpus."""
    for name in (
        "b.jsonl",
        "B.jsonl",
        "a/2.jsonl",
        "a/10.jsonl",
        ".hidden/x.jsonl",
        "a/.x.jsonl",
        "packed/data/p.jsonl",
    ):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"text": name}) + "\n")
    root = tmp_path / "corpus"
    (root / "README.md").write_text("about it")
    (root / "packed" / "manifest.json").write_text(json.dumps({"format": "packer"}))
    (root / "other").mkdir()
    (root / "other" / "manifest.json").write_text(json.dumps({"text": "somebody else's"}))
    saved = root / "saved"
    saved.mkdir()
    write_stream(saved / "data-00001.arrow")
    write_stream(saved / "data-00000.arrow")
    (saved / "cache-1.arrow").write_bytes(b"not to be read")
    files = [{"filename": "data-00001.arrow"}, {"filename": "data-00000.arrow"}]
    (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    copy(root, "/corpus")
    return root


def names(*inputs: str, out: str | None = None) -> tuple[list[str], list[str]]:
    found = find_sources(inputs, ReadOptions(), out=out)
    return [source.path for source in found.sources], found.left_out


@pytest.mark.parametrize(
    "argument", ["", "/", "/a", "/saved", "/*.jsonl", "/a/*", "/**/*.jsonl", "/[Bb].jsonl", "/b.jsonl", "/sa*"]
)
def test_folders_and_globs_hold_what_they_hold_here(corpus: Path, argument: str) -> None:
    here = names(f"{corpus}{argument}")
    there = names(f"memory://corpus{argument}")
    assert here[0]
    relative = re.compile(rf"(memory://corpus|{re.escape(str(corpus))})/")
    assert [[relative.sub("", path) for path in part] for part in there] == [
        [relative.sub("", path) for path in part] for part in here
    ]


def test_the_output_folder(corpus: Path) -> None:
    assert "memory://corpus/a/2.jsonl" not in names("memory://corpus", out="memory://corpus/a")[0]
    for argument, out in (
        ("memory://corpus", "memory://corpus"),
        ("memory://corpus/b.jsonl", "memory://corpus/"),
        ("memory://corpus/a/*", "memory://corpus"),
        (f"file://{corpus}/b.jsonl", str(corpus)),
    ):
        with pytest.raises(UsageError, match="the output folder is or contains this INPUT"):
            names(argument, out=out)
    assert names("memory://corpus/b.jsonl", out="memory://corpus/b")[0] == ["memory://corpus/b.jsonl"]


@pytest.mark.parametrize(
    ("argument", "error", "message"),
    [
        ("memory://corpus/nothing", InputError, "memory://corpus/nothing: cannot be read: there is no such file"),
        ("memory://corpus/*.csv", InputError, r"memory://corpus/\*.csv: no file matches"),
        ("memory://corpus/packed", UsageError, "memory://corpus/packed: is a packer data set"),
        ("simplecache::memory://u:secret@x/a", InputError, "no such file or folder"),
        ("zip://secret::memory://a.zip", UsageError, "chained URLs are not read"),
        ("https://u:secret@host/a/*.jsonl", UsageError, r"https://host/a/\*.jsonl: a web server does not say"),
        ("https://u:secret@host/a/", UsageError, "https://host/a/: a web server does not say"),
    ],
)
def test_what_cannot_be_read(corpus: Path, argument: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        names(argument)
    assert "u:secret" not in str(caught.value)
    assert corpus.is_dir()


def test_damage_is_named_by_its_url(store: MemoryFileSystem, tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet")
    store.pipe_file("/a.parquet", (tmp_path / "a.parquet").read_bytes()[:-100])
    store.pipe_file("/a.jsonl.gz", gzip.compress(JSONL)[:-100])
    store.pipe_file("/bad.jsonl", JSONL + b'{"text": 5}\n')
    for name, words in (
        ("a.parquet", "Parquet cannot be read"),
        ("a.jsonl.gz", "gzip stream is cut off"),
        ("bad.jsonl", "line 401"),
    ):
        with pytest.raises(InputError, match=f"^memory://{name}.*{words}"):
            read(f"memory://{name}")


def test_a_file_that_changes_between_its_partitions(store: MemoryFileSystem) -> None:
    store.pipe_file("/a.jsonl", JSONL)
    options = ReadOptions(partition_bytes=3000)
    partitions = partition(find_sources(["memory://a.jsonl"], options).sources, options)
    list(PartitionReader(partitions[0], options))
    store.pipe_file("/a.jsonl", JSONL)
    with pytest.raises(InputError, match=r"memory://a\.jsonl: changed while it was being read"):
        list(PartitionReader(partitions[1], options))


def test_files_by_url_are_files_here(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    for kind in ("file", "local"):
        (source,) = find_sources([f"{kind}://{tmp_path}/a.jsonl"], ReadOptions()).sources
        assert (source.path, source.location) == (f"{tmp_path}/a.jsonl", f"{tmp_path}/a.jsonl")
        assert not source.remote


def test_memory_cannot_be_read_by_workers(store: MemoryFileSystem, tmp_path: Path) -> None:
    store.pipe_file("/a.jsonl", JSONL)
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    stored.check_workers(find_sources([str(tmp_path / "a.jsonl")], ReadOptions()).sources)
    with pytest.raises(UsageError, match=r"^memory://a.jsonl: is in the memory of this process"):
        stored.check_workers(find_sources(["memory://a.jsonl"], ReadOptions()).sources)


def test_fsspec_is_loaded_with_the_first_url_only(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"input_ids": [1, 2]}\n')
    code = (
        "import sys\nfrom packer import pipeline, verify, reader\nfrom packer.corpus import *\n"
        f"find_sources([{str(tmp_path / 'a.jsonl')!r}], ReadOptions())\n"
        "print('fsspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(("module", "url", "extra"), [("fsspec", "s3://b/k", "remote"), ("s3fs", "s3://b/k", "s3")])
def test_what_to_install(module: str, url: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\nfrom packer.cli import main\n"
        f"main(['pack', {url!r}, '--max-length', '8', '--out', 'out'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert f"pip install 'packer[{extra}]'" in done.stderr
