"""TRL's `SFTTrainer` on packed shards as they are: it reads `input_ids`, `labels` and `seq_lengths`.

    packer pack TEXTS --tokenizer T --max-length 1024 --out OUT
    python scripts/examples/trl_sft.py OUT T

Labels must be aligned and columns full, as `pack` writes them unless told otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from packer import manifest


def trainer(model: Any, tokenizer: Any, out: str | Path, cache: str | Path | None = None, **options: Any) -> Any:
    """cache: where `datasets` keeps its copy of the shards; None: where it always does. options: of SFTConfig."""
    layout = manifest.load(Path(out)).layout
    if (layout.labels, layout.boundaries, layout.columns) != ("aligned", "document", "full"):
        raise ValueError(f"{out}: pack it with --labels aligned --boundaries document --columns full")
    arguments = SFTConfig(
        dataset_kwargs={"skip_prepare_dataset": True},  # tokens and labels are ready
        padding_free=True,  # rows end to end; documents are told apart by seq_lengths
        max_length=None,  # rows have it already
        **{"bf16": torch.cuda.is_available(), "report_to": "none", **options},
    )
    rows = load_dataset("parquet", data_dir=str(Path(out) / "data"), split="train", cache_dir=cache and str(cache))
    return SFTTrainer(model, arguments, train_dataset=rows, processing_class=tokenizer)


if __name__ == "__main__":
    out, source = map(Path, sys.argv[1:])
    tokenizer = PreTrainedTokenizerFast.from_pretrained(source)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2)
    trainer(LlamaForCausalLM(config), tokenizer, out, max_steps=20, logging_steps=1).train()
