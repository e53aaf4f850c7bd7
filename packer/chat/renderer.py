"""A record to its texts, with the characters to train on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from packer.chat.rendering import ChatTemplateError, Span, Template
from packer.chat.spans import Chat, each, within, written
from packer.chat.templates import RESERVED, ChatOptions, TemplateSet, load_templates
from packer.conversation import Conversation, Pair, Rendered, RenderError
from packer.errors import UsageError

PATIENCE = 16  # chats that may come to nothing before the template is to blame
REASONING = ("reasoning_content", "thinking", "reasoning")


class Renderer:
    """Renders records: `renderer(record)` gives one Rendered, or with turns="each" one for each turn that is trained.

    A record that cannot be rendered or masked is a RenderError; what is wrong with the whole run (no template, one that
    marks nothing) is a UsageError, TokenizerError or PackerError. A template that is named is loaded at once, the
    tokenizer's own with the first chat: prompts and completions that are texts need none.
    """

    def __init__(self, options: ChatOptions, control: Callable[[str], bool] | None = None) -> None:
        """control: finds the tokenizer's control tokens in what a record says, for Rendered.control."""
        self.options = options
        self._control = control
        self._compiled: dict[str, Template] = {}
        self._fruitless: int | None = 0  # chats in a row, from the first, in which markers marked nothing
        if options.template is not None:
            _ = self._template(tools=False)

    def __call__(self, record: Conversation | Pair) -> list[Rendered]:
        documents = self._conversation(record) if isinstance(record, Conversation) else self._pair(record)
        if self._control is not None and any(map(self._control, _said(record))):
            return [replace(document, control=True) for document in documents]
        return documents

    def _pair(self, record: Pair) -> list[Rendered]:
        if self.options.template is None:
            return [self._joined(record)]
        asked = record.prompt if record.message is None else record.message
        messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": record.completion}]
        return self._conversation(Conversation(messages, (None, None), completion_from=1))

    def _joined(self, pair: Pair) -> Rendered:
        text, start = pair.prompt + pair.completion, len(pair.prompt)
        trained = None if self.options.loss == "all" else ((start, len(text)),) if pair.completion else ()
        return Rendered(text, trained, ends=True, turns=1, prompt=start)

    def facts(self) -> dict[str, Any]:
        """For the manifest: the template's name and sha256, the variables given to it, and the date if it asks for
        one; the same for the tokenizer's template for chats with tools, where it has one."""
        found = self._facts_of(self._template(tools=False))
        with_tools = self._template(tools=True)
        if with_tools.name != self._template(tools=False).name:
            found["with_tools"] = self._facts_of(with_tools)
        return found | {"template_args": dict(self.options.template_args)}

    def _facts_of(self, template: Template) -> dict[str, Any]:
        digest = hashlib.sha256(self._templates.by_name[template.name].encode()).hexdigest()
        date = self.options.date.strftime("%Y-%m-%d") if template.dated else None
        return {"template": Path(template.name).name, "sha256": digest, "date": date}

    def fruitless(self) -> str | None:
        """Why every chat so far came without anything to train on, if that is the template's fault."""
        return _marks_nothing(next(iter(self._compiled.values())).name) if self._fruitless else None

    @cached_property
    def _templates(self) -> TemplateSet:
        return load_templates(self.options)

    @cached_property
    def _given(self) -> dict[str, Any]:
        """What every chat's template is given."""
        return {**self._templates.special_tokens, **dict(self.options.template_args), "documents": None}

    def _template(self, *, tools: bool) -> Template:
        name = self._templates.name_for(tools=tools)
        if name not in self._compiled:
            self._compiled[name] = Template(name, self._templates.by_name[name], self.options.date)
        return self._compiled[name]

    def _conversation(self, record: Conversation) -> list[Rendered]:
        messages = [_as_rendered(message) for message in record.messages]
        if not messages:
            raise RenderError("a chat without messages")
        turns = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        wanted = self._wanted(record, messages, turns)
        variables = self._variables(record)
        template = self._template(tools=record.tools is not None)
        try:
            return self._rendered(Chat(template, messages, variables), turns, wanted)
        except ChatTemplateError:
            filled = [{"content": "", **m} if m.get("tool_calls") else m for m in messages]
            if filled == messages:
                raise
            # transformers leaves a null content out, which older templates cannot bear beside tool calls.
            return self._rendered(Chat(template, filled, variables), turns, wanted)

    def _variables(self, record: Conversation) -> dict[str, Any]:
        given = {**self._given, "tools": record.tools}
        if record.tools is not None and not all(isinstance(tool, dict) for tool in record.tools):
            raise RenderError("tools is not a list of objects, each a JSON schema")
        if record.template_args:
            reserved = sorted(RESERVED & record.template_args.keys())
            if reserved:
                raise RenderError(f"its template arguments name {reserved[0]}, which the chat itself says")
            given.update(record.template_args)
        return given

    def _wanted(self, record: Conversation, messages: list[dict[str, Any]], turns: list[int]) -> list[int] | None:
        """The turns to train on; None where all is trained."""
        loss = self.options.loss or ("assistant" if record.completion_from is None else "completion")
        if loss == "all":
            return None
        begin = 0
        if loss == "completion":
            if record.completion_from is None:
                raise RenderError(
                    "--loss completion: this chat does not say which part of it is the completion; "
                    "--loss last trains the assistant's last turn, --loss assistant all of them"
                )
            begin = record.completion_from
        chosen = turns[-1:] if loss == "last" else [i for i in turns if i >= begin]
        if not any(flag is not None for flag in record.train):
            return chosen
        flags = dict(enumerate(record.train))
        for i, flag in flags.items():
            if flag and messages[i].get("role") != "assistant":
                raise RenderError(
                    f"message {i + 1} of role {messages[i].get('role')} is to be trained (train or weight), but only "
                    "what the assistant writes can be; --loss all trains everything"
                )
        return [i for i in turns if flags.get(i) or (flags.get(i) is None and i in chosen)]

    def _rendered(self, chat: Chat, turns: list[int], wanted: list[int] | None) -> list[Rendered]:
        if wanted is None:
            return [Rendered(chat.text(len(chat.messages)), None, ends=False, turns=len(turns))]
        if self.options.turns == "each" and wanted:
            parts = self._marked_each(chat, turns, wanted) if chat.template.marked else each(chat, wanted)
            return [
                Rendered(text, tuple(spans), ends=False, turns=turns.index(i) + 1)
                for i, (text, spans) in zip(wanted, parts, strict=True)
            ]
        text, spans = self._marked(chat, turns, wanted) if chat.template.marked else written(chat, wanted)
        return [Rendered(text, tuple(spans), ends=False, turns=len(turns))]

    def _marked_each(self, chat: Chat, turns: list[int], wanted: list[int]) -> list[tuple[str, list[Span]]]:
        return [self._marked(chat.beginning(i + 1), turns[: turns.index(i) + 1], [i]) for i in wanted]

    def _marked(self, chat: Chat, turns: list[int], wanted: list[int]) -> tuple[str, list[Span]]:
        """The chat, with what is marked in it for the turns that are wanted."""
        text, spans = chat.marked()
        spans = [span for span in spans if span[0] < span[1]]
        self._watch(chat.template, turns, spans)
        every = wanted == turns and self.options.turns == "all"
        return text, _merged(spans if every else within(chat, wanted, text, spans)) if turns else []

    def _watch(self, template: Template, turns: list[int], spans: list[Span]) -> None:
        if self._fruitless is None or not turns:
            return
        self._fruitless = None if spans else self._fruitless + 1
        if self._fruitless == PATIENCE:
            raise UsageError(f"{_marks_nothing(template.name)} (seen in the first {PATIENCE} chats)")


def _marks_nothing(name: str) -> str:
    return (
        f"chat template {name} has {{% generation %}} markers, but they mark nothing in any chat, so nothing would be "
        "trained; take the markers out or put them around what the assistant writes (--chat-template names a file)"
    )


def _as_rendered(message: dict[str, Any]) -> dict[str, Any]:
    """A message as transformers hands it to templates: without nulls, reasoning under each of its names."""
    plain = {key: value for key, value in message.items() if value is not None}
    reasoning = next((plain[key] for key in REASONING if key in plain), None)
    return plain if reasoning is None else {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def _said(record: Conversation | Pair) -> Iterator[str]:
    """Every text in what a record says."""
    if isinstance(record, Pair):
        yield from (record.prompt, record.completion)
    else:
        yield from _texts([record.messages, record.tools])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _merged(spans: list[Span]) -> list[Span]:
    """In order, those that touch made one."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
