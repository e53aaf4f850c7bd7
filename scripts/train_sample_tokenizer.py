"""Trains the tokenizer of `sample_data/` on its texts, and writes `token_ids.jsonl`, the stories as its ids.

    python scripts/make_sample_data.py && python scripts/train_sample_tokenizer.py [--data sample_data]

A byte-level BPE like GPT-2's: every text is encoded, nothing is added to it, and decoding gives the text back.
Training has no random part, so that the same texts give the same `tokenizer.json` at each run.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SAMPLE_DATA = Path(__file__).parents[1] / "sample_data"
VOCABULARY = 4096
EOS, TURN_START, TURN_END, PAD = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"
CHAT_TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] + '<|im_end|>' }}{%- endgeneration %}
    {%- else %}
        {{- message['content'] + '<|im_end|>' }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def json_lines(data: bytes) -> list[dict[str, Any]]:
    """The records of JSON Lines."""
    return [json.loads(line) for line in data.split(b"\n") if line]


def sample_texts(data: Path) -> Iterator[str]:
    """Every text of the sample files, in a fixed order."""
    records = json_lines((data / "articles.jsonl").read_bytes())
    records += json_lines(gzip.decompress((data / "compressed.jsonl.gz").read_bytes()))
    records += pq.read_table(data / "articles.parquet").to_pylist()
    with (data / "snippets.csv").open(encoding="utf-8", newline="") as file:
        records += list(csv.DictReader(file))
    for record in records:
        yield record["text"]
    for chat in json_lines((data / "chats.jsonl").read_bytes()):
        for message in chat["messages"]:
            yield message["content"]
    for name in ("stories.txt", "notes.txt"):
        yield (data / name).read_bytes().decode()


def train(data: Path) -> Tokenizer:
    """A tokenizer trained on the sample texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[EOS, TURN_START, TURN_END, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample_texts(data), trainer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "eos_token": EOS,
        "pad_token": PAD,
        "additional_special_tokens": [TURN_START, TURN_END],
        "model_max_length": 32768,
        "chat_template": CHAT_TEMPLATE,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer.to_str().encode() + b"\n")
    (folder / "tokenizer_config.json").write_bytes(json.dumps(config, indent=2).encode() + b"\n")


def story_ids(tokenizer: Tokenizer, data: Path) -> Iterator[dict[str, Any]]:
    """The paragraphs of the stories as records {"id", "input_ids"}, each with an end-of-text token."""
    end = tokenizer.token_to_id(EOS)
    for number, paragraph in enumerate((data / "stories.txt").read_bytes().decode().strip().split("\n\n")):
        yield {"id": number, "input_ids": [*tokenizer.encode(paragraph).ids, end]}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train the sample tokenizer.")
    parser.add_argument("--data", type=Path, default=SAMPLE_DATA, help="folder with the sample files")
    parser.add_argument("--out", type=Path, help="folder to write to (default: the same)")
    arguments = parser.parse_args()
    data, out = arguments.data, arguments.out or arguments.data
    tokenizer = train(data)
    write_tokenizer(tokenizer, out / "tokenizer")
    lines = (json.dumps(record) + "\n" for record in story_ids(tokenizer, data))
    (out / "token_ids.jsonl").write_bytes("".join(lines).encode())


if __name__ == "__main__":
    main()
