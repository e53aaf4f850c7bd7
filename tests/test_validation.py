"""`--validation R`: documents held out by their content, as a second split that every reader knows."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import manifest as manifests
from packer.cli import main
from packer.errors import DatasetError, UsageError
from packer.holdout import BASE, held_out
from packer.plan import offsets_of
from packer.reader import PackedDataset
from packer.stored.groups import all_groups
from packer.verify import verify

DOCS = [[random.Random(i).randrange(1, 500) for _ in range(1 + i * 7 % 40)] for i in range(200)]


@pytest.fixture(autouse=True, scope="module")
def no_sync() -> Iterator[None]:
    """Durability is not what is tested here, and takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def packer(command: str, *arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([command, *map(str, arguments)])
    return int(ended.value.code or 0)


def write(path: Path, docs: list[list[int]]) -> Path:
    path.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in docs))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("in") / "in.jsonl", DOCS)


def made(out: Path, source: Path, *options: object) -> Path:
    assert packer("pack", "--quiet", source, "--out", out, "--max-length", 32, "--validation", 0.2, *options) == 0
    return out


def naive_hash(ids: list[int]) -> int:
    """The sum of the module's docstring, one token after another."""
    return sum(token * pow(BASE, place, 1 << 64) for place, token in enumerate(ids)) % (1 << 64)


def mixed(word: int) -> int:
    mask = (1 << 64) - 1
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
    return word ^ (word >> 31)


def naive_held_out(ids: list[int], ratio: float, seed: int) -> bool:
    return mixed(naive_hash(ids) ^ mixed(seed) ^ mixed(len(ids))) < ratio * 2**64


@given(
    st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1), max_size=30), st.floats(0.01, 0.99), st.integers(0, 99)
)
def test_the_hash_is_what_it_says(docs: list[list[int]], ratio: float, seed: int) -> None:
    ids = np.array([token for doc in docs for token in doc], np.int32)
    found = held_out(ids, offsets_of(np.array([len(doc) for doc in docs], np.int64)), ratio, seed)
    assert found.tolist() == [naive_held_out(doc, ratio, seed) for doc in docs]


def test_about_as_many_as_asked_for_whatever_the_seed() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 20, 20_000)
    ids, offsets = rng.integers(0, 300, int(lengths.sum())).astype(np.int32), offsets_of(lengths)
    for seed in (0, 1, 2):
        assert abs(held_out(ids, offsets, 0.1, seed).mean() - 0.1) < 0.01
    same = held_out(ids, offsets, 0.5, 1) == held_out(ids, offsets, 0.5, 2)
    assert abs(same.mean() - 0.5) < 0.05


def documents_of(out: Path, split: str) -> set[int]:
    view = manifests.load(out).of(split)
    return {int(doc) for group in all_groups(out, view) for doc in group.flat["doc_ids"]}


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--strategy", "wrapped", "--format", "arrow"],
        ["--overlong", "truncate", "--columns", "compact", "--min-tokens", 3],
        ["--boundaries", "row", "--labels", "shifted", "--block-tokens", 50, "--partition-bytes", 900],
        ["--format", "arrow-stream", "--order", "balanced", "--workers", 2],
    ],
)
def test_each_document_is_in_the_split_of_its_content(source: Path, tmp_path: Path, options: list[object]) -> None:
    out = made(tmp_path / "out", source, *options)
    train, held = documents_of(out, "train"), documents_of(out, "validation")
    shortest = 3 if "--min-tokens" in options else 0
    wanted = {i for i, ids in enumerate(DOCS) if naive_held_out(ids, 0.2, 0) and len(ids) >= shortest}
    assert held == wanted
    assert train == {i for i, ids in enumerate(DOCS) if len(ids) >= shortest} - held
    facts = manifests.load(out)
    assert facts.whole.documents == len(DOCS)
    assert verify(out, [str(source)]).tokens_compared == sum(split.totals.placed_tokens for split in facts.splits)


