"""Random chats through templates of every kind: the texts, ids and masks of transformers, and nothing trained but what
the assistant wrote."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from packer.alignment import Aligner
from packer.chat import ChatOptions, Renderer
from packer.conversation import Conversation, RenderError
from packer.engines import HfEngine
from packer.tokenizer import load

PLACES = {"chatml": "byte-level", "llama3": "byte-level", "mistral": "sentencepiece", "thinking": "byte-level"}
NAMES = [*PLACES, *(f"{name}_marked" for name in PLACES), "plain"]
TRAINED = {  # what each template makes of an answer that is the last message
    "chatml": lambda text: f"{text}<|im_end|>",
    "llama3": lambda text: f"{text.strip()}<|eot_id|>",
    "mistral": lambda text: f" {text}</s>",
    "thinking": lambda text: f"<think>\n\n</think>\n\n{text}<|im_end|>",
    "plain": lambda text: f" {text}</s>",
}

texts = st.lists(
    st.sampled_from(
        [
            *("Hello there", " how", " are you?", "The answer is 42.", "\n", "\n\n", " ", "  ", "naïve", " 東京", "🙂"),
            *("assistant", "user", "<think>", "</think>", "ASSISTANT:", "é", "e\u0301", "\t", "'s", "\u2581"),
        ]
    ),
    max_size=6,
).map("".join)
control = st.sampled_from(["<|im_end|>", "<s>", "</s>", "[/INST]", "<|im_start|>assistant\n", "<|eot_id|>"])


@st.composite
def chats(draw: st.DrawFn, content: st.SearchStrategy[str] = texts, most: int = 4) -> list[dict[str, Any]]:
    messages = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(content)})
    for _ in range(draw(st.integers(1, most))):
        messages += [{"role": "user", "content": draw(content)}, {"role": "assistant", "content": draw(content)}]
    return messages if draw(st.booleans()) or len(messages) < 3 else messages[:-1]


def said(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant"]


def conversation(messages: list[dict[str, Any]], **more: Any) -> Conversation:
    return Conversation(messages, tuple(message.get("train") for message in messages), **more)


few = settings(max_examples=30)  # for each template
Folder = Callable[..., Path]


@cache
def theirs(folder: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(folder)


@cache
def renderer(folder: Path, **options: Any) -> Renderer:
    return Renderer(ChatOptions(str(folder), **options))


@cache
def aligner(folder: Path) -> Aligner:
    return Aligner(load(str(folder)).backend)


def folder_for(folder_of: Folder, name: str) -> Path:
    return folder_of(name, PLACES.get(name.removesuffix("_marked"), "byte-level"))


def render(folder: Path, messages: list[dict[str, Any]], **options: Any) -> list[tuple[str, list[str]]]:
    """Each document's text, and what is trained of it."""
    documents = renderer(folder, **options)(conversation(messages))
    assert not any(document.ends for document in documents)
    return [(doc.text, [doc.text[a:b] for a, b in doc.trained or ()]) for doc in documents]


@pytest.mark.parametrize("name", NAMES)
@few
@given(messages=chats(st.one_of(texts, control)))
def test_texts_and_ids(name: str, messages: list[dict[str, Any]], folder_of: Folder) -> None:
    folder = folder_for(folder_of, name)
    tokenizer = theirs(folder)
    (document,) = renderer(folder, loss="all")(conversation(messages))
    known = {"date_string": "26 Jul 2024"} if "llama3" in name else {}
    assert document.trained is None
    assert document.text == tokenizer.apply_chat_template(messages, tokenize=False, **known)
    ids, _ = HfEngine(load(str(folder))).encode([document.text])
    assert ids.tolist() == tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **known)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_marked")])
@few
@given(messages=chats(st.one_of(texts, control)))
def test_masks_of_marked_templates(name: str, messages: list[dict[str, Any]], folder_of: Folder) -> None:
    folder = folder_for(folder_of, name)
    known = {"date_string": "26 Jul 2024"} if "llama3" in name else {}
    expected = theirs(folder).apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **known
    )
    (document,) = renderer(folder)(conversation(messages))
    ids, offsets = HfEngine(load(str(folder))).encode([document.text])
    mask, straddling = aligner(folder).masks([document.text], ids, offsets, [document.trained or ()])
    assert ids.tolist() == expected["input_ids"]
    different = int((mask != np.array(expected["assistant_masks"], np.bool_)).sum())
    # transformers trains a token that only ends in a span; here it must begin there.
    assert different <= straddling
    assert document.turns == len(said(messages))


@pytest.mark.parametrize(
    "name", ["chatml", "chatml_marked", "llama3", "llama3_marked", "mistral", "mistral_marked", "plain"]
)
@few
@given(messages=chats(st.one_of(texts, control)))
def test_what_the_assistant_wrote_and_nothing_else(
    name: str, messages: list[dict[str, Any]], folder_of: Folder
) -> None:
    wrote = TRAINED[name.removesuffix("_marked")]
    ((_, trained),) = render(folder_for(folder_of, name), messages)
    assert "".join(trained) == "".join(map(wrote, said(messages)))
    ((_, last),) = render(folder_for(folder_of, name), messages, loss="last")
    assert last == [wrote(text) for text in said(messages)[-1:]]


