"""`verify` accepts what `window` writes, and names every fault that is put into it.

Rows are changed, written again, and everything in the manifest that a plain count of rows and tokens gives is mended.
So only a rule on windows can notice.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from packer import manifest as manifests
from packer.cli import main
from packer.errors import DatasetError
from packer.shards import ShardWriter, read_shard, shard_schema
from packer.verify import verify
from packer.windowing import Coverage

Row = dict[str, Any]
Change = Callable[[list[Row]], None]
SIZE, STRIDE = 8, 3
LENGTHS = [30, 5, 1, 8, 17, 9, 2, 41, 12, 3, 26, 7]
DRAW = random.Random(0)
DOCS = [[DRAW.randrange(1, 1000) for _ in range(n)] for n in LENGTHS]
MASKS = [[int(DRAW.random() < 0.7) for _ in ids] for ids in DOCS]
STREAM = [(document, position) for document, n in enumerate(LENGTHS) for position in range(n)]

KINDS: dict[str, list[object]] = {
    "keep": [],
    "masked overlap": ["--mask-overlap"],
    "aligned": ["--mask-overlap", "--labels", "aligned"],
    "compact": ["--mask-overlap", "--columns", "compact"],
    "drop": ["--tail", "drop"],
    "align": ["--tail", "align"],
    "gaps": ["--stride", SIZE + 3, "--allow-gaps"],
    "corpus": ["--scope", "corpus"],
    "corpus masked overlap": ["--scope", "corpus", "--mask-overlap"],
    "corpus aligned": ["--scope", "corpus", "--mask-overlap", "--labels", "aligned"],
    "corpus drop": ["--scope", "corpus", "--tail", "drop"],
    "corpus end to end": ["--scope", "corpus", "--stride", SIZE],
    "corpus gaps": ["--scope", "corpus", "--stride", 3 * SIZE, "--allow-gaps"],
    "loss masks": ["--mask-overlap"],
    "corpus loss masks": ["--scope", "corpus", "--mask-overlap"],
}


@pytest.fixture(autouse=True, scope="module")
def no_sync() -> Iterator[None]:
    """Durability is not what is tested here, and takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def window(source: Path, out: Path, *options: object) -> Path:
    stride = [] if "--stride" in options else ["--stride", STRIDE]
    arguments = [source, "--context-size", SIZE, "--out", out, "--order", "plan", *stride, *options]
    with pytest.raises(SystemExit) as ended:
        main(["window", "--quiet", *map(str, arguments)])
    assert ended.value.code == 0
    return out


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Data sets that are made once, with their INPUT."""
    made: dict[str, tuple[Path, Path]] = {}

    def get(kind: str) -> tuple[Path, Path]:
        if kind not in made:
            folder = tmp_path_factory.mktemp("good")
            masks: list[Any] = MASKS if "loss masks" in kind else [None] * len(DOCS)
            records = [{"input_ids": d} | ({"loss_mask": m} if m else {}) for d, m in zip(DOCS, masks, strict=True)]
            source = folder / "docs.jsonl"
            source.write_text("".join(json.dumps(record) + "\n" for record in records))
            made[kind] = window(source, folder / "out", *KINDS[kind]), source
        return made[kind]

    return get


@pytest.fixture
def copy(good: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    def get(kind: str) -> tuple[Path, Path]:
        out, source = good(kind)
        return Path(shutil.copytree(out, tmp_path / "out")), Path(shutil.copy(source, tmp_path / "docs.jsonl"))

    return get


Copy = Callable[[str], tuple[Path, Path]]


def rewrite(out: Path, change: Change) -> None:
    """Applies a change to the rows as lists, a few to a row group, and mends the manifest."""
    facts = manifests.load(out)
    [shard] = facts.shards
    path = out / shard.path
    rows = [row for batch in read_shard(path, "parquet") for row in batch.to_pylist()]
    change(rows)
    schema = shard_schema(path, "parquet")
    with ShardWriter(out / "new", schema, "parquet", "zstd") as writer:
        for start in range(0, len(rows), 4):
            writer.write(pa.RecordBatch.from_pylist(rows[start : start + 4], schema=schema))
    shutil.move(writer.path, path)
    body = json.loads((out / "manifest.json").read_bytes())
    body["shards"] = [asdict(writer.result(shard.path))]
    totals, coverage = body["totals"], body["coverage"]
    totals["rows"], totals["segments"] = len(rows), sum(len(row["doc_ids"]) for row in rows)
    for name, column in (("placed_tokens", "num_tokens"), ("loss_tokens", "loss_tokens")):
        totals[name] = sum(row[column] for row in rows)
    totals["attention_cost"] = sum(row["attention_cost"] for row in rows)
    totals["max_seqlen"] = max(row["max_seqlen"] for row in rows)
    body["lower_bound"] = -(-totals["placed_tokens"] // SIZE)
    body["efficiency"] = totals["placed_tokens"] / (SIZE * len(rows))
    body["packing_factor"] = totals["segments"] / len(rows)
    coverage["windows"], coverage["tokens"] = len(rows), totals["placed_tokens"]
    coverage["duplication"] = coverage["tokens"] / coverage["distinct_tokens"]
    (out / "manifest.json").write_text(json.dumps(body))


def failure(out: Path, *inputs: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        verify(out, [str(path) for path in inputs])
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_good_windows_are_right(copy: Copy, kind: str) -> None:
    """Also when they are written again in another order: what the tests below find is what they put in."""
    out, source = copy(kind)
    verdict = verify(out, [str(source)])
    coverage = verdict.manifest.coverage
    assert coverage
    assert verdict.tokens_compared is not None
    assert verdict.tokens_compared >= coverage.distinct_tokens
    rewrite(out, lambda rows: rows.reverse())
    assert verify(out, [str(source)]).tokens_compared == verdict.tokens_compared


# --- rows ------------------------------------------------------------------------------------------------------------


def mended(row: Row) -> Row:
    """What follows from a row's lists."""
    n = len(row["input_ids"])
    row["position_ids"], row["seq_lengths"], row["cu_seqlens"] = list(range(n)), [n], [0, n]
    row["num_tokens"] = row["max_seqlen"] = n
    row["attention_cost"] = n * n
    row["loss_tokens"] = sum(label != -100 for label in row["labels"])
    return row


