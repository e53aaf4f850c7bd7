"""`verify` accepts what `pack` writes, and names shard, row and rule of every fault that is put into it.

Content is corrupted consistently: the shard is read to lists, changed, written again with its schema, and its bytes,
checksum, rows and tokens are mended in the manifest. So only the rule in question can notice.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from packer import manifest as manifests
from packer.cli import main
from packer.errors import DatasetError, PackerError, UsageError
from packer.manifest import Totals
from packer.packing.overlong import Losses
from packer.shards import ShardWriter, read_shard, shard_schema
from packer.verify import documents, files, verify
from packer.verify import rows as row_rules

ROOT = Path(__file__).parents[1]
TOKENIZER = ROOT / "sample_data" / "tokenizer"
MAX_LENGTH = 12
Row = dict[str, Any]
Change = Callable[[list[Row]], int]  # changes a shard's rows, returns the row that is then wrong


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def make_documents(lengths: list[int], seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(1, 1000) for _ in range(n)] for n in lengths]


def make_masks(docs: list[list[int]], seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[int(draw.random() < 0.6) for _ in ids] for ids in docs]


def pack(out: Path, *arguments: object) -> Path:
    with pytest.raises(SystemExit) as ended:
        main(["pack", "--quiet", "--out", str(out), *map(str, arguments)])
    assert ended.value.code == 0
    return out


LENGTHS = [5, 30, 3, 0, 4, 2, 6, 1, 7, 12, 13, 4, 3, 5, 2, 9, 41, 6, 5, 3, 8, 4, 2, 7, 6, 5, 1, 3, 24, 4] * 2
DOCS = make_documents(LENGTHS)
MASKS = make_masks(DOCS)


def records(masked: bool = False) -> list[Row]:
    if not masked:
        return [{"input_ids": ids} for ids in DOCS]
    return [{"input_ids": ids, "loss_mask": mask} for ids, mask in zip(DOCS, MASKS, strict=True)]


@pytest.fixture(autouse=True, scope="module")
def no_sync() -> Iterator[None]:
    """Durability is not what is tested here, and takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


# --- a good data set, and ways to spoil it ---------------------------------------------------------------------------


@contextmanager
def edited_manifest(out: Path) -> Iterator[dict[str, Any]]:
    path = out / "manifest.json"
    body = json.loads(path.read_bytes())
    yield body
    path.write_text(json.dumps(body))


def rewrite(
    out: Path, change: Change, *, shard: int = 1, schema: pa.Schema | None = None, group_rows: int = 1 << 20
) -> tuple[str, int]:
    """Applies a change to a shard's rows as lists. Returns the shard's path and what the change returned."""
    facts = manifests.load(out)
    name = facts.shards[shard].path
    path = out / name
    rows = [row for batch in read_shard(path, facts.file_format) for row in batch.to_pylist()]
    wrong = change(rows)
    schema = schema or shard_schema(path, facts.file_format)
    with ShardWriter(out.with_name(out.name + ".new"), schema, facts.file_format, facts.compression) as writer:
        for start in range(0, len(rows), group_rows):
            writer.write(pa.RecordBatch.from_pylist(rows[start : start + group_rows], schema=schema))
    shutil.move(writer.path, path)
    with edited_manifest(out) as body:
        body["shards"][shard] = asdict(writer.result(name))
    return name, wrong


def failure(out: Path, *inputs: Path, **options: Any) -> str:
    with pytest.raises(DatasetError) as caught:
        verify(out, [str(path) for path in inputs], **options)
    return str(caught.value)


def check_at_once(out: Path, facts: manifests.Manifest) -> None:
    documents.check(out, facts, row_rules.check(out, facts), at_once=3)
    documents.check_whole(facts)


def assert_same_at_once(out: Path, message: str) -> None:
    """Documents looked at three at a time give the same verdict."""
    facts = manifests.load(out)
    with pytest.raises(DatasetError, match=re.escape(message)):
        check_at_once(out, facts)


def segments_of(row: Row) -> list[Row]:
    """A row as a list of one-segment rows (boundaries document, positions segment)."""
    parts = []
    for i, (a, b) in enumerate(zip(row["cu_seqlens"], row["cu_seqlens"][1:], strict=False)):
        part = {name: row[name][a:b] for name in ("input_ids", "labels", "position_ids")}
        part |= {name: [row[name][i]] for name in ("doc_ids", "doc_starts", "doc_lengths", "next_tokens")}
        parts.append(part)
    return parts


