"""A packer data set as INPUT: its documents are the ones it was made of, and its rows those that they would give."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer import corpus, stored
from packer import manifest as manifests
from packer.cli import main
from packer.corpus import ReadOptions, TokenBatch
from packer.corpus.packed import UNKNOWN, masks_of
from packer.errors import InputError
from packer.plan import offsets_of
from packer.verify import verify

ROOT = Path(__file__).parents[1]
TOKENIZER = ROOT / "sample_data" / "tokenizer"
Document = tuple[list[int], list[int] | None]  # ids, loss mask


@pytest.fixture(autouse=True, scope="module")
def no_sync() -> Iterator[None]:
    """Durability is not what is tested here, and takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def packer(command: str, *arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([command, "--quiet", *map(str, arguments)])
    return int(ended.value.code or 0)


def made(out: Path, *arguments: object, command: str = "pack") -> Path:
    assert packer(command, *arguments, "--out", out) == 0
    return out


def write(path: Path, documents: list[Document]) -> Path:
    records = [{"input_ids": ids} | ({"loss_mask": mask} if mask else {}) for ids, mask in documents]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(out: Path, *, allow_lossy: bool = False) -> list[Document]:
    """The documents of a data set, by the reader that `pack` uses."""
    options = ReadOptions(allow_lossy=allow_lossy)
    sources = corpus.find_sources([str(out)], options).sources
    stored.check(sources, None, options)
    found: list[Document] = []
    with tempfile.TemporaryDirectory() as folder:
        for partition in corpus.partition(stored.put_together(sources, Path(folder), options), options):
            for batch in corpus.PartitionReader(partition, options):
                assert isinstance(batch, TokenBatch)
                for i, (a, b) in enumerate(zip(batch.offsets, batch.offsets[1:], strict=False)):
                    mask = batch.mask[a:b].astype(int).tolist() if batch.mask is not None and batch.masked[i] else None
                    found.append((batch.ids[a:b].tolist(), mask))
    return found


def shards(out: Path) -> list[str]:
    return [shard.sha256 for shard in manifests.load(out).shards]


# --- documents come back ---

ids_of = st.lists(st.integers(0, 30), max_size=40)


@st.composite
def documents(draw: st.DrawFn, masks: str) -> list[Document]:
    """masks: no, some or all of the documents have one, which trains something and whose first token, that no label
    tells of, is masked as the second."""
    found: list[Document] = []
    for ids in draw(st.lists(ids_of, min_size=1, max_size=12)):
        masked = masks == "all" or (masks == "some" and draw(st.booleans()))
        if masked and len(ids) < 2:
            ids = [*ids, 1, 2]
        if not masked:
            found.append((ids, None))
            continue
        mask = draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids)))
        mask[1:2] = [draw(st.integers(0, 1)) if len(ids) > 2 else 1]
        mask[0] = mask[1]
        mask[-1] = 1
        if masks == "some":
            mask[-2:] = [0, 1] if len(ids) > 2 else [1, 1]
            mask[0] = mask[1]
        found.append((ids, mask))
    return found if any(ids for ids, _ in found) else [*found, ([5, 6, 7], [0, 0, 1] if masks == "all" else None)]


def expected(found: list[Document]) -> list[Document]:
    """In a data set in which some documents have a mask, one that trains all tokens is not told from none."""
    some = any(ids and mask is None for ids, mask in found)
    return [(ids, None if mask is None or (some and all(mask)) else mask) for ids, mask in found]


WAYS = {
    "bfd": ["--strategy", "bfd"],
    "ffd": ["--strategy", "ffd", "--max-segments", "2"],
    "first-fit": ["--strategy", "first-fit"],
    "wrapped": ["--strategy", "wrapped"],
    "none": ["--strategy", "none"],
}


