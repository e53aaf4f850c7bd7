"""litData: `optimize` over the documents with a `TokensLoader`, as its documentation does. It does not pack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.peers.given import done, given

os.environ["HF_HUB_OFFLINE"] = "1"


def tokens_of(part: tuple[str, int, int], tokenizer: Any, eos: list[Any]) -> Iterator[Any]:
    """The documents of lines that begin in bytes start to stop of a file."""
    import torch

    path, start, stop = part
    with open(path, "rb") as file:
        file.seek(start)
        while file.tell() < stop and (line := file.readline()):
            yield torch.tensor(tokenizer.encode(json.loads(line)["text"]).ids + eos, dtype=torch.int)


def parts_of(path: Path, workers: int) -> list[tuple[str, int, int]]:
    """The file in as many parts, cut at line ends."""
    size = path.stat().st_size
    cuts = [0]
    with path.open("rb") as file:
        for i in range(1, workers):
            file.seek(size * i // workers)
            file.readline()
            cuts.append(file.tell())
    return [(str(path), start, stop) for start, stop in zip(cuts, [*cuts[1:], size], strict=True) if start < stop]


def main() -> None:
    began = perf_counter()
    import litdata
    import tokenizers

    find = given()
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(find.tokenizer) / "tokenizer.json"))
    eos = [tokenizer.token_to_id(find.eos)] if find.eos else []
    loaded = perf_counter()
    parts = [part for path in find.files for part in parts_of(path, find.workers)]
    litdata.optimize(
        partial(tokens_of, tokenizer=tokenizer, eos=eos),
        parts,
        output_dir=str(find.out),
        chunk_size=2049 * 8012,
        item_loader=litdata.TokensLoader(),
        num_workers=find.workers,
    )
    ended = perf_counter()
    index = json.loads((find.out / "index.json").read_bytes())
    done(tokens=sum(chunk["dim"] for chunk in index["chunks"]), loading=loaded - began, steady=ended - loaded)


if __name__ == "__main__":
    main()