def test_one_document_a_row_in_order(source: Path, tmp_path: Path) -> None:
    out = made(tmp_path / "out", source)
    rows = [row for group in all_groups(out, manifests.load(out).of("validation")) for row in group.flat["doc_ids"]]
    assert rows == sorted(rows)
    dataset = PackedDataset(out, split="validation")
    assert all(len(row["seq_lengths"]) == 1 for row in dataset)  # type: ignore[arg-type]
    assert len(dataset) == manifests.load(out).of("validation").totals.rows
    assert dataset.fingerprint != PackedDataset(out).fingerprint
    assert len(PackedDataset(out, split="train")) == len(PackedDataset(out))
    with pytest.raises(UsageError, match="there is no split test; the data set has train and validation"):
        PackedDataset(out, split="test")


def test_equal_documents_are_on_one_side(tmp_path: Path) -> None:
    out = made(tmp_path / "out", write(tmp_path / "in.jsonl", DOCS + DOCS[::-1]), "--partition-bytes", 3000)
    held = documents_of(out, "validation")
    assert {399 - doc for doc in held} == held


def test_a_data_set_with_two_splits_as_input(source: Path, tmp_path: Path) -> None:
    out = made(tmp_path / "out", source)
    again = made(tmp_path / "again", out)
    first, second = manifests.load(out), manifests.load(again)
    for a, b in zip(first.splits, second.splits, strict=True):
        assert [shard.sha256 for shard in a.shards] == [shard.sha256 for shard in b.shards]
    assert verify(again, [str(out)]).tokens_compared == second.whole.tokens


def test_torch_reads_either_split(source: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("packer.torch")
    out = made(tmp_path / "out", source)
    for split in ("train", "validation"):
        loader = torch.PackedLoader(out, split=split, rows_per_batch=2)
        assert sum(len(batch["input_ids"]) for batch in loader) == manifests.load(out).of(split).totals.placed_tokens
    assert len(torch.PackedDataset(out, split="validation")) == len(PackedDataset(out, split="validation"))


@pytest.mark.slow
def test_datasets_sees_both_splits(source: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    out = made(tmp_path / "out", source)
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    rows = {split.split: split.totals.rows for split in manifests.load(out).splits}
    assert {name: len(rows) for name, rows in loaded.items()} == rows


def test_what_is_shown(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "out", tmp_path / "report.json"
    assert packer("pack", source, "--out", out, "--max-length", 32, "--validation", 0.2, "--report", report) == 0
    held = manifests.load(out).validation
    assert held is not None
    assert f"held out     {held.totals.documents} documents with" in capsys.readouterr().out
    assert json.loads(report.read_bytes())["validation"] == asdict(held)
    assert packer("inspect", out, "--split", "validation", "--row", held.totals.rows - 1) == 0
    shown = capsys.readouterr().out
    assert f"split validation: {held.totals.documents} documents held out (0.2 of all, by content)" in shown
    assert "data/validation-00000-of" in shown


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--validation", 0.2, "--split", "validation"], 2, "give another --split"),
        (["--validation", 0], 2, "--validation"),
        (["--validation", 1], 2, "--validation"),
        (["--validation", 1e-9], 1, "nothing is held out of 200 documents"),
        (["--validation", "nan"], 2, "'nan' is no number"),
        (["--validation", 0.999999999], 1, "all of 200 documents are held out"),
    ],
)
def test_what_is_refused(
    source: Path, tmp_path: Path, options: list[object], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert packer("pack", source, "--out", tmp_path / "out", "--max-length", 32, *options) == code
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_verify_notices_a_document_in_the_wrong_split(source: Path, tmp_path: Path) -> None:
    out = made(tmp_path / "out", source)
    path = out / "manifest.json"
    body = json.loads(path.read_bytes())
    body["validation"]["ratio"] = 0.3
    path.write_text(json.dumps(body))
    verify(out)
    with pytest.raises(DatasetError, match="by its content it belongs in split validation"):
        verify(out, [str(source)])
    body["validation"]["shards"] = body["shards"]
    body["validation"] |= {name: body[name] for name in ("totals", "losses", "efficiency", "packing_factor")}
    path.write_text(json.dumps(body))
    with pytest.raises(DatasetError, match="a shard is listed twice"):
        verify(out)