def row_of(parts: list[Row]) -> Row:
    row = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    lengths = [len(part["input_ids"]) for part in parts]
    row["seq_lengths"], row["cu_seqlens"] = lengths, [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    row["num_tokens"], row["max_seqlen"] = sum(lengths), max(lengths)
    row["loss_tokens"] = sum(label != -100 for label in row["labels"])
    row["attention_cost"] = sum(n * n for n in lengths)
    return row


def find(rows: list[Row], wanted: Callable[[Row], bool]) -> int:
    """The last row like that: not the first of its shard, so that a row number that is always 0 shows."""
    return next(i for i in reversed(range(len(rows))) if wanted(rows[i]))


def several(row: Row) -> bool:
    return len(row["doc_ids"]) > 1


def length_of(row: Row, segment: int) -> int:
    return row["cu_seqlens"][segment + 1] - row["cu_seqlens"][segment]


def goes_on(row: Row, segment: int) -> bool:
    """Whether the segment's document has another one after it."""
    return row["doc_starts"][segment] + length_of(row, segment) < row["doc_lengths"][segment]


OPTIONS: dict[str, list[object]] = {
    "aligned": [],
    "shifted": ["--labels", "shifted"],
    "row": ["--boundaries", "row", "--strategy", "wrapped"],
    "row shifted": ["--boundaries", "row", "--labels", "shifted", "--strategy", "wrapped"],
    "position row": ["--positions", "row"],
    "position document": ["--positions", "document"],
    "compact": ["--columns", "compact"],
    "masked": ["--overlong", "split"],
    "masked shifted": ["--overlong", "split", "--labels", "shifted"],
    "masked compact": ["--overlong", "split", "--columns", "compact"],
    "arrow": ["--format", "arrow"],
    "arrow-stream": ["--format", "arrow-stream"],
    "truncate": ["--overlong", "truncate"],
    "truncate-left": ["--overlong", "truncate-left"],
    "drop": ["--overlong", "drop"],
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Data sets that are made once, with their INPUT."""
    made: dict[str, tuple[Path, Path]] = {}

    def get(kind: str) -> tuple[Path, Path]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("good")
            source = write_lines(folder / "docs.jsonl", records("masked" in kind))
            arguments = ["--max-length", MAX_LENGTH, "--rows-per-shard", 16, *OPTIONS[kind]]
            made[kind] = pack(folder / "out", source, *arguments), source
        return made[kind]

    return get


@pytest.fixture
def copy(good: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """A data set of one kind to spoil, with its INPUT."""

    def get(kind: str = "aligned") -> tuple[Path, Path]:
        out, source = good(kind)
        return Path(shutil.copytree(out, tmp_path / "out")), Path(shutil.copy(source, tmp_path / "docs.jsonl"))

    return get


Copy = Callable[..., tuple[Path, Path]]

# --- good ones -------------------------------------------------------------------------------------------------------

CHOICES: dict[str, list[Any]] = {
    "--format": ["parquet", "arrow", "arrow-stream"],
    "--columns": ["full", "compact"],
    "--labels": ["aligned", "shifted"],
    "--boundaries": ["document", "row"],
    "--positions": ["segment", "row", "document"],
    "--strategy": ["bfd", "ffd", "optimal", "first-fit", "wrapped", "none"],
    "--overlong": [None, "split", "truncate", "truncate-left", "drop"],
    "--rows-per-shard": [None, None, 3, 7],
    "--block-tokens": [None, 10, 40],
    "--partition-bytes": [None, None, 100, 300],
    "--min-tokens": [None, 3],
    "--order": ["shuffle", "plan"],
    "--max-length": [5, 12, 64],
}


def combinations(count: int) -> list[dict[str, Any]]:
    """Drawn so that every pair of values of the first seven, with masks or without, is tried."""
    draw = random.Random(1)
    options = CHOICES | {"masked": [False, True, "some"]}
    important = [*list(CHOICES)[:7], "masked"]
    pairs = {
        (a, x, b, y)
        for i, a in enumerate(important)
        for b in important[i + 1 :]
        for x in options[a]
        for y in options[b]
    }
    chosen = []
    while pairs or len(chosen) < count:
        tried = [{name: draw.choice(values) for name, values in options.items()} for _ in range(20)]
        best = max(tried, key=lambda c: sum(c[a] == x and c[b] == y for a, x, b, y in pairs))
        pairs = {(a, x, b, y) for a, x, b, y in pairs if not (best[a] == x and best[b] == y)}
        chosen.append(best)
    return chosen


@pytest.mark.parametrize(
    "choice", combinations(50), ids=lambda c: " ".join(str(v) for v in c.values() if v is not None)
)
def test_good_data_sets_are_right(tmp_path: Path, choice: dict[str, Any]) -> None:
    masked = choice["masked"]
    halves = records(bool(masked))[:16], records(masked is True)[16:24]
    inputs = [write_lines(tmp_path / f"{i}.jsonl", half) for i, half in enumerate(halves)]
    options = [str(part) for name, value in choice.items() if name != "masked" and value is not None
               for part in (name, value)]  # fmt: skip
    out = pack(tmp_path / "out", *inputs, *options)
    verdict = verify(out, [str(path) for path in inputs])
    facts = verdict.manifest
    assert facts.layout.masked == bool(masked)
    assert verdict.tokens_compared == facts.totals.placed_tokens
    assert facts.totals.records == 24
    if choice["--overlong"] == "split" and not masked and choice["--min-tokens"] is None:
        assert verdict.tokens_compared == sum(LENGTHS[:24])
    check_at_once(out, facts)


@pytest.mark.parametrize("masked", [False, True])
def test_truncated_document_in_the_middle_of_a_row_of_a_stream(tmp_path: Path, masked: bool) -> None:
    docs = make_documents([2, 7, 2, 9, 1])
    lines = [{"input_ids": ids} | ({"loss_mask": [1] * len(ids)} if masked else {}) for ids in docs]
    source = write_lines(tmp_path / "d.jsonl", lines)
    options = ["--max-length", 4, "--strategy", "wrapped", "--boundaries", "row"]
    if masked:  # a policy for each record alone would leave open where a segment ends
        with pytest.raises(SystemExit) as ended:
            main(["pack", str(source), "--out", str(tmp_path / "out"), *map(str, options)])
        assert ended.value.code == 2
    out = pack(tmp_path / "out", source, *options, "--overlong", "truncate")
    assert verify(out, [str(source)]).tokens_compared == 2 + 4 + 2 + 4 + (not masked)  # one token alone trains nothing


def test_text_with_its_tokenizer(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "t.jsonl", [{"text": text} for text in ("one fish", "two\nfish", "", "red fish")])
    out = pack(tmp_path / "out", source, "--max-length", 7, "--tokenizer", TOKENIZER)
    assert verify(out, [str(source)]).tokens_compared == verify(out).manifest.totals.tokens
    assert verify(out, [str(source)], tokenizer=str(TOKENIZER / "tokenizer.json")).tokens_compared


def test_command(good: Callable[[str], tuple[Path, Path]], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, source = good("aligned")
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(out), str(source)])
    printed = capsys.readouterr()
    assert ended.value.code == 0
    assert f"{sum(LENGTHS):,} tokens compared" in printed.out
    spoiled = Path(shutil.copytree(out, tmp_path / "out"))
    name, row = rewrite(spoiled, spoil_scalar("max_seqlen", 1))
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(spoiled)])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (1, "")
    assert printed.err == f"packer: {name}, row {row}: broken rule: max_seqlen is the longest sequence\n"


def test_rewriting_alone_breaks_nothing(copy: Copy) -> None:
    """So what the tests below find is what they put in."""
    for kind in ("aligned", "masked compact", "arrow", "arrow-stream"):
        out, source = copy(kind)
        rewrite(out, lambda rows: len(rows), group_rows=5)
        assert verify(out, [str(source)])
        shutil.rmtree(out)
    out, source = copy("aligned")
    rewrite(out, lambda rows: rows.reverse() or 0)
    rewrite(out, lambda rows: rows.__setitem__(slice(None), [row_of(segments_of(row)[::-1]) for row in rows]) or 0)
    assert verify(out, [str(source)])


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["aligned", "arrow", "arrow-stream"])
def test_any_flipped_bit(copy: Copy, kind: str) -> None:
    out, _ = copy(kind)
    shard = manifests.load(out).shards[1].path
    path, draw = out / shard, random.Random(kind)
    whole = path.read_bytes()
    for at in [0, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(60))]:
        spoiled = bytearray(whole)
        spoiled[at] ^= 1 << draw.randrange(8)
        path.write_bytes(spoiled)
        assert failure(out) == f"{shard}: checksum: its bytes are not those that were written"
    path.write_bytes(whole)
    assert verify(out)


@pytest.mark.parametrize("kind", ["aligned", "arrow", "arrow-stream"])
@pytest.mark.parametrize("left", [0.0, 0.3, 0.99])
def test_cut_file(copy: Copy, kind: str, left: float) -> None:
    out, _ = copy(kind)
    shard = manifests.load(out).shards[2]
    path = out / shard.path
    path.write_bytes(path.read_bytes()[: int(shard.bytes * left)])
    assert failure(out).startswith(f"{shard.path}: size: {int(shard.bytes * left)} bytes, ")


def test_cut_stream_that_the_manifest_agrees_with(copy: Copy) -> None:
    """A stream cut between batches reads as fewer rows, without an error."""
    out, _ = copy("arrow-stream")
    name, _ = rewrite(out, lambda rows: rows.__delitem__(slice(-2, None)) or 0)
    with edited_manifest(out) as body:
        body["shards"][1]["rows"] += 2
    assert failure(out).startswith(f"{name}: totals: ")


def test_missing_and_extra_and_swapped(copy: Copy) -> None:
    out, _ = copy()
    first, second = (shard.path for shard in manifests.load(out).shards[:2])
    for name in ("notes.txt", ".hidden", "train-00009-of-00009.parquet"):
        (out / "data" / name).write_bytes((out / first).read_bytes())
        assert failure(out) == f"data/{name}: files: the manifest does not know this file"
        (out / "data" / name).unlink()
    (out / "data" / "folder").mkdir()
    assert failure(out).startswith("data/folder: files: ")
    (out / "data" / "folder").rmdir()
    (out / second).rename(out / "aside")
    assert failure(out) == f"{second}: files: the shard is missing"
    (out / first).rename(out / second)
    (out / "aside").rename(out / first)
    assert re.match(rf"{first}: (size|checksum): ", failure(out))


def test_swapped_shards_of_one_size(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "d.jsonl", [{"input_ids": [n] * 4} for n in range(1, 9)])
    out = pack(tmp_path / "out", source, "--max-length", 4, "--rows-per-shard", 4, "--format", "arrow")
    first, second = (shard.path for shard in manifests.load(out).shards)
    contents = [(out / name).read_bytes() for name in (first, second)]
    assert len(contents[0]) == len(contents[1])
    assert contents[0] != contents[1]
    (out / first).write_bytes(contents[1])
    (out / second).write_bytes(contents[0])
    assert failure(out).startswith(f"{first}: checksum: ")


def test_no_data_folder(copy: Copy) -> None:
    out, _ = copy()
    shutil.rmtree(out / "data")
    assert "files: the shard is missing" in failure(out)


# --- columns ---------------------------------------------------------------------------------------------------------


def with_field(schema: pa.Schema, name: str, field: pa.Field | None) -> pa.Schema:
    at = schema.get_field_index(name)
    return schema.remove(at) if field is None else schema.set(at, field)


def list_of(kind: pa.DataType, *, nullable: bool = False) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=nullable))


@pytest.mark.parametrize("kind", ["aligned", "arrow"])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("input_ids", pa.field("input_ids", list_of(pa.int64()), nullable=False)),
        ("labels", pa.field("labels", list_of(pa.int32()), nullable=True)),
        ("doc_ids", pa.field("doc_ids", list_of(pa.int64(), nullable=True), nullable=False)),
        ("num_tokens", pa.field("num_tokens", pa.int64(), nullable=False)),
        ("attention_cost", pa.field("attention_cost", pa.int32(), nullable=False)),
        ("position_ids", pa.field("position_ids", pa.large_list(pa.int32()), nullable=False)),
        ("next_tokens", None),
        ("input_ids", None),
        ("loss_tokens", None),
    ],
)
def test_wrong_or_missing_column(copy: Copy, kind: str, name: str, field: pa.Field | None) -> None:
    out, _ = copy(kind)
    facts = manifests.load(out)
    schema = with_field(shard_schema(out / facts.shards[1].path, facts.file_format), name, field)
    if name == "input_ids" and field is None:  # the writer counts these
        with pytest.raises(KeyError):
            rewrite(out, lambda _rows: 0, schema=schema)
        return
    shard, _ = rewrite(out, lambda _rows: 0, schema=schema)
    found = failure(out)
    assert found.startswith(f"{shard}: columns: ")
    assert name in found


def test_columns_in_another_order_or_one_too_many(copy: Copy) -> None:
    out, _ = copy()
    schema = shard_schema(out / manifests.load(out).shards[1].path, "parquet")
    shard, _ = rewrite(out, lambda _rows: 0, schema=pa.schema(list(schema)[::-1], schema.metadata))
    assert failure(out).startswith(f"{shard}: columns: attention_cost, ")
    more = schema.append(pa.field("extra", pa.int32(), nullable=False))
    rewrite(out, lambda rows: [row.update(extra=1) for row in rows] and 0, schema=more)
    assert failure(out).startswith(f"{shard}: columns: ")


def test_shard_that_describes_itself_otherwise(copy: Copy) -> None:
    out, _ = copy()
    schema = shard_schema(out / manifests.load(out).shards[1].path, "parquet")
    for key, value in (schema.metadata or {}).items():
        changed = schema.with_metadata({**schema.metadata, key: value + b"x"})
        shard, _ = rewrite(out, lambda _rows: 0, schema=changed)
        assert failure(out) == f"{shard}: metadata: {key.decode()} is not {value.decode()!r} as the manifest says"
    shard, _ = rewrite(out, lambda _rows: 0, schema=schema.remove_metadata())
    assert failure(out).startswith(f"{shard}: metadata: ")


@pytest.mark.parametrize("name", ["num_tokens", "input_ids", "doc_ids"])
def test_null_value(copy: Copy, name: str) -> None:
    out, _ = copy("arrow")
    shard, row = rewrite(out, lambda rows: rows[3].update({name: None}) or 3, group_rows=2)
    assert failure(out) == f"{shard}, row {row}: columns: {name} has a null"


@pytest.mark.parametrize("name", ["input_ids", "labels", "cu_seqlens", "doc_ids", "next_tokens"])
def test_null_inside_a_list(copy: Copy, name: str) -> None:
    out, _ = copy("arrow")
    shard, row = rewrite(out, lambda rows: rows[3][name].__setitem__(-1, None) or 3, group_rows=1)
    assert failure(out) == f"{shard}, row {row}: columns: {name} has a null"


# --- rows: one change, one rule --------------------------------------------------------------------------------------

SHAPE_COUNTS = "num_tokens is the row's tokens, 1 to max_length"
AGREE = "lists agree in length"
RISES = "cu_seqlens rises from 0 to the token count"
WITHIN = "segments lie within their documents"
SPANS = "loss_spans rise within the row"
TOKEN_IDS = "input_ids are token ids"
DOC_IDS = "doc_ids are ordinals of the input"
SEQ_LENGTHS = "seq_lengths are the differences of cu_seqlens"
POSITIONS = "position_ids restart where they must"
NEXT = "next_tokens end with the document"
LABELS = "labels follow the convention"
LOSS = "loss_tokens counts the labels"


def spoil(name: str, edit: Callable[[list[int], Row], object], wanted: Callable[[Row], bool] = several) -> Change:
    """Edits a list column of a row in place."""

    def change(rows: list[Row]) -> int:
        row = find(rows, wanted)
        before = list(rows[row][name])
        edit(rows[row][name], rows[row])
        assert rows[row][name] != before
        return row

    return change


def put(at: int | Callable[[Row], int], value: int | Callable[[Row], int]) -> Callable[[list[int], Row], None]:
    def edit(values: list[int], row: Row) -> None:
        values[at(row) if callable(at) else at] = value(row) if callable(value) else value

    return edit


def spoil_scalar(name: str, by: int) -> Change:
    def change(rows: list[Row]) -> int:
        row = find(rows, several)
        rows[row][name] += by
        return row

    return change


def spoil_label(at: Callable[[Row], int], value: Callable[[Row], int], wanted: Callable[[Row], bool]) -> Change:
    """Changes a label, and mends loss_tokens."""

    def change(rows: list[Row]) -> int:
        row = find(rows, wanted)
        labels = rows[row]["labels"]
        assert labels[at(rows[row])] != value(rows[row])
        labels[at(rows[row])] = value(rows[row])
        rows[row]["loss_tokens"] = sum(label != -100 for label in labels)
        return row

    return change


def boundary(row: Row) -> int:
    return row["cu_seqlens"][1]


def inner_segment(row: Row) -> int:
    """First token of a row's second segment, also in a row that is one sequence."""
    return row["doc_lengths"][0] - row["doc_starts"][0]


def long_first(row: Row) -> bool:
    return several(row) and length_of(row, 0) > 2


def empty_row(rows: list[Row]) -> int:
    row = len(rows) - 1
    lists = {name: [] for name, value in rows[row].items() if isinstance(value, list)}
    rows[row] = {**dict.fromkeys(rows[row], 0), **lists, "cu_seqlens": [0]}
    return row


def long_row(rows: list[Row]) -> int:
    row = find(rows, lambda row: row["num_tokens"] == MAX_LENGTH)
    other = segments_of(rows[row - 1])
    rows[row] = row_of(segments_of(rows[row]) + other)
    return row


def add_boundary(rows: list[Row]) -> int:
    """One sequence more than segments."""
    row = find(rows, long_first)
    rows[row]["cu_seqlens"].insert(1, 1)
    return row


def moved_boundary(rows: list[Row]) -> int:
    """cu_seqlens and all that follows from it, but not what the document says of itself."""
    row = find(rows, lambda row: several(row) and length_of(row, 1) > 1 and not goes_on(row, 0))
    parts = segments_of(rows[row])
    a, b = parts[:2]
    for name in ("input_ids", "labels", "position_ids"):
        a[name].append(b[name].pop(0))
    a["labels"] = [-100, *a["input_ids"][1:]]
    b["labels"] = [-100, *b["input_ids"][1:]]
    for part in (a, b):
        part["position_ids"] = list(range(len(part["input_ids"])))
    rows[row] = row_of(parts)
    return row


def run_on(rows: list[Row]) -> int:
    row = find(rows, several)
    rows[row]["position_ids"] = list(range(rows[row]["num_tokens"]))
    return row


def restart_in(rows: list[Row]) -> int:
    row = find(rows, lambda row: row["num_tokens"] > 3)
    n = rows[row]["num_tokens"]
    rows[row]["position_ids"] = [*range(n - 2), 0, 1]
    return row


def segment_ends_with(where: Callable[[Row, int], bool]) -> tuple[Callable[[Row], bool], Callable[[Row], int]]:
    """Rows with such a segment, and its number."""

    def number(row: Row) -> int:
        return next(i for i in range(len(row["doc_ids"])) if where(row, i))

    return lambda row: any(where(row, i) for i in range(len(row["doc_ids"]))), number


HAS_END, END = segment_ends_with(lambda row, i: not goes_on(row, i))
HAS_CUT, CUT = segment_ends_with(goes_on)
HAS_TAIL, TAIL = segment_ends_with(lambda row, i: row["doc_starts"][i] > 0)


def last_of(number: Callable[[Row], int]) -> Callable[[Row], int]:
    return lambda row: row["cu_seqlens"][number(row) + 1] - 1


def other_token(rows: list[Row], value: int) -> int:
    row = find(rows, several)
    rows[row]["input_ids"][1] = value
    if rows[row]["labels"][1] != -100:
        rows[row]["labels"][1] = value
    return row


ROW_FAULTS: list[tuple[str, str, Change, str]] = [
    ("aligned", "label at a boundary", spoil_label(boundary, lambda r: r["input_ids"][boundary(r)], several), LABELS),
    ("aligned", "label at a row's start", spoil_label(lambda _r: 0, lambda r: r["input_ids"][0], several), LABELS),
    ("aligned", "other label", spoil_label(lambda _r: 1, lambda r: r["labels"][1] + 1, long_first), LABELS),
    ("aligned", "label masked", spoil_label(lambda _r: 1, lambda _r: -100, long_first), LABELS),
    ("aligned", "label at the end", spoil_label(lambda _r: -1, lambda r: r["labels"][-1] + 1, several), LABELS),
    ("shifted", "label over a boundary", spoil_label(lambda r: boundary(r) - 1,
        lambda r: r["input_ids"][boundary(r)], lambda r: several(r) and not goes_on(r, 0)), LABELS),
    ("shifted", "label not shifted", spoil_label(lambda _r: 0, lambda r: r["input_ids"][0], long_first), LABELS),
    ("shifted", "label at a document's end", spoil_label(last_of(END), lambda _r: 5, HAS_END), LABELS),
    ("shifted", "no label at a cut", spoil_label(last_of(CUT), lambda _r: -100, HAS_CUT), LABELS),
    ("row", "label masked at a segment", spoil_label(inner_segment, lambda _r: -100, several), LABELS),
    ("row", "label at the row's start", spoil_label(lambda _r: 0, lambda r: r["input_ids"][0], several), LABELS),
    ("row shifted", "label masked at a segment", spoil_label(lambda r: inner_segment(r) - 1, lambda _r: -100, several),
        LABELS),
    ("masked", "label that is another token",
        spoil_label(lambda _r: 1, lambda r: r["input_ids"][1] + 1, long_first), LABELS),
    ("masked", "label at a boundary", spoil_label(boundary, lambda r: r["input_ids"][boundary(r)], several), LABELS),
    ("masked shifted", "label over a boundary", spoil_label(lambda r: boundary(r) - 1,
        lambda r: r["input_ids"][boundary(r)], lambda r: several(r) and not goes_on(r, 0)), LABELS),
    ("aligned", "positions run on", run_on, POSITIONS),
    ("aligned", "positions restart too often", restart_in, POSITIONS),
    ("row", "positions restart in a row", restart_in, POSITIONS),
    ("position row", "positions restart in a row", restart_in, POSITIONS),
    ("position document", "positions restart", spoil("position_ids",
        lambda v, r: v.__setitem__(slice(None), [p for n in r["seq_lengths"] for p in range(n)]), HAS_TAIL), POSITIONS),
    ("aligned", "cu_seqlens from 1", spoil("cu_seqlens", put(0, 1), long_first), RISES),
    ("aligned", "cu_seqlens below 0", spoil("cu_seqlens", put(0, -1)), RISES),
    ("aligned", "cu_seqlens end early", spoil("cu_seqlens", put(-1, lambda r: r["num_tokens"] - 1),
        lambda r: several(r) and r["seq_lengths"][-1] > 1), RISES),
    ("aligned", "cu_seqlens end late", spoil("cu_seqlens", put(-1, MAX_LENGTH + 1)), RISES),
    ("aligned", "cu_seqlens twice", spoil("cu_seqlens", put(1, 0)), RISES),
    ("aligned", "cu_seqlens fall", spoil("cu_seqlens", put(1, MAX_LENGTH + 5)), RISES),
    ("aligned", "cu_seqlens lack one", spoil("cu_seqlens", lambda v, _r: v.pop(1)), AGREE),
    ("aligned", "cu_seqlens empty", spoil("cu_seqlens", lambda v, _r: v.clear()), AGREE),
    ("aligned", "cu_seqlens one more", add_boundary, AGREE),
    ("row", "cu_seqlens inside a row", spoil("cu_seqlens", lambda v, _r: v.insert(1, 1)), AGREE),
    ("aligned", "boundary moved", moved_boundary, WITHIN),
    ("compact", "cu_seqlens twice", spoil("cu_seqlens", put(1, 0)), RISES),
    ("aligned", "seq_lengths", spoil("seq_lengths", put(1, lambda r: r["seq_lengths"][1] + 1)), SEQ_LENGTHS),
    ("aligned", "seq_lengths lack one", spoil("seq_lengths", lambda v, _r: v.pop()), AGREE),
    ("aligned", "labels lack one", spoil("labels", lambda v, _r: v.pop()), AGREE),
    ("aligned", "positions lack one", spoil("position_ids", lambda v, _r: v.pop()), AGREE),
    ("aligned", "doc_ids one more", spoil("doc_ids", lambda v, _r: v.append(0)), AGREE),
    ("aligned", "doc_starts lack one", spoil("doc_starts", lambda v, _r: v.pop()), AGREE),
    ("aligned", "doc_lengths lack all", spoil("doc_lengths", lambda v, _r: v.clear()), AGREE),
    ("aligned", "next_tokens one more", spoil("next_tokens", lambda v, _r: v.append(-100)), AGREE),
    ("aligned", "empty row", empty_row, SHAPE_COUNTS),
    ("aligned", "row above max_length", long_row, SHAPE_COUNTS),
    ("aligned", "num_tokens", spoil_scalar("num_tokens", 1), SHAPE_COUNTS),
    ("aligned", "loss_tokens", spoil_scalar("loss_tokens", -1), LOSS),
    ("compact", "loss_tokens", spoil_scalar("loss_tokens", 1), LOSS),
    ("row shifted", "loss_tokens", spoil_scalar("loss_tokens", 1), LOSS),
    ("masked compact", "loss_tokens", spoil_scalar("loss_tokens", 1), LOSS),
    ("aligned", "max_seqlen", spoil_scalar("max_seqlen", 1), "max_seqlen is the longest sequence"),
    ("row", "max_seqlen", spoil_scalar("max_seqlen", -1), "max_seqlen is the longest sequence"),
    ("aligned", "attention_cost", spoil_scalar("attention_cost", 2), "attention_cost is the sum of squares"),
    ("row", "attention_cost", spoil_scalar("attention_cost", -2), "attention_cost is the sum of squares"),
    ("aligned", "token beyond all", lambda rows: other_token(rows, 1000), TOKEN_IDS),
    ("aligned", "token below 0", lambda rows: other_token(rows, -5), TOKEN_IDS),
    ("aligned", "token -100", lambda rows: other_token(rows, -100), TOKEN_IDS),
    ("aligned", "doc_ids beyond all", spoil("doc_ids", put(0, len(DOCS))), DOC_IDS),
    ("aligned", "doc_ids below 0", spoil("doc_ids", put(0, -1)), DOC_IDS),
    ("aligned", "doc_starts below 0", spoil("doc_starts", put(1, -1)), WITHIN),
    ("aligned", "doc_lengths too small", spoil("doc_lengths", put(END, lambda r: r["doc_lengths"][END(r)] - 1),
        HAS_END), WITHIN),
    ("aligned", "doc_lengths 0", spoil("doc_lengths", put(0, 0)), WITHIN),
    ("row", "doc_lengths too small", spoil("doc_lengths", put(0, 0)), WITHIN),
    ("aligned", "next_tokens at a document's end", spoil("next_tokens", put(END, 7), HAS_END), NEXT),
    ("compact", "next_tokens at a document's end", spoil("next_tokens", put(END, 7), HAS_END), NEXT),
    ("row", "next_tokens in a row", spoil("next_tokens", put(0, -100)), NEXT),
    ("masked compact", "loss_spans odd", spoil("loss_spans", lambda v, _r: v.pop(), lambda r: len(r["loss_spans"]) > 1),
        SPANS),
    ("masked compact", "loss_spans fall", spoil("loss_spans", lambda v, _r: v.reverse(),
        lambda r: len(r["loss_spans"]) > 1), SPANS),
    ("masked compact", "loss_spans touch", spoil("loss_spans", put(2, lambda r: r["loss_spans"][1]),
        lambda r: len(r["loss_spans"]) > 3), SPANS),
    ("masked compact", "loss_spans beyond", spoil("loss_spans", put(-1, lambda r: r["num_tokens"] + 1),
        lambda r: len(r["loss_spans"]) > 1), SPANS),
    ("masked compact", "loss_spans below 0", spoil("loss_spans", put(0, -1), lambda r: len(r["loss_spans"]) > 1),
        SPANS),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "rule"),
    [(kind, change, rule) for kind, _, change, rule in ROW_FAULTS],
    ids=[f"{kind}: {what}" for kind, what, _, _ in ROW_FAULTS],
)
def test_broken_row(copy: Copy, kind: str, change: Change, rule: str) -> None:
    """The row is counted within its shard, over several row groups."""
    out, _ = copy(kind)
    shard, row = rewrite(out, change, group_rows=4)
    assert failure(out) == f"{shard}, row {row}: broken rule: {rule}"


def test_every_row_rule_is_broken_above() -> None:
    assert {rule for *_, rule in ROW_FAULTS} == {*row_rules.SHAPE, *row_rules.VALUES}


# --- documents -------------------------------------------------------------------------------------------------------


def edit_segments(wanted: Callable[[Row], bool], edit: Callable[[list[Row], Row], list[Row]]) -> Change:
    def change(rows: list[Row]) -> int:
        row = find(rows, wanted)
        parts = segments_of(rows[row])
        rows[row] = row_of(edit(parts, rows[row]))
        return row

    return change


def double(rows: list[Row]) -> int:
    """A segment once more, in a row of its own."""
    row = find(rows, HAS_TAIL)
    rows.append(row_of([segments_of(rows[row])[TAIL(rows[row])]]))
    return len(rows) - 1


def other_document(part: Row) -> Row:
    """The same document but for its name, which is that of one before it of the same length."""
    lengths = {ordinal: n for ordinal, n in enumerate(LENGTHS) if n == part["doc_lengths"][0]}
    return part | {"doc_ids": [next(n for n in lengths if n != part["doc_ids"][0])]}


def lose_tail(rows: list[Row]) -> int:
    """Loses the last segment of a cut document. Wrong is where it is missed: anywhere."""
    row = find(rows, HAS_TAIL)
    parts = segments_of(rows[row])
    del parts[TAIL(rows[row])]
    rows[row : row + 1] = [row_of(parts)] if parts else []
    return -1


def is_lone(row: Row, i: int) -> bool:
    return row["doc_starts"][i] == 0 and not goes_on(row, i)


HAS_LONE, LONE = segment_ends_with(is_lone)
HAS_SHORT, SHORT = segment_ends_with(lambda row, i: is_lone(row, i) and row["doc_lengths"][i] < MAX_LENGTH)


def replace_part(number: Callable[[Row], int], **values: int) -> Callable[[list[Row], Row], list[Row]]:
    """Adds to values of a segment."""

    def edit(parts: list[Row], row: Row) -> list[Row]:
        part = parts[number(row)]
        for name, by in values.items():
            part[name] = [part[name][0] + by]
        return parts

    return edit


DOCUMENT_FAULTS: list[tuple[str, str, Change, str]] = [
    ("aligned", "lost tail", lose_tail, r"document \d+: tokens (are missing after|before \d+ are missing).*"),
    ("aligned", "doubled", double, r"document \d+: tokens from \d+ on are placed twice"),
    ("aligned", "another document's name", edit_segments(HAS_LONE, lambda parts, r:
        [other_document(p) if i == LONE(r) else p for i, p in enumerate(parts)]),
        r"document \d+: tokens from 0 on are placed twice"),
    ("aligned", "longer document", edit_segments(HAS_LONE, replace_part(LONE, doc_lengths=1)),
        r"document \d+: tokens are missing after this segment"),
    ("aligned", "moved away from its start", edit_segments(HAS_LONE, replace_part(LONE, doc_lengths=2, doc_starts=2)),
        r"document \d+: tokens before 2 are missing"),
    ("aligned", "moved back", edit_segments(HAS_TAIL, replace_part(TAIL, doc_starts=-1)),
        r"document \d+: tokens from \d+ on are placed twice"),
    ("aligned", "lengths differ", edit_segments(HAS_CUT, replace_part(CUT, doc_lengths=1)),
        r"doc_lengths differ between the segments of document \d+"),
    ("aligned", "next token of a cut", spoil("next_tokens", put(CUT, 1000), HAS_CUT),
        r"next_tokens is not the token with which document \d+ goes on"),
    ("aligned", "no next token at a cut", spoil("next_tokens", put(CUT, -100), HAS_CUT),
        r"next_tokens is not the token with which document \d+ goes on"),
    ("masked", "next token of a cut", spoil("next_tokens", put(CUT, 1000), HAS_CUT),
        r"next_tokens is not the token with which document \d+ goes on"),
    ("truncate", "longer than truncated", edit_segments(HAS_SHORT, replace_part(SHORT, doc_lengths=1)),
        r"document \d+: tokens are missing after this segment"),
    ("truncate-left", "not the end", edit_segments(lambda r: r["doc_starts"][0] > 2, replace_part(lambda _r: 0,
        doc_starts=-1)), r"(document \d+: tokens from \d+ on are placed twice|.*next_tokens.*)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "rule"),
    [(kind, change, rule) for kind, _, change, rule in DOCUMENT_FAULTS],
    ids=[f"{kind}: {what}" for kind, what, _, _ in DOCUMENT_FAULTS],
)
def test_broken_document(copy: Copy, kind: str, change: Change, rule: str) -> None:
    """The row named is one of the document's: another segment of it may be the one that does not fit."""
    out, _ = copy(kind)
    changed: list[int] = []

    def kept(rows: list[Row]) -> int:
        row = change(rows)
        changed.extend([] if row < 0 else rows[row]["doc_ids"])
        return row

    rewrite(out, kept)
    found = failure(out)
    match = re.fullmatch(rf"(data/\S+), row (\d+): broken rule: ({rule})", found)
    assert match, found
    document = int(re.search(r"document (\d+)", found)[1])  # type: ignore[index]
    assert not changed or document in changed
    rows = [row for batch in read_shard(out / match[1], "parquet") for row in batch.to_pylist()]
    assert document in rows[int(match[2])]["doc_ids"]
    assert_same_at_once(out, found)


def test_lost_documents_are_missed_in_the_totals(copy: Copy) -> None:
    """Totals that agree with the rows but leave documents unaccounted for."""
    out, _ = copy()
    lost: list[Row] = []
    rewrite(out, lambda rows: lost.append(rows.pop(find(rows, lambda r: all(is_lone(r, i) for i in range(len(r["doc_ids"])))))) or 0)  # fmt: skip  # noqa: E501
    with edited_manifest(out) as body:
        totals = body["totals"]
        for name, value in (
            ("rows", 1),
            ("segments", len(lost[0]["doc_ids"])),
            ("placed_tokens", lost[0]["num_tokens"]),
            ("loss_tokens", lost[0]["loss_tokens"]),
            ("attention_cost", lost[0]["attention_cost"]),
        ):
            assert f"totals: {name} is" in failure_after(out, body)
            totals[name] -= value
        assert "totals: placed_documents is" in failure_after(out, body)
        totals["placed_documents"] -= len(lost[0]["doc_ids"])
    found = failure(out)
    assert found.startswith("manifest.json: totals: documents is ")
    assert_same_at_once(out, found)


def failure_after(out: Path, body: dict[str, Any]) -> str:
    (out / "manifest.json").write_text(json.dumps(body))
    return failure(out)


def test_truncated_end_has_no_next_token(copy: Copy) -> None:
    """A document ends where it was truncated: its tokens beyond are no targets."""
    out, source = copy("truncate")
    rewrite(out, spoil("next_tokens", put(CUT, 7), HAS_CUT))
    assert "next_tokens" in failure(out, source)


def test_row_order_and_document_order_are_free(copy: Copy) -> None:
    """Documents may stand in any row: two of one length exchanged whole, with their names."""
    out, source = copy()
    rewrite(out, lambda rows: rows.sort(key=lambda row: row["doc_ids"]) or 0)
    assert verify(out, [str(source)])


# --- the manifest ----------------------------------------------------------------------------------------------------

FIGURES = [
    *(("totals", field.name) for field in fields(Totals)),
    *(("losses", field.name) for field in fields(Losses) if not field.name.endswith("_trained_tokens")),
    *(("inputs", 0, name) for name in ("first_doc", "documents", "tokens")),
    *(("shards", 1, name) for name in ("rows", "tokens", "bytes")),
    ("lower_bound",),
    ("efficiency",),
    ("packing_factor",),
    ("max_length",),
]


@pytest.mark.parametrize("kind", ["aligned", "drop"])
@pytest.mark.parametrize("place", FIGURES, ids=lambda place: ".".join(map(str, place)))
def test_wrong_figure(copy: Copy, kind: str, place: tuple[str | int, ...]) -> None:
    out, _ = copy(kind)
    for by in (1, -1):
        if place == ("totals", "max_token_id") and kind != "aligned" and by > 0:
            continue  # the token may be one of those that were lost
        with edited_manifest(out) as body:
            at: Any = body
            for step in place[:-1]:
                at = at[step]
            at[place[-1]] += by
        found = failure(out)
        shard = manifests.load(out).shards[1].path
        if place[0] == "shards":
            assert found.startswith(f"{shard}: "), by
        elif place[0] != "max_length":
            if place not in (("totals", "max_token_id"), ("totals", "records")):
                assert found.startswith("manifest.json: totals: "), by
                assert place[0] != "totals" or str(place[-1]) in found or place[-1] in ("skipped", "empty"), by
            if by == 1:
                assert_same_at_once(out, found)
        with edited_manifest(out):
            at[place[-1]] -= by
        (out / "manifest.json").write_text(json.dumps(body))
    if place[0] not in ("efficiency", "packing_factor"):
        assert verify(out)


@pytest.mark.parametrize("name", [field.name for field in fields(Losses) if field.name.endswith("_trained_tokens")])
def test_wrong_figure_of_lost_trained_tokens(copy: Copy, name: str) -> None:
    """Rows do not tell what was lost of a mask; INPUT does."""
    out, source = copy("truncate")
    with edited_manifest(out) as body:
        body["losses"][name] += 1
    assert "trained tokens that are in no row, but the manifest says" in failure(out, source)


def test_huge_number_of_records(copy: Copy) -> None:
    """A damaged count must not make verify run for hours."""
    out, _ = copy()
    with edited_manifest(out) as body:
        body["totals"]["records"] = 1 << 50

    class TooSlowError(BaseException):
        pass

    def too_slow(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, too_slow)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        assert failure(out).startswith("manifest.json: totals: ")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("name", "value"),
    [("labels", "shifted"), ("boundaries", "row"), ("positions", "row"), ("columns", "compact"), ("masked", True)],
)
def test_another_convention(copy: Copy, name: str, value: object) -> None:
    out, _ = copy()
    with edited_manifest(out) as body:
        body["layout"][name] = value
    assert failure(out).startswith(manifests.load(out).shards[0].path)


def test_another_checksum_and_a_shard_twice(copy: Copy) -> None:
    out, _ = copy()
    with edited_manifest(out) as body:
        body["shards"][2]["sha256"] = "0" * 64
    assert failure(out).startswith(f"{manifests.load(out).shards[2].path}: checksum: ")
    with edited_manifest(out) as body:
        body["shards"][2] = body["shards"][1]
    assert "listed twice" in failure(out)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../out/data/x.parquet", "data/../../x.parquet", "data/..", "{out}/data/x.parquet"]
)
def test_shard_path_that_leaves_the_data_set(copy: Copy, path: str) -> None:
    out, _ = copy()
    with edited_manifest(out) as body:
        body["shards"][1]["path"] = path.format(out=out)
    assert "leaves the data set" in failure(out)


