"""What the reader calls for each chat and each pair: the renderer, and checks of what came out of it.

A template decides for itself what it writes. One that knows no tools drops their calls and results without a word, and
one that writes tool arguments as JSON turns arguments that are JSON already into a quoted string. So each message is
looked for in the text: what is not there makes the record a bad one, and arguments are given as an object where the
text does not hold them as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from packer.alignment import Aligner
from packer.chat import ChatOptions, Renderer
from packer.conversation import ChatCounts, Conversation, Pair, Rendered, RenderError
from packer.encoding import ChatEnds
from packer.engines import HfEngine
from packer.errors import UsageError
from packer.tokenizer import Tokenizer

PROBE = 24  # characters of a message's end that are looked for
THOUGHT = "</think>"  # what stands before it is reasoning, which templates leave out of earlier turns


class _Aligners:
    """An aligner for each tokenizer, made when the first text needs it, and kept: it reads the whole vocabulary."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[tuple[str, bool], Aligner] = {}

    def of(self, tokenizer: Tokenizer, *, literal: bool) -> Aligner:
        key = (tokenizer.fingerprint, literal)
        with self._lock:
            if key not in self._found:
                engine = HfEngine(tokenizer, special_in_text="literal" if literal else "parse")
                self._found[key] = Aligner(engine.backend)
            return self._found[key]


_aligners = _Aligners()


def prepare(
    options: ChatOptions, tokenizer: Tokenizer, *, literal: bool, add_bos: bool, add_eos: bool
) -> tuple[Rendering, ChatEnds]:
    """What the reader and the encoder need for chats and pairs. literal: `--special-in-text literal`; add_bos, add_eos:
    whether these were asked for by name, and so for chats too."""
    ends = ChatEnds(
        aligner=lambda: _aligners.of(tokenizer, literal=literal),
        bos=_id(tokenizer, tokenizer.bos_token),
        eos=_id(tokenizer, tokenizer.eos_token),
        add_bos=add_bos,
        add_eos=add_eos,
    )
    return Rendering(options, tokenizer.control_finder(), literal=literal), ends


def describe(options: ChatOptions, counts: ChatCounts) -> dict[str, Any]:
    """For the manifest: the options as given, and the template with its sha256, None where none was needed."""
    stated = {name: value for name, value in asdict(options).items() if name != "tokenizer"}
    facts = Renderer(options).facts() if counts.documents > counts.pairs else None
    return {**stated, "template_args": dict(options.template_args), "rendered_by": facts}


def options_of(described: dict[str, Any], tokenizer: str, template: str | None = None) -> ChatOptions:
    """The options that `describe` tells of; template: where its file lies now."""
    stated = {name: value for name, value in described.items() if name not in ("rendered_by", "template_args")}
    stated["template"] = template or stated["template"]
    return ChatOptions(tokenizer, template_args=tuple(described["template_args"].items()), **stated)


def _id(tokenizer: Tokenizer, token: str | None) -> int | None:
    return None if token is None else tokenizer.backend.token_to_id(token)


class Rendering:
    """Renders records as `options` say. control: finds control tokens in what records say; literal: whether such texts
    stay text, which the template's own would then do too. Raises RenderError, and UsageError for the whole run."""

    def __init__(self, options: ChatOptions, control: Callable[[str], bool] | None, *, literal: bool = False) -> None:
        self.renderer = Renderer(options, control)
        self._options, self._literal = options, literal

    def __call__(self, record: Conversation | Pair) -> list[Rendered]:
        if self._literal and (isinstance(record, Conversation) or self._options.template is not None):
            raise UsageError(
                "--special-in-text literal would make text of the chat template's own control tokens, so chats cannot "
                "be rendered with it; leave it out"
            )
        return self._conversation(record) if isinstance(record, Conversation) else self.renderer(record)

    def check(self, counts: ChatCounts) -> None:
        """Raises UsageError if no chat had anything to train on, and that is the template's fault."""
        if counts.documents and not counts.trained_tokens and (reason := self.renderer.fruitless()):
            raise UsageError(reason)

    def _conversation(self, record: Conversation) -> list[Rendered]:
        given = [*_arguments_as_text(record.messages)]
        try:
            texts = self.renderer(record)
        except RenderError:
            if not given:
                raise
            texts = self.renderer(_with_objects(record))
        else:
            if given and not all(any(one in text.text for text in texts) for one in given):
                texts = self.renderer(_with_objects(record))
        if texts:
            _check_whole(record.messages, texts[-1], each=self._options.turns == "each")
        return texts


def _check_whole(messages: list[dict[str, Any]], last: Rendered, *, each: bool) -> None:
    """Raises RenderError for a message that is not in the text. each: it ends with the turn that is trained."""
    turns = 0
    for number, message in enumerate(messages, 1):
        turns += message["role"] == "assistant"
        if each and turns > last.turns:
            return
        content = message.get("content")
        if isinstance(content, str) and not _has(last.text, content):
            raise RenderError(_left_out(number, message, "it"))
        for call in message.get("tool_calls") or ():
            if not _has(last.text, call.get("function", call)["name"]):
                raise RenderError(_left_out(number, message, "its tool calls"))
        if each and turns == last.turns and message["role"] == "assistant":
            return


def _left_out(number: int, message: dict[str, Any], what: str) -> str:
    return f"message {number} ({message['role']}): the chat template leaves {what} out; use one that has a place for it"


def _has(text: str, content: str) -> bool:
    """Whether the end of the content is in the text, as it is or as JSON."""
    end = content.rpartition(THOUGHT)[2].strip()[-PROBE:]
    return end in text or json.dumps(end, ensure_ascii=False)[1:-1] in text


def _calls(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield call.get("function", call)


def _arguments_as_text(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Arguments of tool calls that are objects written as JSON."""
    for call in _calls(messages):
        if isinstance(arguments := call.get("arguments"), str) and isinstance(_object(arguments), dict):
            yield arguments


def _object(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value


def _with_objects(record: Conversation) -> Conversation:
    """The same chat with the arguments of its tool calls as objects."""
    return replace(record, messages=[_message_with_objects(message) for message in record.messages])


def _message_with_objects(message: dict[str, Any]) -> dict[str, Any]:
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_call_with_object(call) for call in message["tool_calls"]]}


def _call_with_object(call: dict[str, Any]) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": _call_with_object(call["function"])}
    arguments = call.get("arguments")
    found = _object(arguments) if isinstance(arguments, str) else None
    return {**call, "arguments": found} if isinstance(found, dict) else call
