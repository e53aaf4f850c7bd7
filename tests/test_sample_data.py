"""The sample data is what its scripts make, and its tokenizer gives every text back."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_data"
SAME_BYTES = ["articles.jsonl", "chats.jsonl", "notes.txt", "snippets.csv", "stories.txt"]


def script(name: str) -> ModuleType:
    """A module of `scripts/`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of sample files made anew."""
    folder = tmp_path_factory.mktemp("sample_data")
    script("make_sample_data").write_all(folder)
    return folder


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(script("train_sample_tokenizer").sample_texts(SAMPLES))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))


@pytest.mark.parametrize("name", SAME_BYTES)
def test_made_again_with_the_same_bytes(made: Path, name: str) -> None:
    assert (made / name).read_bytes() == (SAMPLES / name).read_bytes()


def test_gzip_made_again(made: Path) -> None:
    """Content and header; the deflated bytes depend on the zlib at hand."""
    again, committed = ((folder / "compressed.jsonl.gz").read_bytes() for folder in (made, SAMPLES))
    assert gzip.decompress(again) == gzip.decompress(committed)
    assert again[4:8] == committed[4:8] == bytes(4), "the time must be zero"


def test_parquet_made_again(made: Path) -> None:
    again, committed = (pq.read_table(folder / "articles.parquet") for folder in (made, SAMPLES))
    assert again.equals(committed)


def test_tokenizer_trained_again(tokenizer: Tokenizer) -> None:
    """The same ids; the file's bytes depend on the version of tokenizers."""
    again = json.loads(script("train_sample_tokenizer").train(SAMPLES).to_str())["model"]
    committed = json.loads(tokenizer.to_str())["model"]
    assert again["vocab"] == committed["vocab"]
    assert again["merges"] == committed["merges"]


def test_decoding_gives_every_text_back(tokenizer: Tokenizer, texts: list[str]) -> None:
    encoded = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert tokenizer.decode_batch(encoded, skip_special_tokens=False) == texts


@pytest.mark.parametrize("text", [" leading", "tab\tand\r\nbreaks\n\n", "\x00\x7f", "नमस्ते 🏴‍☠️ ﷽", "a  b   c", ""])
def test_decoding_gives_unseen_text_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens(tokenizer: Tokenizer, texts: list[str]) -> None:
    config = json.loads((SAMPLES / "tokenizer" / "tokenizer_config.json").read_bytes())
    special = [config["eos_token"], config["pad_token"], *config["additional_special_tokens"]]
    assert config["eos_token"] == "<|endoftext|>"
    assert all(len(tokenizer.encode(token).ids) == 1 for token in special)
    assert not any(token in text for token in special for text in texts)
    assert tokenizer.get_vocab_size() == 4096
    assert tokenizer.encode("plain text", add_special_tokens=True).ids == tokenizer.encode("plain text").ids


def test_token_ids_are_the_stories(tokenizer: Tokenizer) -> None:
    records = [json.loads(line) for line in (SAMPLES / "token_ids.jsonl").read_bytes().splitlines()]
    end = tokenizer.token_to_id("<|endoftext|>")
    assert all(record["input_ids"].index(end) == len(record["input_ids"]) - 1 for record in records)
    story = "\n\n".join(tokenizer.decode(record["input_ids"]) for record in records) + "\n"
    assert story.encode() == (SAMPLES / "stories.txt").read_bytes()


def test_articles_are_spread_like_web_text(tokenizer: Tokenizer) -> None:
    """Many short documents, some of several thousand tokens: what makes packing worth it."""
    records = [json.loads(line) for line in (SAMPLES / "articles.jsonl").read_bytes().split(b"\n")[:-1]]
    lengths = sorted(len(encoding.ids) for encoding in tokenizer.encode_batch([record["text"] for record in records]))
    assert len(lengths) == 360
    assert lengths[0] < 10
    assert 50 < lengths[180] < 200
    assert lengths[-3] > 2000