def test_manifest_missing(copy: Copy, tmp_path: Path) -> None:
    out, _ = copy()
    (out / "manifest.json").unlink()
    assert "no manifest.json" in failure(out)
    assert "no manifest.json" in failure(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", "not packer's"),
        (b"{}", "not packer's"),
        (b'{"format": "other", "format_version": 1}', "not packer's"),
        (b'{"format": "packer"}', "format version"),
        (b'{"format": "packer", "format_version": 3}', "format version 3"),
        (b'{"format": "packer", "format_version": 1}', "damaged"),
    ],
)
def test_manifest_that_is_none(copy: Copy, content: bytes, words: str) -> None:
    out, _ = copy()
    (out / "manifest.json").write_bytes(content)
    found = failure(out)
    assert words in found
    assert "manifest.json" in found


CHECKED = ["format", "format_version", "file_format", "layout", "max_length", "options", "inputs", "totals", "losses",
           "lower_bound", "efficiency", "packing_factor", "shards"]  # fmt: skip


@pytest.mark.parametrize("key", CHECKED)
def test_manifest_with_a_wrong_part(copy: Copy, key: str) -> None:
    """Whatever stands in one place of it, that is told as a known error, and nothing else is raised."""
    out, _ = copy()
    whole = json.loads((out / "manifest.json").read_bytes())
    for value in (None, 7, "x", [], [7], {"x": 1}):
        assert failure_after(out, whole | {key: value}), value
    assert failure_after(out, {k: v for k, v in whole.items() if k != key})