@pytest.mark.parametrize("name", ["chatml", "llama3", "thinking"])
@few
@given(messages=chats(st.one_of(texts, control)))
def test_markers_and_prefixes_say_the_same(name: str, messages: list[dict[str, Any]], folder_of: Folder) -> None:
    for options in ({}, {"loss": "last"}, {"turns": "each"}, {"turns": "each", "loss": "last"}):
        try:
            derived = render(folder_of(name), messages, **options)
        except RenderError:
            assert name == "thinking"
            continue
        assert derived == render(folder_of(f"{name}_marked"), messages, **options)


@pytest.mark.parametrize("name", ["chatml", "llama3", "mistral", "thinking", "plain"])
@few
@given(messages=chats())
def test_each_turn_as_inference_sees_it(name: str, messages: list[dict[str, Any]], folder_of: Folder) -> None:
    documents = render(folder_for(folder_of, name), messages, turns="each")
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    assert len(documents) == max(1, len(turns))
    for i, (text, trained) in zip(turns, documents, strict=False):
        tokenizer = theirs(folder_for(folder_of, name))
        known = {"date_string": "26 Jul 2024"} if name == "llama3" else {}
        prompt = tokenizer.apply_chat_template(messages[:i], tokenize=False, add_generation_prompt=True, **known)
        prompt += "ASSISTANT:" if name == "plain" else ""
        assert trained == [TRAINED[name](messages[i]["content"])]
        assert text.startswith(prompt + trained[0])
        assert text[len(prompt) + len(trained[0]) :].strip() == ""


@pytest.mark.parametrize("name", ["chatml", "llama3", "mistral"])
@few
@given(messages=chats())
def test_decoding_the_trained_tokens(name: str, messages: list[dict[str, Any]], folder_of: Folder) -> None:
    folder = folder_for(folder_of, name)
    (document,) = renderer(folder)(conversation(messages))
    tokenizer = load(str(folder))
    ids, offsets = HfEngine(tokenizer).encode([document.text])
    mask, straddling = aligner(folder).masks([document.text], ids, offsets, [document.trained or ()])
    assume(straddling == 0)
    parts = [
        [i for i, _ in same]
        for on, same in groupby(zip(ids.tolist(), mask.tolist(), strict=True), lambda x: x[1])
        if on
    ]
    if name == "mistral":  # decoded as pieces: a decoder would take a space from the front
        pieces = ["".join(tokenizer.backend.id_to_token(i) for i in part) for part in parts]
        assert all(piece.endswith("</s>") for piece in pieces)
        assert len(pieces) == len(said(messages))
    else:
        assert [tokenizer.decode(part) for part in parts] == [TRAINED[name](text) for text in said(messages)]


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": "the sky", "n": 1}}}
WITH_CALLS = [
    {"role": "user", "content": "What do you see?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "blue"},
    {"role": "assistant", "content": "It is blue.", "tool_calls": None},
]


@pytest.mark.parametrize("name", ["chatml", "chatml_marked", "llama3", "llama3_marked"])
def test_tool_calls_are_trained_and_results_are_not(name: str, folder_of: Folder) -> None:
    folder = folder_of(name)
    known = {"date_string": "26 Jul 2024"} if "llama3" in name else {}
    (document,) = renderer(folder)(conversation(WITH_CALLS, tools=TOOLS))
    assert document.text == theirs(folder).apply_chat_template(WITH_CALLS, tools=TOOLS, tokenize=False, **known)
    trained = [document.text[a:b] for a, b in document.trained or ()]
    assert len(trained) == 2
    assert trained[0].count('"the sky"') == 2
    assert trained[1] == TRAINED[name.removesuffix("_marked")]("It is blue.")


def test_reasoning_goes_by_each_of_its_names(folder_of: Folder) -> None:
    for field in ("reasoning_content", "reasoning", "thinking"):
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!", field: "Let me see."}]
        ((text, trained),) = render(folder_of("thinking"), messages)
        assert text == theirs(folder_of("thinking")).apply_chat_template(messages, tokenize=False)
        assert trained == ["<think>\nLet me see.\n</think>\n\n!<|im_end|>"]


def test_parallel_contents_that_are_lists_pass_as_they_are(folder_of: Folder) -> None:
    source = (
        "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %}<|im_end|>\n{% endfor %}"
    )
    file = folder_of("chatml").parent / "parts.jinja"
    file.write_text(source + "{% if add_generation_prompt %}assistant:{% endif %}", encoding="utf-8")
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
    ]
    ((text, trained),) = render(folder_of("chatml"), messages, template=str(file))
    assert (text, trained) == ("user:a<|im_end|>\nassistant:bc<|im_end|>\n", ["bc<|im_end|>"])
