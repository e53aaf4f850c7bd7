"""A `transformers` model in a plain loop: `layout="transformers"` names what its attention takes.

packer pack TEXTS --tokenizer T --max-length 1024 --out OUT
python scripts/examples/transformers_model.py OUT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from packer import manifest
from packer.torch import PackedLoader


def tiny(vocab_size: int, attention: str = "sdpa") -> Any:
    """A random model. On a GPU give attention="flash_attention_2", which takes `cu_seq_lens_q` and asks no mask."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config)


def train(model: Any, optimizer: torch.optim.Optimizer, loader: PackedLoader) -> list[float]:
    losses = []
    for batch in loader:
        tokens = (batch["shift_labels"] != -100).sum()  # with several ranks: the sum of them all, by all_reduce
        # Without flash-attn the model finds documents from position_ids, but only if it keeps no cache.
        loss = model(**batch, use_cache=False, num_items_in_batch=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    out = Path(sys.argv[1])
    model = tiny(manifest.load(out).totals.max_token_id + 1)
    loader = PackedLoader(out, rows_per_batch=4, layout="transformers", shift_labels=True)
    print(*train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader), sep="\n")