def at(start: int, length: int = SIZE, document: int = 0, *, corpus: bool = False) -> Row:
    """A window of the documents, labels shifted and none masked."""
    stream = STREAM if corpus else [place for place in STREAM if place[0] == document]
    places = stream[start : start + length]
    following = [DOCS[d][p] for d, p in stream[start + 1 : start + length + 1]]
    documents = sorted({d for d, _ in places})
    ends = [max(i for i, (d, _) in enumerate(places) if d == document) for document in documents]
    labels = [*following, -100][: len(places)]
    return mended(
        {
            "input_ids": [DOCS[d][p] for d, p in places],
            "labels": labels,
            "doc_ids": documents,
            "doc_starts": [min(p for d, p in places if d == document) for document in documents],
            "doc_lengths": [LENGTHS[document] for document in documents],
            "next_tokens": [labels[end] for end in ends],
        }
    )


def swap(index: int, row: Callable[[], Row] | None) -> Change:
    """Another row in this one's place, or none."""
    return lambda rows: rows.__setitem__(slice(index, index + 1), [row()] if row else [])


def add(row: Row) -> Change:
    return lambda rows: rows.append(row)


def last(rows: list[Row], document: int) -> int:
    return max(i for i, row in enumerate(rows) if row["doc_ids"] == [document])


def label(index: int, position: int, value: int | None = None) -> Change:
    """Another label; None: the next token. The label at a segment's end stands in next_tokens too."""

    def change(rows: list[Row]) -> None:
        row = rows[index]
        new = rows[index]["input_ids"][position + 1] if value is None else value
        assert row["labels"][position] != new
        row["labels"][position] = new
        if position in (-1, row["num_tokens"] - 1):
            row["next_tokens"][-1] = new
        row["loss_tokens"] = sum(label != -100 for label in row["labels"])

    return change


def token(rows: list[Row]) -> None:
    """Another token in one of the windows that hold it, and where it is the label there."""
    rows[1]["input_ids"][4] = rows[1]["labels"][3] = rows[1]["input_ids"][4] % 900 + 1