def test_manifest_with_a_figure_that_is_none(copy: Copy) -> None:
    out, _ = copy()
    for place in FIGURES:
        for value in (None, "7", [7]):
            body = json.loads((out / "manifest.json").read_bytes())
            at: Any = body
            for step in place[:-1]:
                at = at[step]
            before, at[place[-1]] = at[place[-1]], value
            assert failure_after(out, body), (place, value)
            at[place[-1]] = before
            (out / "manifest.json").write_text(json.dumps(body))


def test_manifest_with_an_unknown_key(copy: Copy) -> None:
    out, _ = copy()
    with edited_manifest(out) as body:
        body["surprise"] = 1
    assert "damaged" in failure(out)


# --- INPUT -----------------------------------------------------------------------------------------------------------


def changed_token(rows: list[Row]) -> int:
    """Another token, where every rule still holds: its label too, and not one that a cut names."""
    row = find(rows, lambda r: HAS_LONE(r) and length_of(r, LONE(r)) > 2)
    at = rows[row]["cu_seqlens"][LONE(rows[row])] + 1
    token = rows[row]["input_ids"][at]
    rows[row]["input_ids"][at] = rows[row]["labels"][at] = token - 1 if token > 1 else 2
    return rows[row]["doc_ids"][LONE(rows[row])]


