"""As Megatron's preprocessing works: lines to a pool of processes, one tokenizer call a document, ids to one flat file.

Megatron-core's wheel does not hold that script, so the flow is written here anew; the ids go to a flat int32 file, the
lengths beside it. It does not pack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.peers.given import Given, done, given

CHUNK = 32  # lines sent to a process at a time
_state: dict[str, Any] = {}


def begin(path: str, eos: str | None) -> None:
    import tokenizers

    _state["tokenizer"] = tokenizers.Tokenizer.from_file(path)
    _state["eos"] = [_state["tokenizer"].token_to_id(eos)] if eos else []


def encode(line: bytes) -> list[int]:
    ids: list[int] = _state["tokenizer"].encode(json.loads(line)["text"]).ids
    ids += _state["eos"]
    return ids


def lines_of(find: Given) -> Iterator[bytes]:
    for path in find.files:
        with path.open("rb") as file:
            yield from (line for line in file if line.strip())


def main() -> None:
    find = given()
    find.out.mkdir(parents=True, exist_ok=True)
    began = perf_counter()
    lengths = []
    path = str(Path(find.tokenizer) / "tokenizer.json")
    with (
        get_context("spawn").Pool(find.workers, begin, (path, find.eos)) as pool,
        (find.out / "tokens.bin").open("wb") as file,
    ):
        for ids in pool.imap(encode, lines_of(find), CHUNK):
            file.write(np.array(ids, np.int32).tobytes())
            lengths.append(len(ids))
        pool.close()
        pool.join()
    np.save(find.out / "lengths.npy", np.array(lengths, np.int32))
    done(tokens=sum(lengths), steady=perf_counter() - began)


if __name__ == "__main__":
    main()
