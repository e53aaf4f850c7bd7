"""The raw tokenizer call, as a process: nothing is read, collected or written on its clock.

    python -m benchmarks.alone hf|fast --tokenizer FOLDER [--chars N] FILE.jsonl ...

Texts are loaded, cut into calls and the tokenizer is loaded before the clock starts; results are dropped call by call.
Prints {"wall", "cpu", "load", "tokens"}: `load` is what loading the tokenizer took.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any


def by_characters(texts: Sequence[str], characters: int) -> Iterator[list[str]]:
    """Batches that end with the text that brings them to so many characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def hf(path: Path) -> Callable[[list[str]], Any]:
    """`encode_batch_fast`; its ids are never taken out."""
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.no_truncation()
    backend.no_padding()
    return lambda texts: sum(map(len, backend.encode_batch_fast(texts, add_special_tokens=False)))


def fast(path: Path) -> Callable[[list[str]], Any]:
    """`encode_batch_flat`: all ids end to end."""
    import fastokens

    native = fastokens.Tokenizer.from_json_str(path.read_text(encoding="utf-8"))
    native.no_truncation()
    native.no_padding()
    return lambda texts: len(memoryview(native.encode_batch_flat(texts)[0]).cast("B")) // 4


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the raw tokenizer call.")
    parser.add_argument("engine", choices=["hf", "fast"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--chars", type=int, default=1 << 22)
    given = parser.parse_args()
    texts = [json.loads(line)["text"] for path in given.files for line in path.read_bytes().split(b"\n") if line]
    batches = list(by_characters(texts, given.chars))
    path = given.tokenizer / "tokenizer.json" if given.tokenizer.is_dir() else given.tokenizer
    began = perf_counter()
    encode = {"hf": hf, "fast": fast}[given.engine](path)
    load = perf_counter() - began
    before, began = resource.getrusage(resource.RUSAGE_SELF), perf_counter()
    tokens = sum(encode(batch) for batch in batches)
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"wall": wall, "cpu": cpu, "load": load, "tokens": tokens}))


if __name__ == "__main__":
    main()
