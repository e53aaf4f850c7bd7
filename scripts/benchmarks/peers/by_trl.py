"""`datasets.load_dataset` + `map(tokenize)` + TRL's `pack_dataset(strategy="bfd")` + `save_to_disk`.

`bfd` is TRL's default, and the lighter one: it truncates long documents, which packer splits (TRL's `bfd_split`), so
it writes fewer tokens.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any

from benchmarks.peers.given import done, given

os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    began = perf_counter()
    import datasets
    from transformers import AutoTokenizer
    from trl.data_utils import pack_dataset

    find = given()
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(find.tokenizer)
    eos = find.eos or ""
    loaded = perf_counter()

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {
            "input_ids": tokenizer([text + eos for text in batch["text"]], return_attention_mask=False)["input_ids"]
        }

    texts = datasets.load_dataset(
        "json", data_files=[str(path) for path in find.files], split="train", cache_dir=str(find.out / "cache")
    )
    read = perf_counter()
    ids = texts.map(tokenize, batched=True, num_proc=find.workers, remove_columns=texts.column_names)
    tokenized = perf_counter()
    rows = pack_dataset(ids, find.max_length, strategy="bfd", map_kwargs={"num_proc": find.workers})
    packed = perf_counter()
    rows.save_to_disk(str(find.out / "rows"))
    saved = perf_counter()
    done(
        tokens=sum(map(sum, rows["seq_lengths"])),
        loading=loaded - began,
        reading=read - loaded,
        tokenizing=tokenized - read,
        packing=packed - tokenized,
        saving=saved - packed,
        steady=saved - loaded,
    )


if __name__ == "__main__":
    main()
