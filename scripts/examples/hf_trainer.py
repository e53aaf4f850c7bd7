"""The `Trainer` of `transformers` on packed rows: a map-style data set and a collator, the rest is its own.

    packer pack TEXTS --tokenizer T --max-length 1024 --format arrow --out OUT
    python scripts/examples/hf_trainer.py OUT

Pack as Arrow: the Trainer draws rows one by one at random, and a Parquet row costs its whole row group.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from packer import manifest
from packer.torch import PackedDataset, collate


def trainer(model: Any, out: str | Path, **options: Any) -> Any:
    """options: of TrainingArguments."""
    arguments = TrainingArguments(
        remove_unused_columns=False,  # the collator reads them all
        **{"report_to": "none", **options},
    )
    rows = PackedDataset(out, labels="aligned")
    return Trainer(model, arguments, partial(collate, layout="transformers"), train_dataset=rows)


if __name__ == "__main__":
    out = Path(sys.argv[1])
    vocab_size = manifest.load(out).totals.max_token_id + 1
    config = LlamaConfig(vocab_size=vocab_size, hidden_size=64, intermediate_size=128, num_hidden_layers=2)
    trainer(LlamaForCausalLM(config), out, max_steps=20, per_device_train_batch_size=4, logging_steps=1).train()