BEGINS, ONCE, FULL = "a window begins where the options put one", "no window is there twice", "holds all the tokens"
MISSING, NO_LABEL, NEXT = "is missing", "no label is missing", "labels are the next tokens"
AGAIN, BEYOND = "a label that an earlier window has is masked", "no label goes beyond the end"
FAULTS: list[tuple[str, str, Change, str]] = [
    ("keep", "first window missing", swap(0, None), "document 0: the window at token 0 is missing"),
    ("keep", "window missing", swap(2, None), "document 0: the window at token 6 is missing"),
    ("keep", "tail missing", lambda rows: swap(last(rows, 0), None)(rows),
        "document 0: the window at token 24 is missing"),
    ("masked overlap", "window missing", swap(1, None), "document 0: the window at token 3 is missing"),
    ("corpus", "first window missing", swap(0, None), "the corpus: the window at token 0 is missing"),
    ("corpus", "window missing", swap(5, None), "the corpus: the window at token 15 is missing"),
    ("corpus", "tail missing", lambda rows: swap(len(rows) - 1, None)(rows), "the corpus: the window at token"),
    ("align", "tail missing", lambda rows: swap(last(rows, 0), None)(rows),
        "document 0: the window at token 21 is missing"),
    ("keep", "window doubled", lambda rows: rows.append(rows[1]), ONCE),
    ("keep", "window doubled side by side", lambda rows: rows.insert(1, rows[1]), ONCE),
    ("corpus", "window doubled", lambda rows: rows.append(rows[2]), ONCE),
    ("keep", "one doubled, one missing", lambda rows: rows.__setitem__(1, rows[2]), ONCE),
    ("keep", "window moved", swap(1, lambda: at(4)), BEGINS),
    ("keep", "tail moved", lambda rows: rows.__setitem__(last(rows, 0), at(25)), BEGINS),
    ("corpus", "window moved", swap(1, lambda: at(4, corpus=True)), BEGINS),
    ("align", "tail at the next step", lambda rows: rows.__setitem__(last(rows, 4), at(9, 8, 4)), BEGINS),
    ("gaps", "window moved into the gap", swap(1, lambda: at(10)), BEGINS),
    ("keep", "window short of a token", swap(1, lambda: at(3, SIZE - 1)), FULL),
    ("corpus", "window short of a token", swap(1, lambda: at(3, SIZE - 1, corpus=True)), FULL),
    ("keep", "tail too short", lambda rows: rows.__setitem__(last(rows, 0), at(24, 5)), FULL),
    ("drop", "tail that is dropped", add(at(24)), BEGINS),
    ("keep", "a token alone", add(at(0, 1, 2)), BEGINS),
    ("masked overlap", "tail that predicts nothing new", add(at(3, 6, 5)), BEGINS),
    ("masked overlap", "label before the edge", label(1, SIZE - STRIDE - 1), AGAIN),
    ("masked overlap", "first label", label(1, 0), AGAIN),
    ("masked overlap", "label after the edge masked", label(1, SIZE - STRIDE, -100), NO_LABEL),
    ("masked overlap", "last label masked", label(1, -1, -100), NO_LABEL),
    ("corpus masked overlap", "label before the edge", label(1, SIZE - STRIDE - 1), AGAIN),
    ("corpus masked overlap", "label after the edge masked", label(1, SIZE - STRIDE, -100), NO_LABEL),
    ("keep", "last label", label(1, -1, 7), NEXT),
    ("keep", "last label masked", label(1, -1, -100), NO_LABEL),
    ("corpus", "last label", label(1, -1, 7), NEXT),
    ("corpus end to end", "last label", label(1, -1, 7), NEXT),
    ("corpus end to end", "last label masked", label(1, -1, -100), NO_LABEL),
    ("keep", "label beyond the document", lambda rows: label(last(rows, 0), -1, 5)(rows),
        "next_tokens end with the document"),
    ("corpus", "label beyond the corpus", lambda rows: label(len(rows) - 1, -1, 5)(rows), BEYOND),
    ("loss masks", "label before the edge", label(1, SIZE - STRIDE - 1), AGAIN),
    ("keep", "one token", token, "is another in another row"),
    ("corpus", "one token", token, "is another in another row"),
    ("keep", "document length", lambda rows: rows[1].update(doc_lengths=[31]), "doc_lengths differ"),
    ("corpus", "document length", lambda rows: rows[1].update(doc_lengths=[31]), "doc_lengths differ"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "rule"),
    [(kind, change, rule) for kind, _, change, rule in FAULTS],
    ids=[f"{kind}: {what}" for kind, what, _, _ in FAULTS],
)
def test_spoiled_windows(copy: Copy, kind: str, change: Change, rule: str) -> None:
    out, _ = copy(kind)
    rewrite(out, change)
    assert re.search(rule, failure(out)), failure(out)


