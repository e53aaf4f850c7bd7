"""`packer window` from its options to the rows, the manifest, the summary and what `inspect` shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import tokenizers

from packer import pipeline
from packer.cli import main
from packer.corpus import ReadOptions
from packer.errors import UsageError
from packer.finish import Output
from packer.job import Job
from packer.reader import PackedDataset
from packer.schema import Layout

SAMPLES = Path(__file__).parents[1] / "sample_data"
IGNORED = -100
Row = dict[str, Any]


class Done(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, arguments)))
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return call


def lines(path: str, records: list[Any]) -> str:
    records = [record if isinstance(record, dict) else {"input_ids": record} for record in records]
    Path(path).write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def manifest(out: str = "out") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(Path(out, "manifest.json").read_bytes())
    return body


def rows(out: str = "out") -> list[Row]:
    return [row for shard in manifest(out)["shards"] for row in pq.read_table(Path(out, shard["path"])).to_pylist()]


def windows(run: Run, records: list[Any], *options: object) -> list[tuple[list[int], list[int]]]:
    """Tokens and labels in the order of the input, proved by `verify`."""
    source = lines("in.jsonl", records)
    done = run("window", source, "--out", "out", "--overwrite", "--order", "plan", *options)
    assert done.code == 0, done.err
    assert run("verify", "out", source).code == 0
    return [(row["input_ids"], row["labels"]) for row in rows()]


# --- worked examples -------------------------------------------------------------------------------------------------


def test_twenty_tokens(run: Run) -> None:
    found = windows(run, [list(range(1, 21))], "--context-size", 4, "--stride", 2, "--tail", "drop")
    assert [tokens for tokens, _ in found[:4]] == [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6, 7, 8], [7, 8, 9, 10]]
    assert len(found) == 8
    assert all(labels == [token + 1 for token in tokens] for tokens, labels in found)
    assert found[-1] == ([15, 16, 17, 18], [16, 17, 18, 19])


@pytest.mark.parametrize("scope", ["document", "corpus"])
def test_tails(run: Run, scope: str) -> None:
    options = ["--context-size", 4, "--stride", 4, "--scope", scope, "--tail"]
    seventeen, eighteen = list(range(1, 18)), list(range(1, 19))
    assert len(windows(run, [seventeen], *options, "keep")) == 4
    assert manifest()["coverage"]["unseen_tokens"] == 1
    assert manifest()["coverage"]["predictions"] == 16
    assert windows(run, [eighteen], *options, "keep")[4:] == [([17, 18], [18, IGNORED])]
    assert windows(run, [eighteen], *options, "align")[4:] == [([14, 15, 16, 17], [15, 16, 17, 18])]
    assert len(windows(run, [eighteen], *options, "drop")) == 4


def test_masked_overlap(run: Run) -> None:
    options = ["--context-size", 4, "--stride", 2, "--mask-overlap"]
    found = windows(run, [[1, 2, 3, 4, 5, 6, 7, 8]], *options)
    assert [labels for _, labels in found] == [[2, 3, 4, 5], [IGNORED, IGNORED, 6, 7], [IGNORED, IGNORED, 8, IGNORED]]
    coverage = manifest()["coverage"]
    assert [coverage[f"predictions_{name}"] for name in ("min", "mean", "max")] == [1, 1.0, 1]
    aligned = windows(run, [[1, 2, 3, 4, 5, 6, 7, 8]], *options, "--labels", "aligned")
    assert [labels for _, labels in aligned] == [[IGNORED, 2, 3, 4], [IGNORED] * 3 + [6], [IGNORED] * 3 + [8]]
    assert [row["next_tokens"] for row in rows()] == [[5], [7], [IGNORED]]


def test_a_window_over_several_documents(run: Run) -> None:
    """One row, one attention sequence; the labels go on over a document's end, at the row's end too."""
    options = ["--context-size", 4, "--stride", 3, "--scope", "corpus"]
    windows(run, [[1, 2, 3], [4], [5, 6, 7, 8, 9]], *options)
    first, second, third = rows()
    assert first["input_ids"] == [1, 2, 3, 4]
    assert first["labels"] == [2, 3, 4, 5]
    assert (first["cu_seqlens"], first["position_ids"]) == ([0, 4], [0, 1, 2, 3])
    assert (first["doc_ids"], first["doc_starts"], first["doc_lengths"]) == ([0, 1], [0, 0], [3, 1])
    assert first["next_tokens"] == [4, 5]
    assert (second["input_ids"], second["doc_ids"], second["doc_starts"]) == ([4, 5, 6, 7], [1, 2], [0, 0])
    assert (third["input_ids"], third["labels"]) == ([7, 8, 9], [8, 9, IGNORED])
    assert manifest()["layout"]["boundaries"] == "row"


def test_loss_masks(run: Run) -> None:
    """A label is not trained where its token is not; a record with nothing to train on is counted and left out."""
    records = [{"input_ids": [1, 2, 3, 4, 5], "loss_mask": [1, 0, 1, 0, 1]}, {"input_ids": [6, 7], "loss_mask": [1, 0]}]
    found = windows(run, records, "--context-size", 3, "--stride", 2)
    assert found == [([1, 2, 3], [IGNORED, 3, IGNORED]), ([3, 4, 5], [IGNORED, 5, IGNORED])]
    assert manifest()["losses"]["untrained_documents"] == 1
    assert manifest()["totals"]["masked_documents"] == 2
    found = windows(run, [records[0], [8, 9]], "--context-size", 4, "--stride", 3, "--scope", "corpus")
    assert found == [([1, 2, 3, 4], [IGNORED, 3, IGNORED, 5]), ([4, 5, 8, 9], [5, 8, 9, IGNORED])]


def test_short_documents_are_counted(run: Run) -> None:
    found = windows(run, [[1], [2, 3], [4, 5, 6, 7, 8]], "--context-size", 4, "--stride", 4, "--min-tokens", 2)
    assert [tokens for tokens, _ in found] == [[2, 3], [4, 5, 6, 7]]
    losses, coverage = manifest()["losses"], manifest()["coverage"]
    assert (losses["short_documents"], losses["short_tokens"]) == (1, 1)
    assert (coverage["distinct_tokens"], coverage["unseen_tokens"]) == (6, 1)
    windows(run, [[1], [2, 3], [4, 5, 6, 7, 8]], "--context-size", 4, "--stride", 4)
    assert manifest()["coverage"]["unseen_tokens"] == 2


# --- the same windows, however the input is cut ----------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["document", "corpus"])
def test_blocks_and_partitions_change_nothing(run: Run, scope: str) -> None:
    texts = [json.loads(line)["text"] for line in (SAMPLES / "articles.jsonl").read_text().splitlines()][:60]
    for name, part in (("a.jsonl", texts[:25]), ("b.jsonl", texts[25:])):
        lines(name, [{"text": text} for text in part])
    engine = tokenizers.Tokenizer.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))
    end = engine.token_to_id("<|endoftext|>")
    documents = [[*engine.encode(text, add_special_tokens=False).ids, end] for text in texts]
    streams = documents if scope == "document" else [[token for ids in documents for token in ids]]
    expected = [
        (ids[s : s + 64], [*ids[s + 1 : s + 65], IGNORED][: len(ids[s : s + 64])])
        for ids in streams
        for s in [*(s for s in range(0, len(ids), 24) if s + 64 < len(ids)),
                  *[s for s in range(0, len(ids), 24) if s + 64 >= len(ids)][:1]]
    ]  # fmt: skip
    arguments = ["a.jsonl", "b.jsonl", "--tokenizer", SAMPLES / "tokenizer", "--context-size", 64, "--overlap", 40]
    for i, (block, partition, order) in enumerate(
        [(1 << 25, 1 << 28, "plan"), (1, 5_000, "plan"), (700, 9_000, "shuffle"), (5_000, 1, "shuffle")]
    ):
        options = ["--block-tokens", block, "--partition-bytes", partition, "--order", order, "--scope", scope]
        assert run("window", *arguments, *options, "--out", f"out{i}", "--quiet").code == 0
        found = [(row["input_ids"], row["labels"]) for row in rows(f"out{i}")]
        assert (found == expected) == (order == "plan")
        assert sorted(found) == sorted(expected)
        assert run("verify", f"out{i}", "a.jsonl", "b.jsonl").code == 0


def test_the_same_bytes_twice(run: Run) -> None:
    source = lines("in.jsonl", [list(range(1, n)) for n in range(5, 90, 3)])
    options = ["--context-size", 16, "--stride", 5, "--block-tokens", 300, "--rows-per-shard", 30]
    contents = []
    for seed in (0, 0, 1):
        assert run("window", source, *options, "--seed", seed, "--out", "out", "--overwrite", "--quiet").code == 0
        contents.append({path.name: path.read_bytes() for path in sorted(Path("out").rglob("*")) if path.is_file()})
    assert contents[0] == contents[1]
    assert contents[0].keys() == contents[2].keys()
    assert contents[0] != contents[2]


@pytest.mark.parametrize("scope", ["document", "corpus"])
def test_a_reader_gives_the_next_tokens_whatever_is_stored(run: Run, scope: str) -> None:
    """Labels stored in either convention, or left out: shifted they are the same, under masks and overlap too."""
    records: list[Any] = [list(range(100 * n, 100 * n + 3 * n)) for n in range(1, 9)]
    records[4] = {"input_ids": records[4], "loss_mask": [n % 3 != 1 for n in range(len(records[4]))]}
    options = ["--context-size", 8, "--stride", 3, "--mask-overlap", "--scope", scope]
    expected = [labels for _, labels in windows(run, records, *options)]
    for stored in (["--labels", "aligned"], ["--columns", "compact"], ["--labels", "aligned", "--columns", "compact"]):
        source = lines("in.jsonl", records)
        arguments = ["--out", "out", "--overwrite", "--order", "plan", "--quiet"]
        assert run("window", source, *arguments, *options, *stored).code == 0
        dataset = PackedDataset("out", labels="shifted")
        assert [np.asarray(row["labels"]).tolist() for row in dataset] == expected


# --- options ---------------------------------------------------------------------------------------------------------

SOURCE = ["window", "in.jsonl", "--out", "out"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--context-size", "--max-length", "packer window --help"]),
        (["--context-size", "8"], ["--stride", "--overlap"]),
        (["--stride", "8"], ["--context-size"]),
        (["--context-size", "8", "--max-length", "8", "--stride", "4"], ["--context-size", "--max-length", "one of"]),
        (["--context-size", "8", "--overlap", "4", "--stride", "4"], ["--overlap", "--stride", "one of"]),
        (["--context-size", "8", "--overlap", "8"], ["--overlap 8", "below"]),
        (["--context-size", "8", "--stride", "9"], ["--stride 9", "--context-size 8", "--allow-gaps"]),
        (["--context-size", "8", "--stride", "0"], ["--stride"]),
        (["--context-size", "8", "--stride", "4", "--tail", "pad"], ["pad", "keep", "align"]),
        (["--context-size", "8", "--stride", "4", "--strategy", "bfd"], ["--strategy"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_wrong_usage(run: Run, arguments: list[str], words: list[str]) -> None:
    lines("in.jsonl", [[1, 2, 3]])
    done = run(*SOURCE, *arguments)
    assert (done.code, done.out) == (2, "")
    assert re.fullmatch(r"packer: [^\n]+\n", done.err)
    for word in words:
        assert word in done.err
    assert not Path("out").exists()


def test_gaps_if_they_are_meant(run: Run) -> None:
    found = windows(run, [list(range(1, 12))], "--context-size", 3, "--stride", 5, "--allow-gaps")
    assert [tokens for tokens, _ in found] == [[1, 2, 3], [6, 7, 8]]
    coverage = manifest()["coverage"]
    assert (coverage["unseen_tokens"], coverage["predictions_min"], coverage["predictions_max"]) == (5, 0, 1)


def test_names_that_say_the_same(run: Run) -> None:
    source = lines("in.jsonl", [list(range(1, 40))])
    for name in ("a", "b"):
        options = {"a": ["--context-size", 8, "--stride", 3], "b": ["--max-length", 8, "--overlap", 5]}[name]
        assert run("window", source, *options, "--out", name, "--quiet").code == 0
    assert Path("a/manifest.json").read_bytes() == Path("b/manifest.json").read_bytes()


def test_config_and_the_command_line_wins(run: Run) -> None:
    lines("in.jsonl", [list(range(1, 40))])
    Path("c.toml").write_text("max-length = 6\n[window]\noverlap = 2\nmask-overlap = true\n")
    assert run(*SOURCE, "--config", "c.toml", "--quiet").code == 0
    assert (manifest()["max_length"], manifest()["options"]["window"]["stride"]) == (6, 4)
    assert run(*SOURCE, "--config", "c.toml", "--context-size", 9, "--stride", 2, "--overwrite").code == 0
    assert (manifest()["max_length"], manifest()["options"]["window"]["stride"]) == (9, 2)
    assert manifest()["options"]["window"]["mask_overlap"] is True


def test_no_window_at_all(run: Run) -> None:
    lines("in.jsonl", [[1, 2, 3], [4], []])
    done = run(*SOURCE, "--context-size", 8, "--stride", 4, "--tail", "drop")
    assert (done.code, done.out) == (1, "")
    assert "none of 2 documents" in done.err
    assert "--tail drop" in done.err
    assert not Path("out").exists()
    assert run(*SOURCE, "--context-size", 8, "--stride", 4, "--min-tokens", 9).code == 1


def test_the_library_needs_a_stride(tmp_path: Path) -> None:
    job = Job(ReadOptions(), None, "window", 8, "split", 0, None, 0, "plan", 1 << 20)
    with pytest.raises(UsageError, match="stride"):
        pipeline.window([], tmp_path / "out", job, Layout(), Output("train", "parquet", "zstd", None))


# --- what is said ----------------------------------------------------------------------------------------------------


def test_manifest(run: Run) -> None:
    windows(run, [list(range(1, 21)), [30], [31, 32, 33]], "--context-size", 4, "--stride", 2, "--tail", "align")
    body = manifest()
    assert body["command"] == "window"
    assert body["max_length"] == 4
    assert body["options"]["window"] == {
        "stride": 2,
        "scope": "document",
        "tail": "align",
        "mask_overlap": False,
        "allow_gaps": False,
    }
    assert body["coverage"] == {
        "windows": 10,
        "tokens": 39,
        "distinct_tokens": 22,
        "duplication": 39 / 22,
        "unseen_tokens": 2,  # the last of the first document, and the one alone
        "predictions": 38,
        "predictions_min": 1,
        "predictions_mean": 38 / 21,
        "predictions_max": 3,
    }
    totals = body["totals"]
    assert (totals["rows"], totals["placed_tokens"], totals["placed_documents"], totals["split_documents"]) == (
        10,
        39,
        2,
        1,
    )


def test_pack_says_that_it_is_not_of_windows(run: Run) -> None:
    source = lines("in.jsonl", [[1, 2, 3]])
    assert run("pack", source, "--max-length", 8, "--out", "out").code == 0
    body = manifest()
    assert (body["command"], body["options"]["window"], body["coverage"]) == ("pack", None, None)


def test_summary_and_report(run: Run) -> None:
    source = lines("in.jsonl", [list(range(1, 21)), [30], [31, 32, 33]])
    options = ["--context-size", 4, "--stride", 2, "--tail", "drop", "--report", "r.json"]
    done = run("window", source, *options, "--out", "out")
    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in done.out.splitlines()}
    assert shown["windows"] == "8 of at most 4 tokens, every 2 over each document, tail drop"
    assert shown["tokens"] == "32 in windows, 18 distinct: each 1.78 times; 6 in no window"
    assert shown["predicted"] == "32 labels; each token 0 to 2 times, 1.52 on average"
    assert shown["lost"] == "6 tokens in no window, 2 documents whole"
    assert shown["trained"] == "32 of 32 tokens, labels shifted"
    assert json.loads(Path("r.json").read_text())["coverage"] == manifest()["coverage"]
    masked = run(
        "window", source, "--context-size", 4, "--stride", 2, "--mask-overlap", "--scope", "corpus", "--out", "o"
    )
    assert "every 2 over the corpus as one stream, tail keep, overlap masked\n" in masked.out
    assert "23 labels; each token 1 time, 1.00 on average\n" in masked.out


def test_inspect(run: Run) -> None:
    windows(run, [list(range(1, 10)), [21, 22, 23]], "--context-size", 4, "--stride", 2, "--mask-overlap")
    shown = run("inspect", "out", "--row", 1).out
    assert shown.splitlines()[:3] == [
        "out: 4 windows of at most 4 tokens, every 2 over each document, tail keep, overlap masked, 93.75% full",
        "  15 in windows, 11 distinct: each 1.36 times; 1 in no window; 0 left out",
        "  10 labels; each token 1 time, 1.00 on average; 2 documents in windows, 1 in several",
    ]
    assert "segment 0: document 0 (in.jsonl, record 0), [2:6] of 9, 4 tokens, 1 trained\n    3 4 5 ⟦6⟧\n" in shown
    windows(run, [[1, 2], [3, 4, 5]], "--context-size", 4, "--stride", 2, "--scope", "corpus")
    shown = run("inspect", "out").out
    assert "segment 0: document 0 (in.jsonl, record 0), whole, 2 tokens, 1 trained\n    1 ⟦2⟧\n" in shown
    assert "segment 1: document 1 (in.jsonl, record 1), [0:2] of 3, 2 tokens, 2 trained\n    ⟦3 4⟧\n" in shown
