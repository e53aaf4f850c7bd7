"""TRL's own preparation of chats, as its SFT trainer does it before training: template, ids and mask, then packing.

`SFTTrainer` prepares its data in one method that does not need a model, so that method is called by itself.
"""

from __future__ import annotations

import os
from time import perf_counter
from types import SimpleNamespace

from benchmarks.peers.given import done, given

os.environ["HF_HUB_OFFLINE"] = "1"


def main() -> None:
    began = perf_counter()
    import datasets
    from transformers import AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    find = given()
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(find.tokenizer)
    settings = SFTConfig(
        output_dir=str(find.out / "trainer"),
        max_length=find.max_length,
        packing=True,
        dataset_num_proc=find.workers,
        assistant_only_loss="{% generation" in (tokenizer.chat_template or ""),
        use_cpu=True,
        bf16=False,
        report_to=[],
    )
    loaded = perf_counter()
    chats = datasets.load_dataset(
        "json", data_files=[str(path) for path in find.files], split="train", cache_dir=str(find.out / "cache")
    )
    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=tokenizer.chat_template, completion_only_loss=False)
    rows = SFTTrainer._prepare_dataset(trainer, chats, tokenizer, settings, True, None, "train")
    rows.save_to_disk(str(find.out / "rows"))
    saved = perf_counter()
    done(
        tokens=sum(map(sum, rows["seq_lengths"])),
        loading=loaded - began,
        steady=saved - loaded,
    )


if __name__ == "__main__":
    main()
