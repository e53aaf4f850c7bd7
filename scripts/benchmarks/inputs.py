"""Corpora to measure on: files as they are given, or generated from `sample_data`, the same at each run."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ARTICLES = ROOT / "sample_data" / "articles.jsonl"
CHATS = ROOT / "sample_data" / "chats.jsonl"
TOKENIZER = ROOT / "sample_data" / "tokenizer"
SEED = 0


@dataclass(frozen=True)
class Corpus:
    """files: as given; plain: the same as plain JSON Lines, for those that cannot read them; megabytes: of text."""

    files: list[Path]
    plain: list[Path]
    documents: int
    megabytes: float


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".zst":
        from backports import zstd

        data = zstd.decompress(data)
    elif path.suffix == ".gz":
        data = gzip.decompress(data)
    return data


def records_of(path: Path) -> Iterator[dict[str, Any]]:
    for line in unpacked(path).split(b"\n"):
        if line:
            yield json.loads(line)


def texts_of(path: Path) -> list[str]:
    return [record["text"] for record in records_of(path)]


def corpus_of(given: Sequence[Path], folder: Path) -> Corpus:
    """Of files, and of the JSON Lines in folders. Unpacks what is compressed into `folder`."""
    files: list[Path] = []
    for path in given:
        files += sorted(f for f in path.iterdir() if ".jsonl" in f.name) if path.is_dir() else [path]
    plain, documents, size = [], 0, 0
    for path in files:
        data = unpacked(path)
        if path.suffix in (".zst", ".gz"):
            path = folder / path.with_suffix("").name
            path.write_bytes(data)
        plain.append(path)
        for record in map(json.loads, filter(None, data.split(b"\n"))):
            documents += 1
            size += len(_text(record).encode())
    return Corpus(files, plain, documents, size / 1e6)


def _text(record: dict[str, Any]) -> str:
    if "messages" in record:
        return "".join(message["content"] for message in record["messages"])
    return str(record["text"])


def generated(seed: int) -> Iterator[str]:
    """Articles without end: all their paragraphs dealt anew, to as many articles of as many paragraphs each."""
    rng = random.Random(seed)
    articles = [text.split("\n\n") for text in texts_of(ARTICLES)]
    paragraphs = [paragraph for article in articles for paragraph in article]
    while True:
        rng.shuffle(articles)
        rng.shuffle(paragraphs)
        dealt = iter(paragraphs)
        for article in articles:
            yield "\n\n".join(next(dealt) for _ in article)


def write_generated(path: Path, size: int) -> None:
    """JSON Lines of about `size` bytes."""
    with path.open("wb") as file:
        for text in generated(SEED):
            file.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
            if file.tell() >= size:
                return


def write_chats(path: Path, count: int, characters: int) -> None:
    """Chats of a question and an answer, about so many characters each, of sentences of the articles."""
    rng = random.Random(SEED)
    sentences = [
        sentence for text in texts_of(ARTICLES) for sentence in text.replace("\n", " ").split(". ") if sentence
    ]
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            question, answer = rng.choice(sentences)[: characters // 3] + "?", ""
            while len(question) + len(answer) < characters:
                answer += rng.choice(sentences) + ". "
            turns = [("user", question), ("assistant", answer.strip())]
            messages = [{"role": role, "content": content} for role, content in turns]
            file.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