@pytest.mark.parametrize("kind", ["aligned", "corpus aligned"])
@pytest.mark.parametrize(("position", "rule"), [(SIZE - STRIDE, AGAIN), (SIZE - STRIDE + 1, NO_LABEL)])
def test_the_edge_of_the_overlap_in_aligned_labels(copy: Copy, kind: str, position: int, rule: str) -> None:
    """The label of a token stands at the token itself."""

    def change(rows: list[Row]) -> None:
        row = next(row for row in rows[1:] if len(row["doc_ids"]) == 1 and row["doc_starts"] == [STRIDE])
        row["labels"][position] = row["input_ids"][position] if rule == AGAIN else -100
        row["loss_tokens"] += 1 if rule == AGAIN else -1

    out, _ = copy(kind)
    rewrite(out, change)
    assert rule in failure(out)


def test_the_edge_of_the_overlap_in_compact_columns(copy: Copy) -> None:
    """There the loss spans say what is trained."""
    for index, by, rule in ((2, -1, AGAIN), (2, 1, NO_LABEL)):
        out, _ = copy("compact")

        def change(rows: list[Row], index: int = index, by: int = by) -> None:
            rows[1]["loss_spans"][index] += by
            rows[1]["loss_tokens"] -= by

        rewrite(out, change)
        assert rule in failure(out)
        shutil.rmtree(out)


def test_a_document_is_lost_whole(copy: Copy) -> None:
    """All windows of a document, with figures that say it is too short to have one: INPUT knows better."""
    out, source = copy("drop")
    rewrite(out, lambda rows: rows.__setitem__(slice(None), [row for row in rows if row["doc_ids"] != [5]]))
    body = json.loads((out / "manifest.json").read_bytes())
    body["totals"]["placed_documents"] -= 1
    coverage = body["coverage"]
    coverage["distinct_tokens"] -= SIZE
    coverage["unseen_tokens"] += SIZE
    coverage["duplication"] = coverage["tokens"] / coverage["distinct_tokens"]
    coverage["predictions"] -= SIZE
    coverage["predictions_mean"] = coverage["predictions"] / (sum(LENGTHS) - len(LENGTHS))
    (out / "manifest.json").write_text(json.dumps(body))
    assert verify(out), "nothing in the rows tells"
    assert failure(out, source) == "document 5: the window at token 0 is missing"


def test_a_window_moved_over_a_gap(copy: Copy) -> None:
    """Documents that lie in gaps whole are in no row, so only INPUT says where the others are."""
    out, source = copy("corpus gaps")
    starts = range(0, len(STREAM), 3 * SIZE)
    rewrite(out, lambda rows: rows.__setitem__(1, at(starts[1] + 1, corpus=True)))
    assert BEGINS in failure(out, source)


@pytest.mark.parametrize("kind", ["loss masks", "corpus loss masks"])
def test_a_loss_mask_that_is_not_that_of_input(copy: Copy, kind: str) -> None:
    out, source = copy(kind)
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    lines[4]["loss_mask"][6] ^= 1
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert verify(out)
    assert failure(out, source) == "document 4, position 6: the loss mask is not that of INPUT"