def test_changed_token(copy: Copy) -> None:
    out, source = copy()
    _, document = rewrite(out, changed_token)
    assert verify(out)
    assert failure(out, source) == f"document {document}, position 1: the token is not that of INPUT"


def test_documents_exchanged(copy: Copy) -> None:
    """Two documents of one length under each other's name."""
    out, source = copy()

    def exchange(rows: list[Row]) -> int:
        places = [(i, j) for i, row in enumerate(rows) for j in range(len(row["doc_ids"])) if is_lone(row, j)]
        by_length: dict[int, tuple[int, int]] = {}
        for i, j in places:
            n = rows[i]["doc_lengths"][j]
            if n > 2 and n in by_length:
                a, b = by_length[n]
                ids = rows[i]["doc_ids"], rows[a]["doc_ids"]
                ids[0][j], ids[1][b] = ids[1][b], ids[0][j]
                return min(ids[0][j], ids[1][b])
            by_length[n] = i, j
        raise AssertionError("no two of one length")

    _, document = rewrite(out, exchange)
    assert verify(out)
    assert failure(out, source).startswith(f"document {document}, position 0: the token is not")


@pytest.mark.parametrize("kind", ["masked", "masked shifted", "masked compact"])
def test_changed_loss_mask(copy: Copy, kind: str) -> None:
    out, source = copy(kind)

    def mask_one(rows: list[Row]) -> int:
        """Trains one token less, which is no first token of its segment."""
        if kind == "masked compact":

            def middle(row: Row) -> list[int]:
                inner = set(range(row["num_tokens"])) - set(row["cu_seqlens"])
                return [i for i in range(0, len(row["loss_spans"]), 2)
                        if row["loss_spans"][i] in inner and row["loss_spans"][i + 1] - row["loss_spans"][i] > 1]  # fmt: skip  # noqa: E501

            row = rows[find(rows, lambda r: bool(middle(r)))]
            row["loss_spans"][middle(row)[0]] += 1
        else:

            def visible(row: Row) -> list[int]:
                ends = {end - 1 for end in row["cu_seqlens"]} if kind == "masked shifted" else set()
                return [i for i, label in enumerate(row["labels"]) if label != -100 and i not in ends]

            row = rows[find(rows, lambda r: bool(visible(r)))]
            row["labels"][visible(row)[0]] = -100
        row["loss_tokens"] -= 1
        return 0

    rewrite(out, mask_one)
    with edited_manifest(out) as body:
        body["totals"]["loss_tokens"] -= 1
    assert verify(out)
    assert re.fullmatch(r"document \d+, position \d+: the loss mask is not that of INPUT", failure(out, source))


