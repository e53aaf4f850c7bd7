"""Shards of both engines are the same bytes; many threads may use one engine; it takes no more memory."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from packer.cli import main
from packer.engines import FastEngine, HfEngine, hostile
from packer.tokenizer import Tokenizer, load

SAMPLES = Path(__file__).parents[2] / "sample_data"
TOKENIZER = str(SAMPLES / "tokenizer")
TEXTS = ["articles.jsonl", "articles.parquet", "compressed.jsonl.gz", "snippets.csv", "notes.txt", "stories.txt"]
SMALL = ["--max-length", "256", "--block-tokens", "30000", "--partition-bytes", "100000"]


def shards(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (out / "data").iterdir()}


def made(out: Path, *arguments: str) -> dict[str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--quiet", "--out", str(out)])
    assert not ended.value.code
    return shards(out)


def manifest(out: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((out / "manifest.json").read_bytes())
    return body


def check_equal(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Shards and all of the manifest but the engine. Returns what the manifest of `fast` says of its tokenizer."""
    one, other = tmp_path / "hf", tmp_path / "fast"
    assert made(one, *arguments, "--tokenizer-engine", "hf") == made(other, *arguments, "--tokenizer-engine", "fast")
    right, found = manifest(one), manifest(other)
    facts: dict[str, Any] = found["tokenizer"]
    assert facts["engine"] == "fast"
    for name in ("engine", "engine_version", "checked_documents"):
        del right["tokenizer"][name]
    assert right["tokenizer"].items() <= facts.items()
    assert {key: value for key, value in right.items() if key != "tokenizer"} == {
        key: value for key, value in found.items() if key != "tokenizer"
    }
    return facts


def test_all_text_forms(tmp_path: Path) -> None:
    inputs = [str(SAMPLES / name) for name in TEXTS]
    facts = check_equal(tmp_path, "pack", *inputs, "--tokenizer", TOKENIZER, *SMALL, "--split-text", "line")
    assert facts["checked_documents"] > 0
    assert facts["differing_documents"] == 0


@pytest.mark.parametrize("mode", ["parse", "literal"])
def test_control_tokens_in_texts(tmp_path: Path, mode: str) -> None:
    texts = ["a <|endoftext|> b", "<|endoftext|>", "<|endoftext|><|endoftext|>", "<|endoftext", "x", ""]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    source = str(tmp_path / "a.jsonl")
    check_equal(tmp_path, "pack", source, "--tokenizer", TOKENIZER, "--max-length", "64", "--special-in-text", mode)


def test_windows(tmp_path: Path) -> None:
    arguments = ["--tokenizer", TOKENIZER, "--context-size", "128", "--stride", "64", "--scope", "corpus"]
    check_equal(tmp_path, "window", str(SAMPLES / "articles.jsonl"), *arguments)


def documents(count: int, seed: int) -> Iterator[str]:
    """Text of many languages, as words of their scripts."""
    dice = random.Random(seed)
    for _ in range(count):
        script, length = dice.choice(hostile.SCRIPTS), dice.randrange(1, 120)
        words = ("".join(dice.choices(script, k=dice.randrange(1, 9))) for _ in range(length))
        yield dice.choice((" ", " ", "", "\n", ", ")).join(words)


def written(path: Path, megabytes: int, seed: int) -> str:
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for text in documents(10**9, seed):
            size += file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            if size > megabytes << 20:
                return str(path)
    raise AssertionError


@pytest.mark.slow
def test_many_languages(tmp_path: Path) -> None:
    """More than the first megabyte, in several partitions, as auto chooses it."""
    source = written(tmp_path / "many.jsonl", 5, seed=1)
    arguments = ["--tokenizer", TOKENIZER, "--max-length", "1024", "--partition-bytes", str(4 << 20)]
    facts = check_equal(tmp_path, "pack", source, *arguments)
    made(tmp_path / "auto", "pack", source, *arguments)
    assert manifest(tmp_path / "auto") == manifest(tmp_path / "fast")
    assert 0 < facts["checked_documents"] < 10_000


def test_many_threads_and_one_engine() -> None:
    tokenizer = load(TOKENIZER)
    engine, reference = FastEngine(tokenizer), HfEngine(tokenizer)
    batches = [list(documents(60, seed)) for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(engine.encode, batches * 3))
    for i, batch in enumerate(batches):
        right, ends = reference.encode(batch)
        for ids, offsets in found[i::24]:
            assert ids.tolist() == right.tolist()
            assert offsets.tolist() == ends.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["parse", "literal"])
@pytest.mark.parametrize("name", ["pattern c", "llama"])
def test_many_threads_and_one_engine_of_the_grid(
    grid: Callable[[str], Tokenizer], texts: Callable[..., Iterator[str]], name: str, mode: str
) -> None:
    tokenizer = grid(name)
    if mode == "literal" and name == "llama":
        mode = "parse"
    engine, reference = (kind(tokenizer, special_in_text=mode) for kind in (FastEngine, HfEngine))
    batches = [list(texts((name, i), 200, tokenizer)) for i in range(16)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(engine.encode, batches * 4))
    for i, batch in enumerate(batches):
        right, _ = reference.encode(batch)
        assert all(ids.tolist() == right.tolist() for ids, _ in found[i::16])


PEAK = """
import resource, sys
from packer.cli import main
try:
    main(sys.argv[1:])
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["pack", "stats"])
def test_memory_is_no_larger(tmp_path: Path, command: str) -> None:
    source = written(tmp_path / "many.jsonl", 10, seed=2)

    def peak(engine: str) -> int:
        arguments = [command, source, "--tokenizer", TOKENIZER, "--max-length", "2048", "--quiet"]
        arguments += ["--out", str(tmp_path / engine)] if command == "pack" else []
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *arguments, "--tokenizer-engine", engine],
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        return int(done.stdout.split()[-1])

    articles = str(SAMPLES / "articles.jsonl")
    made(tmp_path / "first", "pack", articles, "--tokenizer", TOKENIZER, *SMALL, "--tokenizer-engine", "fast")  # trial
    assert peak("fast") <= 1.3 * peak("hf")  # the same, but for how batches happen to overlap