@settings(max_examples=8)
@given(data=st.data())
@pytest.mark.parametrize("masks", ["no", "some", "all"])
def test_documents_come_back_from_packed_rows(data: st.DataObject, masks: str) -> None:
    found = data.draw(documents(masks)) + ([([4], None)] if masks == "some" else [])  # or all have one
    options: list[object] = ["--overlong", "split", "--max-length", data.draw(st.integers(2, 16))]
    options += WAYS[data.draw(st.sampled_from([*WAYS]))]
    for name, values in (
        ("labels", ["aligned", "shifted"]),
        ("columns", ["full", "compact"]),
        ("boundaries", ["document", "row"]),
        ("format", ["parquet", "arrow", "arrow-stream"]),
        ("block-tokens", [20, 1000]),
        ("partition-bytes", [60, 1 << 20]),
        ("order", ["shuffle", "plan"]),
    ):
        options += [f"--{name}", data.draw(st.sampled_from(values), label=name)]
    with tempfile.TemporaryDirectory() as name:
        source = write(Path(name) / "in.jsonl", found)
        out = made(Path(name) / "out", source, *options)
        assert read(out) == expected(found)


@settings(max_examples=8)
@given(data=st.data())
@pytest.mark.parametrize("masks", ["no", "some", "all"])
def test_documents_come_back_from_windows(data: st.DataObject, masks: str) -> None:
    found = [(ids, mask) for ids, mask in data.draw(documents(masks)) if len(ids) != 1] + [([1, 2, 3, 4], None)]
    if masks == "all":
        found[-1] = ([1, 2, 3, 4], [0, 0, 1, 1])
    size = data.draw(st.integers(2, 12))
    options: list[object] = ["--context-size", size, "--stride", data.draw(st.integers(1, size))]
    for name, values in (
        ("labels", ["aligned", "shifted"]),
        ("columns", ["full", "compact"]),
        ("scope", ["document", "corpus"]),
    ):
        options += [f"--{name}", data.draw(st.sampled_from(values), label=name)]
    options += ["--mask-overlap"] * data.draw(st.booleans(), label="mask_overlap")
    with tempfile.TemporaryDirectory() as name:
        source = write(Path(name) / "in.jsonl", found)
        out = made(Path(name) / "out", source, *options, command="window")
        coverage = manifests.load(out).coverage
        assert coverage is not None
        refused = nullcontext() if not coverage.unseen_tokens else suppress(InputError)
        with refused:  # a token that is in no window may still be a label
            assert read(out) == expected(found)


def test_a_label_over_a_document_s_end_tells_of_the_next_one_s_first_token(tmp_path: Path) -> None:
    docs: list[Document] = [([0, 1, 2], [0, 0, 1]), ([1, 2, 3, 4], None)]
    options = ["--context-size", 2, "--stride", 1, "--scope", "corpus", "--mask-overlap", "--labels", "aligned"]
    out = made(tmp_path / "out", write(tmp_path / "in.jsonl", docs), *options, command="window")
    assert read(out) == docs


def test_masks_where_nothing_tells_of_the_first_token() -> None:
    trained = np.array([UNKNOWN, 0, 1, UNKNOWN, 1, UNKNOWN, 1, 0], np.int8)
    mask, masked = masks_of(trained, offsets_of(np.array([3, 2, 0, 1, 2])), everywhere=False)
    assert mask.tolist() == [False, False, True, True, True, True, True, False]
    assert masked.tolist() == [True, False, False, False, True]


