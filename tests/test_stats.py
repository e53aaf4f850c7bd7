"""`packer stats`, as a library and as a command: against lengths tokenized directly, and the contract's keys."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer

from packer.cli import cli
from packer.corpus import ReadOptions
from packer.errors import InputError, UsageError
from packer.job import TokenizerOptions
from packer.packing import load, overlong
from packer.pricing import Model, Terms
from packer.stats import MAX_LENGTHS, Stats, stats

SAMPLES = Path(__file__).parents[1] / "sample_data"
ARTICLES = SAMPLES / "articles.jsonl"
TOKENIZER = str(SAMPLES / "tokenizer")
FEW = (ARTICLES, "--limit", 60, "--tokenizer", TOKENIZER)

PRICE = {
    "strategy": str,
    "max_length": int,
    "rows": int,
    "lower_bound": int,
    "lp_bound": int | None,
    "real_tokens": int,
    "padded_tokens": int,
    "pad_ratio": float,
    "documents_per_row": float,
    "documents_split": int,
    "tokens_dropped": int,
    "attention_cost": int,
    "attention_cost_ratio": float,
    "rank_tokens_imbalance": float | None,
    "rank_attention_imbalance": float | None,
    "estimated": bool,
}
TRUNCATION = {"max_length": int, "documents": int, "documents_ratio": float, "tokens": int, "tokens_ratio": float}
LENGTH = {"min": int, "mean": float, "p50": float, "p90": float, "p95": float, "p99": float, "max": int}


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    """Tokens of each article, and one for EOS."""
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    records = [json.loads(line) for line in ARTICLES.read_bytes().splitlines()]
    return np.array([len(tokenizer.encode(record["text"]).ids) + 1 for record in records])


def measured(*inputs: object, **read: Any) -> Stats:
    return stats([str(i) for i in inputs], ReadOptions(**read), TokenizerOptions(TOKENIZER), [256, 1024], Terms())


def command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["stats", *map(str, arguments)])


def told(*arguments: object) -> dict[str, Any]:
    """What `--json -` prints: one line of JSON and nothing else."""
    done = command(*arguments, "--json", "-")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    content: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return content


def write_lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def ids(path: Path, lengths: list[int]) -> Path:
    return write_lines(path, [{"input_ids": [7] * n} for n in lengths])


# --- against the same tokens, counted directly -----------------------------------------------------------------------


def test_lengths_are_those_of_the_tokenizer(lengths: np.ndarray) -> None:
    found = measured(ARTICLES)
    assert (found.documents, found.skipped, found.empty) == (len(lengths), 0, 0)
    assert found.tokens == lengths.sum()
    assert (found.length.min, found.length.max) == (lengths.min(), lengths.max())
    assert found.length.mean == lengths.mean()
    for q in (50, 90, 95, 99):
        assert getattr(found.length, f"p{q}") == np.percentile(lengths, q)
    assert found.length.histogram == Counter(lengths.tolist())
    assert list(found.length.histogram) == sorted(found.length.histogram)
    assert found.source.inputs == [str(ARTICLES)]
    assert found.source.added == "EOS <|endoftext|> after"
    assert found.source.special_documents == 0


def test_truncation_and_rows_are_those_of_the_tokens(lengths: np.ndarray) -> None:
    found = measured(ARTICLES)
    assert [loss.max_length for loss in found.truncation] == [256, 1024]
    for loss in found.truncation:
        long = lengths[lengths > loss.max_length]
        beyond = int(long.sum()) - loss.max_length * len(long)
        assert (loss.documents, loss.tokens) == (len(long), beyond)
        assert (loss.documents_ratio, loss.tokens_ratio) == (len(long) / len(lengths), beyond / lengths.sum())
    for price in found.strategies:
        assert not price.estimated
        assert price.tokens_dropped + price.real_tokens == lengths.sum()
        if price.strategy in ("bfd", "ffd", "first-fit", "wrapped"):
            kept = overlong.keep(lengths.astype(np.int32), price.max_length, None)
            cut = overlong.whole(kept) if price.strategy == "wrapped" else overlong.split(kept, price.max_length)
            plan = load(price.strategy)(cut.length, price.max_length, rng=np.random.default_rng(0))
            assert price.rows == plan.rows
            assert price.attention_cost == (plan.length.astype(np.int64) ** 2).sum()


def test_options_of_the_tokenizer_count(lengths: np.ndarray) -> None:
    assert told(*FEW, "--no-eos")["tokens"] == lengths[:60].sum() - 60


@pytest.mark.parametrize("partition_bytes", [1, 3000, 100_000])
def test_partitions_change_nothing(partition_bytes: int) -> None:
    """However the input is cut to be read, the order stays, and with it every figure."""
    assert measured(ARTICLES, partition_bytes=partition_bytes, limit=90) == measured(ARTICLES, limit=90)


def test_several_files_of_any_format() -> None:
    paths = [SAMPLES / name for name in ("stories.txt", "articles.parquet", "compressed.jsonl.gz", "snippets.csv")]
    total: Counter[int] = Counter()
    for path in paths:
        total += Counter(measured(path).length.histogram)
    together = measured(*paths)
    assert together.length.histogram == total
    assert together.source.inputs == list(map(str, paths))


def test_stdin() -> None:
    done = CliRunner().invoke(cli, ["stats", "-", "--tokenizer", TOKENIZER, "--json", "-"], input=ARTICLES.read_bytes())
    assert json.loads(done.stdout)["length"] == told(ARTICLES, "--tokenizer", TOKENIZER)["length"]


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []
    options = TokenizerOptions(TOKENIZER)
    found = stats([str(ARTICLES)], ReadOptions(), options, [64], Terms(), lambda *more: seen.append(more))
    assert np.sum(seen, axis=0).tolist() == [found.documents, found.tokens]


# --- the JSON of the contract ----------------------------------------------------------------------------------------


def fits(content: dict[str, Any], kinds: dict[str, Any]) -> None:
    for key, kind in kinds.items():
        assert isinstance(content[key], kind), (key, content[key])
        assert kind is bool or not isinstance(content[key], bool), key


def test_json_has_the_keys_of_the_contract() -> None:
    content = told(ARTICLES, "--tokenizer", TOKENIZER, "--world-size", 2, "--model", "64,2")
    fits(content, dict.fromkeys(["documents", "skipped", "empty", "tokens"], int))
    fits(content["length"], LENGTH)
    assert sum(content["length"]["histogram"].values()) == content["documents"]
    assert sum(int(n) * count for n, count in content["length"]["histogram"].items()) == content["tokens"]
    assert [loss["max_length"] for loss in content["truncation"]] == list(MAX_LENGTHS)
    for loss in content["truncation"]:
        fits(loss, TRUNCATION)
    names = ["static", "dynamic", "bucketed", "token-budget", "bfd", "ffd", "optimal", "first-fit", "wrapped"]
    pairs = [(price["strategy"], price["max_length"]) for price in content["strategies"]]
    assert pairs == [(name, max_length) for max_length in MAX_LENGTHS for name in names]
    for price in content["strategies"]:
        fits(price, PRICE)
        assert isinstance(price["flops_per_step"], float)
        few = price["rank_tokens_imbalance"] is None  # there is no full step
        assert price["time_ratio"] is None if few else price["time_ratio"] >= 1
    fits(content["recommendation"], {"strategy": str, "max_length": int, "reason": str})
    assert content["terms"]["model"] == {"hidden": 64, "layers": 2, "ffn": None}
    assert content["command"].startswith("packer")


def test_json_file_and_terminal(tmp_path: Path) -> None:
    """--json FILE leaves the summary on stdout; --quiet leaves nothing."""
    arguments = (*FEW, "--max-length", 64, "--json", tmp_path / "stats.json")
    done = command(*arguments)
    assert done.exit_code == 0
    assert "60 with" in done.stdout
    assert "\x1b" not in done.stdout, "no colour unless on a terminal"
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert json.loads((tmp_path / "stats.json").read_text())["documents"] == 60
    assert command(*arguments, "--quiet").output == ""


def test_max_lengths_are_sorted_and_priced_once() -> None:
    content = told(SAMPLES / "token_ids.jsonl", "--max-length", 64, "--max-length", 32, "--max-length", 64)
    assert [loss["max_length"] for loss in content["truncation"]] == [32, 64]


def test_what_stats_wrote_can_be_priced_again(tmp_path: Path) -> None:
    options = ("--max-length", 128, "--max-length", 1024, "--batch-size", 4)
    first = told(*FEW, *options)
    (tmp_path / "stats.json").write_text(json.dumps(first))
    again = told("--lengths", tmp_path / "stats.json", *options)
    for key in ("documents", "tokens", "length", "truncation"):
        assert again[key] == first[key]
    for before, after in zip(first["strategies"], again["strategies"], strict=True):
        if before["strategy"] in ("static", "bfd", "ffd", "optimal"):
            assert after == before
        assert after["estimated"] == (before["strategy"] not in ("static", "bfd", "ffd", "optimal"))
    assert again["source"]["tokenizer"] is again["source"]["special_documents"] is None


def test_lengths_in_order_give_every_price_of_the_corpus(tmp_path: Path, lengths: np.ndarray) -> None:
    (tmp_path / "lengths.txt").write_text("".join(f"{n}\n" for n in lengths))
    options = ("--max-length", 300, "--world-size", 3)
    first, again = (
        told(ARTICLES, "--tokenizer", TOKENIZER, *options),
        told("--lengths", tmp_path / "lengths.txt", *options),
    )
    for key in ("documents", "tokens", "length", "truncation", "strategies", "recommendation", "terms"):
        assert again[key] == first[key]


def test_the_same_seed_gives_the_same_and_another_does_not() -> None:
    arguments = (*FEW, "--max-length", 512)
    first, again, other = (told(*arguments, "--seed", seed)["strategies"] for seed in (1, 1, 2))
    assert first == again != other


# --- records that are left out ---------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    records = [{"text": "one"}, "{bad", {"text": ""}, {"text": None}, {"text": "two fish"}, {"text": ""}, {"x": 1}]
    return write_lines(tmp_path / "mixed.jsonl", records)


def test_skipped_and_empty_are_counted(mixed: Path) -> None:
    found = measured(mixed, on_error="skip")
    assert (found.documents, found.skipped, found.empty) == (2, 3, 2)
    assert [(record.path, record.where) for record in found.source.skipped_records] == [
        (str(mixed), f"line {n}") for n in (2, 4, 7)
    ]
    assert told(mixed, "--tokenizer", TOKENIZER, "--on-error", "skip")["skipped"] == 3
    with pytest.raises(InputError, match="line 2"):
        measured(mixed)


@pytest.mark.parametrize("partition_bytes", [1, 60, 1 << 20])
@pytest.mark.parametrize("limit", [1, 3, 4, 5, 6, 7, 99])
def test_limit_is_of_records_over_all_files(tmp_path: Path, limit: int, partition_bytes: int) -> None:
    """Bad and empty records are records too."""
    files = [write_lines(tmp_path / "0.jsonl", [{"input_ids": [1]}, "{bad", {"input_ids": []}])]
    files += [ids(tmp_path / f"{n}.jsonl", [n, 10 * n]) for n in (1, 2)]
    found = measured(*files, limit=limit, partition_bytes=partition_bytes, on_error="skip")
    kept = [1, None, 0, 1, 10, 2, 20][:limit]
    full = [n for n in kept if n]
    assert found.length.histogram == dict(sorted(Counter(full).items()))
    assert (found.documents, found.skipped, found.empty) == (len(full), kept.count(None), kept.count(0))


@pytest.mark.parametrize(
    ("records", "counts"),
    [
        ([], "0 records, of which 0 are empty and 0 were skipped"),
        ([{"input_ids": []}], "1 records, of which 1 are empty and 0 were skipped"),
        (["{bad", "{", {"input_ids": []}], "3 records, of which 1 are empty and 2 were skipped"),
    ],
)
def test_nothing_to_measure(tmp_path: Path, records: list[Any], counts: str) -> None:
    path = write_lines(tmp_path / "none.jsonl", records)
    done = command(path, "--tokenizer", TOKENIZER, "--on-error", "skip", "--json", tmp_path / "none.json")
    assert done.exit_code == 1
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == f"there is nothing to measure: INPUT holds no document ({counts})"
    assert not (tmp_path / "none.json").exists()


# --- control tokens, ready-made ids -----------------------------------------------------------------------------------


def test_texts_with_a_control_token_are_counted(tmp_path: Path) -> None:
    texts = ["plain", "a <|endoftext|> b <|endoftext|>", "<|im_start|>", "< |im_start|>", ""]
    path = write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    parsed = told(path, "--tokenizer", TOKENIZER)
    literal = told(path, "--tokenizer", TOKENIZER, "--special-in-text", "literal")
    assert parsed["source"]["special_documents"] == literal["source"]["special_documents"] == 2
    eos = tokenizer.token_to_id("<|endoftext|>")

    def tokens(text: str) -> int:
        found = tokenizer.encode(text).ids
        return len(found) + (found[-1:] != [eos]) * bool(found)

    assert parsed["tokens"] == sum(map(tokens, texts))
    tokenizer.encode_special_tokens = True
    assert literal["tokens"] == sum(len(tokenizer.encode(text).ids) + 1 for text in texts if text)
    assert literal["tokens"] > parsed["tokens"]


def test_ready_made_ids_need_no_tokenizer(tmp_path: Path) -> None:
    content = told(ids(tmp_path / "ids.jsonl", [3, 0, 5, 5]), "--max-length", 4)
    assert content["length"]["histogram"] == {"3": 1, "5": 2}
    assert (content["documents"], content["empty"], content["tokens"]) == (3, 1, 13)
    assert content["source"]["special_documents"] is None, "no text was seen"
    assert content["source"]["tokenizer"] is None


def test_texts_need_one() -> None:
    with pytest.raises(UsageError, match="--tokenizer"):
        stats([str(ARTICLES)], ReadOptions(), None, [8], Terms())


def test_ids_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "ids.jsonl", [{"input_ids": [1]}, {"input_ids": [10**6]}])
    with pytest.raises(InputError, match="record 2: holds token id 1000000"):
        measured(path)


# --- wrong usage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["INPUT", "--lengths"]),
        (["x.jsonl", "--lengths", "l.txt"], ["--lengths stands instead of INPUT"]),
        (["--lengths", "l.txt", "--tokenizer", "t"], ["--lengths stands instead of INPUT and --tokenizer"]),
        (["x.jsonl", "--max-length", "0"], ["--max-length"]),
        (["x.jsonl", "--max-length", "2147483648"], ["--max-length"]),
        (["x.jsonl", "--max-length", "many"], ["--max-length"]),
        (["x.jsonl", "--batch-size", "0"], ["--batch-size"]),
        (["x.jsonl", "--world-size", "0"], ["--world-size"]),
        (["x.jsonl", "--tokens-per-batch", "0"], ["--tokens-per-batch"]),
        (["x.jsonl", "--pad-to-multiple-of", "0"], ["--pad-to-multiple-of"]),
        (["x.jsonl", "--overlong", "error"], ["--overlong"]),
        (["x.jsonl", "--budget", "most"], ["--budget"]),
        (["x.jsonl", "--seed", "-1"], ["--seed"]),
        (["x.jsonl", "--model", "64"], ["--model", "HIDDEN,LAYERS"]),
        (["x.jsonl", "--model", "64,0"], ["--model"]),
        (["x.jsonl", "--model", "64,-1"], ["--model"]),
        (["x.jsonl", "--model", "64,2,8,9"], ["--model"]),
        (["x.jsonl", "--model", "a,b"], ["--model"]),
        (["x.jsonl", "--json", "nowhere/x.json"], ["nowhere", "folder does not exist"]),
        (["x.jsonl", "--html", "nowhere/x.html"], ["nowhere", "folder does not exist"]),
        (["x.jsonl", "--no-such"], ["--no-such"]),
        (["x.jsonl", "--tokenizer", "t", "--eos-token", "x", "--no-eos"], ["--eos-token", "--no-eos"]),
        (["x.jsonl", "--config", "nowhere.toml"], ["nowhere.toml"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert all(word in done.stderr for word in words), done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["nowhere.jsonl"], ["--lengths", "nowhere.txt"], ["--lengths", "."]])
def test_what_is_not_there(arguments: list[str]) -> None:
    done = command(*arguments, "--tokenizer", TOKENIZER) if "--lengths" not in arguments else command(*arguments)
    assert done.exit_code == 1
    assert isinstance(done.exception, InputError)
    assert "\n" not in str(done.exception)


def test_options_from_a_file(tmp_path: Path) -> None:
    config = tmp_path / "packer.toml"
    config.write_text(f'tokenizer = "{TOKENIZER}"\n[stats]\nmax-length = [32, 64]\nbatch-size = 3\neos = false\n')
    content = told(ARTICLES, "--limit", 60, "--config", config, "--batch-size", 5)
    assert [loss["max_length"] for loss in content["truncation"]] == [32, 64]
    assert content["terms"]["batch_size"] == 5, "the command line wins"
    assert content["tokens"] == told(*FEW, "--no-eos")["tokens"]
    config.write_text("no-such = 1\n")
    assert command(ARTICLES, "--config", config).exit_code == 2


def test_terms_reach_the_prices(tmp_path: Path) -> None:
    options = "--batch-size 3 --tokens-per-batch 40 --budget sum --pad-to-multiple-of 8 --world-size 2 --overlong drop"
    content = told(ids(tmp_path / "ids.jsonl", [5, 9, 12, 30] * 9), "--max-length", 20, *options.split(), "--seed", 4)
    terms = Terms(3, 40, "sum", 8, 2, "drop", 4, None)
    assert content["terms"] == asdict(terms)
    prices = {price["strategy"]: price for price in content["strategies"]}
    assert (prices["static"]["rows"], prices["static"]["tokens_dropped"]) == (27, 270)
    assert prices["static"]["padded_tokens"] == 27 * 24 - 9 * 26
    assert prices["token-budget"]["padded_tokens"] == 0


# --- the recommendation ----------------------------------------------------------------------------------------------


def recommended(path: Path, lengths: list[int], *max_lengths: int, **terms: Any) -> tuple[str, int, str]:
    found = stats([str(ids(path, lengths))], ReadOptions(), None, max_lengths, Terms(**terms))
    return found.recommendation.strategy, found.recommendation.max_length, found.recommendation.reason


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ids.jsonl"


def test_like_lengths_need_no_packing(path: Path) -> None:
    strategy, max_length, reason = recommended(path, [60, 61, 62, 63] * 30, 64)
    assert (strategy, max_length) == ("bucketed", 64)
    assert reason.startswith("lengths are much alike: 2.1% of shuffled batches is padding, 0.2% of batches by length, ")
    assert reason.count("%") == 3


def test_unlike_lengths_are_packed(path: Path) -> None:
    strategy, max_length, reason = recommended(path, [*range(1, 64)] * 4, 64)
    assert (strategy, max_length) == ("bfd", 64)
    assert reason.startswith("packed rows of 64 are 0.00% empty, where padding is 50% of static, ")
    assert reason.endswith("; 126 rows do for 252, as few as can be")


def test_long_documents_are_spoken_of(path: Path) -> None:
    some = [10] * 95 + [100] * 5
    reason = recommended(path, some, 64)[2]
    assert "5 documents (5.0%) are longer, and truncation would lose 180 tokens (12.4%)" in reason
    assert "packer window" not in reason
    reason = recommended(path, [10] * 80 + [100] * 20, 64)[2]
    assert "20 documents (20.0%) are longer" in reason
    assert reason.endswith("or cut windows with packer window")
    assert "longer" not in recommended(path, [10] * 995 + [100] * 5, 64)[2]


def test_the_shortest_length_that_few_exceed(path: Path) -> None:
    lengths = [10] * 90 + [30] * 9 + [100]
    assert recommended(path, lengths, 16, 32, 64, 128)[1] == 32
    assert recommended(path, lengths, 128, 32, 16)[1] == 32, "in any order"
    assert recommended(path, lengths, 8, 16)[1] == 16, "else the longest"


def test_uneven_ranks_are_spoken_of(path: Path) -> None:
    lengths = [64] * 40 + [1] * 2560
    reason = recommended(path, lengths, 64, batch_size=1, world_size=4)[2]
    assert "in a step the busiest rank has" in reason
    assert reason.endswith("(balanced order)")
    assert "busiest" not in recommended(path, lengths, 64, batch_size=1)[2]
    assert "busiest" not in recommended(path, [64] * 80, 64, batch_size=1, world_size=4)[2]


def test_when_nothing_is_left(path: Path) -> None:
    strategy, max_length, reason = recommended(path, [9, 9], 4, 8, overlong="drop")
    assert (strategy, max_length) == ("bfd", 8)
    assert reason == "every document is longer than 8 tokens and dropped: raise max_length, or split them"


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[1], [5], [1, 1], [64, 1]])
@pytest.mark.parametrize("max_length", [1, 5, 2**31 - 1])
def test_few_documents(path: Path, lengths: list[int], max_length: int) -> None:
    terms = Terms(batch_size=1000, world_size=8, model=Model(64, 2))
    found = stats([str(ids(path, lengths))], ReadOptions(), None, [max_length], terms)
    assert len(found.strategies) == 9
    for price in found.strategies:
        assert price.rows >= price.lower_bound >= 1
        assert price.batches == 1
        assert price.rank_tokens_imbalance is None
    json.dumps(found.to_json(), allow_nan=False)


# --- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["document", "corpus"])
@pytest.mark.parametrize("tail", ["keep", "drop", "align"])
def test_windows_are_priced_as_they_are_made(scope: str, tail: str, tmp_path: Path) -> None:
    options = ["--tokenizer", TOKENIZER, "--context-size", "64", "--stride", "24", "--scope", scope, "--tail", tail]
    priced = told(ARTICLES, *options)["windows"]
    arguments = ["window", str(ARTICLES), *options, "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    made = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert priced["coverage"] == made["coverage"]
    size = sum(shard["bytes"] for shard in made["shards"])
    assert size / 3 < priced["disk_bytes"] < 3 * size


def test_windows_need_size_and_stride() -> None:
    done = command(ARTICLES, "--tokenizer", TOKENIZER, "--stride", "24")
    assert done.exit_code == 2
    assert "--context-size and --stride" in done.output