@pytest.mark.parametrize("kind", ["keep", "drop", "align", "corpus", "corpus drop", "gaps", "corpus gaps"])
def test_a_token_that_is_not_that_of_input(copy: Copy, kind: str) -> None:
    """Every token is compared, those that only a label tells of too."""
    out, source = copy(kind)
    lines = source.read_text().splitlines()
    told = {(d, p + i) for row in read_rows(out) for d, p, n in segments(row) for i in range(n + (p + n < LENGTHS[d]))}
    assert kind != "keep" or len(told) == sum(LENGTHS) - 1
    for document, position in sorted(told)[:: len(told) // 6]:
        changed = [list(ids) for ids in DOCS]
        changed[document][position] = 1001
        source.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in changed))
        assert failure(out, source) == f"document {document}, position {position}: the token is not that of INPUT"
    source.write_text("\n".join(lines) + "\n")
    assert verify(out, [str(source)])


def read_rows(out: Path) -> list[Row]:
    facts = manifests.load(out)
    return [row for s in facts.shards for batch in read_shard(out / s.path, "parquet") for row in batch.to_pylist()]


def segments(row: Row) -> Iterator[tuple[int, int, int]]:
    """Document, start and tokens of each segment of a row."""
    left = row["num_tokens"]
    for document, start, length in zip(row["doc_ids"], row["doc_starts"], row["doc_lengths"], strict=True):
        yield document, start, min(left, length - start)
        left -= length - start


# --- the manifest ----------------------------------------------------------------------------------------------------

FIGURES = [
    *(("coverage", field.name) for field in fields(Coverage)),
    *(("totals", field.name) for field in fields(manifests.Totals) if field.name != "max_token_id"),
    *(("losses", name) for name in ("short_documents", "short_tokens", "untrained_documents", "untrained_tokens")),
    ("lower_bound",),
    ("efficiency",),
    ("packing_factor",),
    ("max_length",),
    ("options", "window", "stride"),
]


@pytest.mark.parametrize("kind", ["keep", "drop", "corpus masked overlap", "corpus drop"])
def test_wrong_figure(copy: Copy, kind: str) -> None:
    out, source = copy(kind)
    whole = (out / "manifest.json").read_text()
    for place in FIGURES:
        for by in (1, -1):
            body = json.loads(whole)
            at: Any = body
            for step in place[:-1]:
                at = at[step]
            at[place[-1]] += by
            (out / "manifest.json").write_text(json.dumps(body))
            unknowable = kind == "corpus drop" and place == ("losses", "short_documents")  # the unseen could be fewer
            message = failure(out, source) if unknowable or place[-1] == "masked_documents" else failure(out)
            assert place[0] != "coverage" or f" {place[-1]} is " in message, (place, by, message)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("keep", "tail", "drop"),
        ("keep", "tail", "align"),
        ("drop", "tail", "keep"),
        ("align", "tail", "keep"),
        ("keep", "scope", "corpus"),
        ("corpus", "scope", "document"),
        ("keep", "mask_overlap", True),
        ("masked overlap", "mask_overlap", False),
        ("corpus masked overlap", "mask_overlap", False),
    ],
)
def test_other_options(copy: Copy, kind: str, name: str, value: object) -> None:
    out, _ = copy(kind)
    body = json.loads((out / "manifest.json").read_bytes())
    body["options"]["window"][name] = value
    (out / "manifest.json").write_text(json.dumps(body))
    assert failure(out)


@pytest.mark.parametrize(
    ("kind", "stride"), [("keep", 0), ("corpus", 0), ("keep", -3), ("keep", SIZE + 1), ("corpus", 1 << 62)]
)
def test_strides_that_cannot_be(copy: Copy, kind: str, stride: int) -> None:
    test_other_options(copy, kind, "stride", stride)


def test_huge_number_of_tokens(copy: Copy) -> None:
    """A damaged count must not make verify run for hours, or fill the disk."""
    out, _ = copy("corpus")
    body = json.loads((out / "manifest.json").read_bytes())
    body["totals"]["tokens"] = 1 << 55
    (out / "manifest.json").write_text(json.dumps(body))
    assert failure(out).startswith("manifest.json: totals: ")


@pytest.mark.parametrize("key", ["window", "coverage"])
def test_half_a_manifest_of_windows(copy: Copy, key: str) -> None:
    out, _ = copy("keep")
    body = json.loads((out / "manifest.json").read_bytes())
    (body["options"] if key == "window" else body)[key] = None
    (out / "manifest.json").write_text(json.dumps(body))
    assert failure(out)