def test_changed_loss_mask_in_input(copy: Copy) -> None:
    out, source = copy("masked")
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    lines[6]["loss_mask"][3] ^= 1
    write_lines(source, lines)
    assert failure(out, source) == "document 6, position 3: the loss mask is not that of INPUT"


def test_input_with_more_fewer_or_other_records(copy: Copy) -> None:
    out, source = copy()
    lines = source.read_text().splitlines()
    spoiled = {
        "one more": [*lines, '{"input_ids": [1]}'],
        "one more, empty": [*lines, '{"input_ids": []}'],
        "one less": lines[:-1],
        "none": ['{"input_ids": []}'],
        "one less in the middle": lines[:9] + lines[10:],
        "one doubled": [*lines[:9], lines[9], *lines[9:]],
        "two exchanged": [lines[1], lines[0], *lines[2:]],
        "one longer": ['{"input_ids": [1, 2, 3, 4, 5, 6]}', *lines[1:]],
        "one emptied": ['{"input_ids": []}', *lines[1:]],
    }
    for what, changed in spoiled.items():
        source.write_text("\n".join(changed) + "\n")
        assert failure(out, source), what
    source.write_text("\n".join(lines) + "\n")
    assert verify(out, [str(source)]), "the right one is still right"
    assert failure(out, source, source)


