"""Templates that write message by message: one rendering says the same as rendering every beginning of a chat."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.chat.rendering import Template
from packer.chat.spans import Chat, each, written
from packer.conversation import RenderError

TEMPLATES = Path(__file__).parent / "templates"
DATE = datetime.datetime(2024, 7, 26)
VARIABLES: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None}
LOOP = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}assistant: {% endif %}"

YES = {
    "bare": LOOP + PROMPT,
    "no prompt": LOOP,
    "first message elsewhere": "{{ messages[0].content }}|" + LOOP + PROMPT,
    "without the first": "{% set rest = messages[1:] %}{{ messages[0].content }}|"
    + LOOP.replace("messages", "rest")
    + PROMPT,
    "perhaps without the first": "{% if messages[0].role == 'system' %}{% set messages = messages[1:] %}{% endif %}"
    + LOOP
    + PROMPT,
    "counts from the beginning": "{% for m in messages %}{{ loop.index }}{% if loop.first %}!{% endif %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}{% endif %}",
    "loops within": "{% for m in messages %}{{ m.role }}: {% for c in m.content %}{{ c }}"
    "{% if not loop.last %}.{% endif %}{% endfor %}\n{% endfor %}" + PROMPT,
    "leaves out": "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
    "{{ m.role }}: {{ m.content }}\n{% endfor %}" + PROMPT,
    "state that only later turns read": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{{ ns.n % 3 }}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}{% endif %}",
    "macro": "{% macro say(m) %}{{ m.role }}: {{ m.content }}\n{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{% endfor %}" + PROMPT,
    "prompt of two conditions": LOOP + "{% if add_generation_prompt and not tools %}assistant: {% endif %}",
}
NO = {
    "the last is another": LOOP.replace("\n", "{% if loop.last %}!{% endif %}\n") + PROMPT,
    "how many": "{{ messages | length }}" + LOOP + PROMPT,
    "looks ahead": LOOP.replace("\n", "{{ messages[loop.index0 + 1].role }}\n") + PROMPT,
    "next item": LOOP.replace("\n", "{{ loop.nextitem.role }}\n") + PROMPT,
    "the last message first": "{{ messages[-1].content }}" + LOOP + PROMPT,
    "before it is behind the beginning": LOOP.replace("\n", "{{ messages[loop.index0 - 1].role }}\n") + PROMPT,
    "backwards": LOOP.replace("in messages", "in messages[::-1]") + PROMPT,
    "all but the last": "{% set rest = messages[:-1] %}" + LOOP.replace("in messages", "in rest") + PROMPT,
    "two loops": "{% for m in messages %}{{ m.role[0] }}{% endfor %}" + LOOP + PROMPT,
    "some only": LOOP.replace("in messages", "in messages if m.role != 'tool'") + PROMPT,
    "filtered": "{% for m in messages | selectattr('role') %}{{ m.content }}{% endfor %}" + PROMPT,
    "prompt from state": "{% set ns = namespace(n='') %}"
    + LOOP.replace("\n", "{% set ns.n = m.role %}\n")
    + "{% if add_generation_prompt %}{{ ns.n }}{% endif %}",
    "prompt from state by a macro": "{% set ns = namespace(n='') %}{% macro n() %}{{ ns.n }}{% endmacro %}"
    + LOOP.replace("\n", "{% set ns.n = m.role %}\n")
    + "{% if add_generation_prompt %}{{ n() }}{% endif %}",
    "prompt asked for within": LOOP.replace("\n", "{% if add_generation_prompt %}{% else %}.{% endif %}\n") + PROMPT,
    "something after": LOOP + PROMPT + "end",
    "something else instead of a prompt": LOOP + PROMPT.replace("{% endif %}", "{% else %}end{% endif %}"),
    "stops": LOOP.replace("\n", "{% if m.role == 'tool' %}{% break %}{% endif %}\n") + PROMPT,
    "otherwise": LOOP.replace("{% endfor %}", "{% else %}none{% endfor %}") + PROMPT,
    "within a condition": "{% if tools is none %}" + LOOP + "{% endif %}" + PROMPT,
    "a loop by another name": LOOP.replace("\n", "{% set outer = loop %}{% if outer.last %}!{% endif %}\n") + PROMPT,
    "a name for one more": "{% set first, rest = 1, messages %}" + LOOP.replace("in messages", "in rest") + PROMPT,
    "a joiner": "{% set comma = joiner('') %}" + LOOP.replace("\n", "{{ comma() }}\n") + PROMPT,
    "a number": "{% for m in messages %}{{ loop.revindex }}{{ m.content }}{% endfor %}" + PROMPT,
    "state by a macro": "{% set ns = namespace(n=0) %}{% macro say(m) %}{% set ns.n = 1 %}{{ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{% endfor %}{% if add_generation_prompt %}{{ ns.n }}{% endif %}",
}

roles = st.sampled_from(["user", "assistant", "assistant", "tool", "system"])
contents = st.lists(st.sampled_from(["a", "assistant: ", " ", "\n", "é", "!", "bc", "1"]), max_size=3).map("".join)
chats = st.lists(st.fixed_dictionaries({"role": roles, "content": contents}), min_size=1, max_size=8)


@cache
def template_of(source: str, *, fast: bool) -> Template:
    template = Template("t", source, DATE)
    if not fast:
        template.streaming = None
    return template


def result(
    run: Callable[..., Any], source: str, messages: list[dict[str, Any]], turns: list[int], *, fast: bool
) -> Any:
    """What comes out, or that nothing does."""
    try:
        return run(Chat(template_of(source, fast=fast), messages, VARIABLES), turns)
    except RenderError:
        return None


@pytest.mark.parametrize("name", YES)
@settings(max_examples=40)
@given(messages=chats)
def test_one_rendering_says_the_same(name: str, messages: list[dict[str, Any]]) -> None:
    source = YES[name]
    assert template_of(source, fast=True).streaming is not None
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    for run in (written, each):
        assert result(run, source, messages, turns, fast=True) == result(run, source, messages, turns, fast=False)


@pytest.mark.parametrize("name", NO)
def test_templates_that_look_ahead_are_rendered_by_beginnings(name: str) -> None:
    assert template_of(NO[name], fast=True).streaming is None


@pytest.mark.parametrize("name", ["chatml", "llama3", "mistral", "plain"])
@settings(max_examples=40)
@given(messages=chats)
def test_our_templates(name: str, messages: list[dict[str, Any]]) -> None:
    source = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    assert template_of(source, fast=True).streaming is not None
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    for run in (written, each):
        assert result(run, source, messages, turns, fast=True) == result(run, source, messages, turns, fast=False)


def test_one_rendering_is_all_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    source = YES["bare"]
    messages = [{"role": role, "content": role[:1]} for _ in range(20) for role in ("user", "assistant")]
    template = template_of(source, fast=True)
    monkeypatch.setattr(template, "render", None)  # no beginning is rendered
    text, spans = written(Chat(template, messages, VARIABLES), list(range(1, 40, 2)))
    assert [text[a:b] for a, b in spans] == ["a\n"] * 20
    assert len(each(Chat(template, messages, VARIABLES), list(range(1, 40, 2)))) == 20


def test_thinking_rewrites_history() -> None:
    source = (TEMPLATES / "thinking.jinja").read_text(encoding="utf-8")
    assert template_of(source, fast=True).streaming is None