# --- the rows are those that the input would give ---


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with an empty and a bad record among them, in more than one partition of 20,000 bytes."""
    draw = random.Random(5)
    lines = [json.dumps({"text": "word " * draw.randrange(200)}) for _ in range(150)]
    lines[3], lines[70] = '{"text": ""}', '{"text": 1}'
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


READ = ["--on-error", "skip", "--partition-bytes", 20_000, "--block-tokens", 3_000]


@pytest.mark.parametrize(
    "first",
    [
        ["pack", "--max-length", 64, "--labels", "shifted", "--seed", 9, "--format", "arrow"],
        ["pack", "--max-length", 50, "--strategy", "wrapped", "--columns", "compact", "--boundaries", "row"],
        ["window", "--context-size", 40, "--stride", 30],
    ],
)
def test_same_rows_as_from_text(texts: Path, tmp_path: Path, first: list[object]) -> None:
    command, *options = first
    tokenized = made(tmp_path / "first", texts, "--tokenizer", TOKENIZER, *READ, *options, command=str(command))
    other = ["--max-length", 128, "--block-tokens", 3_000, "--seed", 3]
    again = made(tmp_path / "again", tokenized, *other)
    direct = made(tmp_path / "direct", texts, "--tokenizer", TOKENIZER, *READ, *other)
    assert shards(again) == shards(direct)
    found, expected_facts = manifests.load(again), manifests.load(direct)
    assert len(found.partitions) > 2
    assert found.tokenizer is not None
    assert expected_facts.tokenizer is not None
    assert found.tokenizer.fingerprint == expected_facts.tokenizer.fingerprint
    assert found.tokenizer.vocab_size == expected_facts.tokenizer.vocab_size
    assert [(file.path, file.first_doc, file.documents) for file in found.inputs] == [(str(tokenized), 0, 150)]
    (origin,) = found.origin
    assert (origin.path, origin.first_doc, origin.inputs) == (str(tokenized), 0, expected_facts.inputs)
    assert verify(again, [str(tokenized)]).tokens_compared == found.totals.tokens


def test_stats_of_a_data_set(texts: Path, tmp_path: Path) -> None:
    tokenized = made(tmp_path / "out", texts, "--tokenizer", TOKENIZER, *READ, "--max-length", 64)
    assert packer("stats", texts, "--tokenizer", TOKENIZER, "--on-error", "skip", "--json", tmp_path / "a") == 0
    assert packer("stats", tokenized, "--json", tmp_path / "b") == 0
    a, b = (json.loads((tmp_path / name).read_bytes()) for name in "ab")
    for name in ("documents", "tokens", "length", "truncation", "strategies"):
        assert a[name] == b[name]
    assert a["source"]["fingerprint"] == b["source"]["fingerprint"]


def test_beside_other_inputs(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [([1, 2, 3], None), ([4], None)])
    write(tmp_path / "b.jsonl", [([5, 6], None)])
    packed = made(tmp_path / "a", tmp_path / "a.jsonl", "--max-length", 2)
    both = made(tmp_path / "both", tmp_path / "b.jsonl", packed, "--max-length", 4)
    twice = made(tmp_path / "twice", tmp_path / "b.jsonl", both, "--max-length", 3)
    facts = manifests.load(twice)
    assert [file.first_doc for file in facts.inputs] == [0, 1]
    assert facts.origin[0].origin[0].path == str(packed)
    assert facts.origin[0].origin[0].first_doc == 1
    assert read(twice) == [([5, 6], None), ([5, 6], None), ([1, 2, 3], None), ([4], None)]
    assert verify(twice, [str(tmp_path / "b.jsonl"), str(both)]).tokens_compared == 8


def test_inspect_says_where_a_document_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.jsonl", [([1, 2, 3], None), ([4], None)])
    once = made(tmp_path / "once", tmp_path / "a.jsonl", "--max-length", 2)
    twice = made(tmp_path / "twice", once, "--max-length", 8, "--order", "plan")
    packer("inspect", twice)
    assert f"({once}, record 1, from {tmp_path / 'a.jsonl'}, record 1)" in capsys.readouterr().out


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["pack", "--overlong", "truncate", "--max-length", 3], "1 documents truncated"),
        (["pack", "--overlong", "drop", "--max-length", 3], "1 documents dropped as too long"),
        (["pack", "--min-tokens", 2, "--max-length", 3], "1 documents left out as too short"),
        (["window", "--context-size", 4, "--stride", 4, "--tail", "drop"], "lost tokens ("),
        (["window", "--context-size", 2, "--stride", 3, "--allow-gaps"], "lost tokens ("),
    ],
)
def test_what_lost_tokens_is_refused(
    tmp_path: Path, options: list[object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "in.jsonl", [([1, 2, 3, 4, 5, 6, 7, 8, 9], None), ([10], None), ([11, 12], None)])
    lossy = made(tmp_path / "lossy", source, *options[1:], command=str(options[0]))
    assert packer("pack", lossy, "--max-length", 9, "--out", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert said in error
    assert "--allow-lossy" in error
    assert not (tmp_path / "out").exists()
    taken = made(tmp_path / "taken", lossy, "--max-length", 9, "--allow-lossy")
    assert verify(taken, [str(lossy)]).tokens_compared == manifests.load(taken).totals.tokens


def test_what_is_left_of_lossy_data_sets(tmp_path: Path) -> None:
    docs: list[Document] = [([1, 2, 3, 4, 5, 6, 7, 8], None), ([], None), ([9], None), ([10, 11], None)]
    source = write(tmp_path / "in.jsonl", docs)
    left = made(tmp_path / "left", source, "--overlong", "truncate-left", "--max-length", 3)
    assert read(left, allow_lossy=True) == [([6, 7, 8], None), ([], None), ([9], None), ([10, 11], None)]
    gaps = made(tmp_path / "gaps", source, "--context-size", 1, "--stride", 3, "--allow-gaps", command="window")
    # A label tells the token after each window: [1 2] . [4 5] . [7 8], each a document, for 3 and 6 are in no row.
    assert read(gaps, allow_lossy=True)[:3] == [([1, 2], None), ([4, 5], None), ([7, 8], None)]
    again = made(tmp_path / "again", gaps, "--max-length", 4, "--allow-lossy")
    assert manifests.load(again).origin[0].renumbered


def test_another_tokenizer_is_refused(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = made(tmp_path / "out", texts, "--tokenizer", TOKENIZER, *READ, "--max-length", 64)
    same = tmp_path / "same"
    assert packer("pack", packed, "--tokenizer", TOKENIZER, "--max-length", 32, "--out", same) == 0
    assert shards(same) == shards(made(tmp_path / "without", packed, "--max-length", 32))
    other = tmp_path / "tokenizer.json"
    other.write_bytes((TOKENIZER / "tokenizer.json").read_bytes() + b"\n")
    assert packer("pack", packed, "--tokenizer", other, "--max-length", 32, "--out", tmp_path / "no") == 1
    assert "was made with tokenizer" in capsys.readouterr().err


def test_a_damaged_shard_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "in.jsonl", [([1, 2, 3], None)])
    packed = made(tmp_path / "packed", source, "--max-length", 4)
    shard = packed / manifests.load(packed).shards[0].path
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert packer("pack", packed, "--max-length", 4, "--out", tmp_path / "out") == 1
    assert "its bytes are not those that were written" in capsys.readouterr().err


def test_out_within_or_around_a_data_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = made(tmp_path / "packed", write(tmp_path / "in.jsonl", [([1, 2, 3], None)]), "--max-length", 4)
    for out in (packed, packed / "data", tmp_path):
        assert packer("pack", packed, "--max-length", 4, "--out", out, "--overwrite") == 2
        assert "choose another --out" in capsys.readouterr().err


def test_a_folder_leaves_data_sets_out_and_names_them(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", [([1, 2, 3], None)])
    packed = made(tmp_path / "packed", tmp_path / "in.jsonl", "--max-length", 4)
    found = corpus.find_sources([str(tmp_path)], ReadOptions())
    assert [source.path for source in found.sources] == [str(tmp_path / "in.jsonl")]
    assert found.left_out == [str(packed)]


@pytest.mark.parametrize("workers", [[], ["--workers", 2]])
def test_resume_over_a_data_set(texts: Path, tmp_path: Path, workers: list[object]) -> None:
    packed = made(tmp_path / "packed", texts, "--tokenizer", TOKENIZER, *READ, "--max-length", 64)
    whole = made(tmp_path / "whole", packed, "--max-length", 32)
    resumed = made(tmp_path / "resumed", packed, "--max-length", 32, "--resume", *workers)
    assert (whole / "manifest.json").read_bytes() == (resumed / "manifest.json").read_bytes()
