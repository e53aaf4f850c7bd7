"""transformers alone: `apply_chat_template(tokenize=True)` on batches of chats, in one process. Nothing is written."""

from __future__ import annotations

import json
import os
from time import perf_counter

from benchmarks.peers.given import done, given

os.environ["HF_HUB_OFFLINE"] = "1"
BATCH = 1000


def main() -> None:
    began = perf_counter()
    from transformers import AutoTokenizer

    find = given()
    tokenizer = AutoTokenizer.from_pretrained(find.tokenizer)
    loaded = perf_counter()
    chats = [json.loads(line)["messages"] for path in find.files for line in path.read_bytes().splitlines()]
    tokens = 0
    for i in range(0, len(chats), BATCH):
        ids = tokenizer.apply_chat_template(chats[i : i + BATCH], tokenize=True, return_dict=False)
        tokens += sum(map(len, ids))
    done(tokens=tokens, loading=loaded - began, steady=perf_counter() - loaded)


if __name__ == "__main__":
    main()
