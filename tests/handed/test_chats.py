"""Real chats with real tokenizers against transformers: the same texts, ids and masks, for every chat file.

They are not part of the repository: PACKER_HANDED names the folder that holds `corpora/` and `tokenizers/`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerFast

from packer.alignment import Aligner
from packer.chat import ChatOptions, Renderer
from packer.conversation import Conversation, Pair, Rendered, RenderError
from packer.corpus import PartitionReader, ReadOptions, find_sources, partition
from packer.engines import HfEngine
from packer.tokenizer import load

HANDED = os.environ.get("PACKER_HANDED")
if not HANDED:
    pytest.skip("PACKER_HANDED names no folder of handed corpora", allow_module_level=True)

CORPORA, TOKENIZERS = Path(HANDED) / "corpora", Path(HANDED) / "tokenizers"
TEMPLATES = Path(__file__).parent.parent / "chat" / "templates"
FILES = {  # chats in each
    "sft_messages/chatml.jsonl": 3,
    "sft_messages/mllm_sft_text_example_data.jsonl": None,
    "sft_messages/openai_sft.jsonl": None,
    "sft_sharegpt/conversations.jsonl": 3,
    "sft_sharegpt/dummy_conversation.json": None,
    "sft_tools/glaive_toolcall_en_demo.json": None,
    "sft_tools/mistral_get_weather_full.json": 1,
    "sft_tools/mistral_no_tools.json": 1,
    "sft_tools/mistral_parallel_calls.json": 1,
    "columnar/messages_list_struct.parquet": None,
}
# A tokenizer with a template: its own (None) or one of tests/chat/templates.
WAYS = [
    ("qwen3", None),
    ("qwen3", "chatml"),
    ("qwen3", "chatml_marked"),
    ("gpt2", "llama3"),
    ("gpt2", "llama3_marked"),
    ("olmo_neox", "thinking_marked"),
    ("mistral_v3", "mistral"),
    ("mistral_v3", "mistral_marked"),
]
DATE = {"date_string": "26 Jul 2024"}


@cache
def conversations(name: str) -> list[Conversation]:
    found: list[Conversation] = []

    def render(record: Conversation | Pair) -> list[Rendered]:
        assert isinstance(record, Conversation)
        found.append(record)
        return [Rendered("x", None, ends=False, turns=1)]

    options = ReadOptions()
    for part in partition(find_sources([str(CORPORA / name)], options, out=None).sources, options):
        for _ in PartitionReader(part, options, render):
            pass
    return found


@cache
def theirs(name: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(TOKENIZERS / name)


@cache
def aligner(name: str) -> Aligner:
    return Aligner(load(str(TOKENIZERS / name)).backend)


@cache
def renderer(tokenizer: str, template: str | None, turns: str) -> Renderer:
    path = None if template is None else str(TEMPLATES / f"{template}.jinja")
    return Renderer(ChatOptions(str(TOKENIZERS / tokenizer), path, turns=turns))


def source(template: str | None) -> str | None:
    return None if template is None else (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")


def expected(tokenizer: str, template: str | None, record: Conversation, **options: Any) -> Any:
    """What transformers makes of it. Where its template cannot bear the null content of a tool call that transformers
    leaves out, of an empty one: that is what packer does then."""
    known = {"tools": record.tools, "chat_template": source(template), **options, **record.template_args, **DATE}
    try:
        return theirs(tokenizer).apply_chat_template(record.messages, **known)
    except (TemplateError, TypeError):
        messages = [{**m, "content": m.get("content") or ""} if m.get("tool_calls") else m for m in record.messages]
        assert messages != record.messages
        return theirs(tokenizer).apply_chat_template(messages, **known)


@pytest.mark.parametrize("name", FILES)
def test_every_chat_is_read(name: str) -> None:
    found = conversations(name)
    assert found
    assert FILES[name] in (None, len(found))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("tokenizer", "template"), WAYS)
def test_texts_ids_and_masks(tokenizer: str, template: str | None, name: str) -> None:
    compared, refused = 0, []
    for record in conversations(name):
        try:
            (document,) = renderer(tokenizer, template, "all")(record)
        except RenderError as error:
            refused.append(str(error))
            continue
        compared += 1
        text = expected(tokenizer, template, record, tokenize=False)
        assert document.text == text
        ids, offsets = HfEngine(load(str(TOKENIZERS / tokenizer))).encode([text])
        marked = bool(template and template.endswith("_marked"))
        full = expected(
            tokenizer, template, record, tokenize=True, return_dict=True, return_assistant_tokens_mask=marked
        )
        assert ids.tolist() == full["input_ids"]
        mask, straddling = aligner(tokenizer).masks([text], ids, offsets, [document.trained or ()])
        if marked:
            differing = int((mask != np.array(full["assistant_masks"], np.bool_)).sum())
            # Their offsets leave the space out of a byte-level token, and they train what only ends in a span.
            assert differing <= straddling + _beginning_with_space(text, document)
        assert mask.any() == any(message["role"] == "assistant" for message in record.messages)
    explained = ("it rewrites history", "Roles must alternate", "cannot render this chat", "is not how the text begins")
    assert all(any(words in reason for words in explained) for reason in refused), refused
    if template in ("chatml", "llama3") and "get_weather" not in name:
        assert compared == len(conversations(name))


def _beginning_with_space(text: str, document: Rendered) -> int:
    return sum(text[stop : stop + 1] == " " or text[start : start + 1] == " " for start, stop in document.trained or ())


@pytest.mark.parametrize("name", FILES)
def test_qwen3_with_each_turn(name: str) -> None:
    """Its template rewrites history, so several turns are several documents: each the prompt of inference, then what
    is trained, then nothing but a new line."""
    several = 0
    for record in conversations(name):
        turns = [i for i, message in enumerate(record.messages) if message["role"] == "assistant"]
        documents = renderer("qwen3", None, "each")(record)
        assert len(documents) == max(1, len(turns))
        several += len(turns) > 1
        for i, document in zip(turns, documents, strict=False):
            beginning = Conversation(record.messages[:i], record.train[:i], record.tools)
            prompt = expected("qwen3", None, beginning, tokenize=False, add_generation_prompt=True)
            ((start, stop),) = document.trained or ()
            assert document.text[:start] == prompt
            assert document.text[start:stop].endswith("<|im_end|>")
            assert document.text[stop:] == "\n"
            content = record.messages[i].get("content") or ""
            assert content.split("</think>")[-1].strip("\n") in document.text[start:stop]
    assert several or name.endswith(("mllm_sft_text_example_data.jsonl", "openai_sft.jsonl", ".parquet", "calls.json"))