def test_input_with_another_dropped_document(copy: Copy) -> None:
    """A document that fits in INPUT, but is accounted for as too long."""
    out, source = copy("drop")
    lines = source.read_text().splitlines()
    assert len(json.loads(lines[1])["input_ids"]) > MAX_LENGTH
    lines[1] = '{"input_ids": [1, 2, 3]}'
    source.write_text("\n".join(lines) + "\n")
    assert failure(out, source)


def test_another_tokenizer(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "t.jsonl", [{"text": "one fish"}, {"text": "two fish"}])
    out = pack(tmp_path / "out", source, "--max-length", 7, "--tokenizer", TOKENIZER)
    other = Path(shutil.copytree(TOKENIZER, tmp_path / "other"))
    body = json.loads((other / "tokenizer.json").read_bytes())
    (other / "tokenizer.json").write_text(json.dumps(body))
    assert "is not the one the data set was made with" in failure(out, source, tokenizer=str(other))
    source.write_text('{"text": "one fish"}\n{"text": "two fisk"}\n')
    assert re.match(r"document 1", failure(out, source))
    with edited_manifest(out) as manifest:
        manifest["tokenizer"]["fingerprint"] = "0" * 64
    assert failure(out).startswith("data/")


def test_tokenizer_for_ready_made_ids(copy: Copy) -> None:
    out, source = copy()
    with pytest.raises(UsageError):
        verify(out, [str(source)], tokenizer=str(TOKENIZER))


def test_missing_input(copy: Copy, tmp_path: Path) -> None:
    out, _ = copy()
    with pytest.raises(PackerError, match="no such file"):
        verify(out, [str(tmp_path / "nowhere.jsonl")])


def test_files_alone(copy: Copy) -> None:
    """What `files` promises on its own: a shard that cannot be opened is named."""
    out, _ = copy()
    facts = manifests.load(out)
    path = out / facts.shards[1].path
    path.write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    with pytest.raises(DatasetError, match=re.escape(facts.shards[1].path)):
        files.check(out, facts)
