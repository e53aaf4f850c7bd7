"""The shards open in the tools that people use, with the same rows in each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from packer.cli import cli
from packer.schema import Layout, columns_of

REPO = Path(__file__).parent.parent
ARTICLES, TOKENIZER = REPO / "sample_data/articles.jsonl", REPO / "sample_data/tokenizer"
Rows = list[dict[str, Any]]


def pack(out: Path, file_format: str) -> Path:
    arguments = ["--tokenizer", TOKENIZER, "--max-length", 512, "--rows-per-shard", 60, "--format", file_format]
    done = CliRunner().invoke(
        cli, [str(a) for a in ("pack", ARTICLES, *arguments, "--out", out)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("parquet") / "out", "parquet")


@pytest.fixture(scope="module")
def rows(parquet: Path) -> Rows:
    shards = sorted((parquet / "data").iterdir())
    assert [path.name for path in shards] == [f"train-{i:05d}-of-00004.parquet" for i in range(4)]
    return pa.concat_tables([pq.read_table(path) for path in shards]).to_pylist()


def test_pyarrow_dataset(parquet: Path, rows: Rows) -> None:
    table = pyarrow.dataset.dataset(parquet / "data").to_table()
    assert table.to_pylist() == rows
    for column in columns_of(Layout()):
        field = table.schema.field(column.name)
        number = pa.type_for_alias(column.dtype)
        assert not field.nullable
        assert field.type == (pa.list_(pa.field("element", number, nullable=False)) if column.is_list else number)


def test_parquet_is_written_as_promised(parquet: Path) -> None:
    for path in (parquet / "data").iterdir():
        meta = pq.read_metadata(path)
        assert meta.schema.to_arrow_schema().metadata[b"packer.max_length"] == b"512"
        for group in range(meta.num_row_groups):
            for index in range(meta.num_columns):
                column = meta.row_group(group).column(index)
                assert column.compression == "ZSTD"
                assert not column.has_dictionary_page
                assert column.is_stats_set == ("." not in column.path_in_schema)


def test_datasets(parquet: Path, rows: Rows, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset("parquet", data_dir=str(parquet / "data"), cache_dir=str(tmp_path))
    assert list(loaded) == ["train"]
    assert list(loaded["train"]) == rows


def test_duckdb(parquet: Path, rows: Rows) -> None:
    duckdb = pytest.importorskip("duckdb")
    query = (
        f"select num_tokens, len(input_ids), list_last(cu_seqlens) from '{parquet}/data/*.parquet' order by filename"
    )
    found = duckdb.sql(query).fetchall()
    assert sorted(found) == sorted((row["num_tokens"],) * 3 for row in rows)


def test_polars(parquet: Path, rows: Rows) -> None:
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(parquet / "data").to_dicts() == rows


def test_arrow_file_is_memory_mapped(rows: Rows, tmp_path: Path) -> None:
    out = pack(tmp_path / "out", "arrow")
    found: Rows = []
    for path in sorted((out / "data").iterdir()):
        before = pa.total_allocated_bytes()
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        table = reader.read_all()
        assert pa.total_allocated_bytes() - before < 1000  # nothing is copied: not compressed
        found += table.to_pylist()
    assert found == rows


def test_polars_reads_arrow(rows: Rows, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    out = pack(tmp_path / "out", "arrow")
    found = [row for path in sorted((out / "data").iterdir()) for row in polars.read_ipc(path).to_dicts()]
    assert found == rows


def test_arrow_stream_is_what_datasets_maps(rows: Rows, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    out = pack(tmp_path / "out", "arrow-stream")
    found: Rows = []
    for path in sorted((out / "data").iterdir()):
        found += list(datasets.Dataset.from_file(str(path)))
    assert found == rows
