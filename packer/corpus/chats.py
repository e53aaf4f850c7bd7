"""One parsed record to what it says as a chat or as a prompt with its completion, or the reason why it says nothing.

    {"messages": [{"role": "user", "content": "Hi"}, ...]}             as it is
    {"conversations": [{"from": "human", "value": "Hi"}, ...]}         ShareGPT: roles and keys renamed
    {"prompt": "1 + 1 =", "completion": " 2"}                          two texts, joined as they are
    {"prompt": [...messages], "completion": [...messages]}             one chat, the completion from message k on
    {"instruction": "Add.", "input": "1, 1", "output": "2"}            the words that Stanford's alpaca put around it

Content that is a list of text parts is joined to one text, which is what templates take. A key of a message that is
null counts as absent, for Arrow and Parquet cannot tell the two apart. Nothing is left out unseen: parts that are no
text, roles that nobody knows, and fields that this kind of record has no place for are reasons to refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from packer.conversation import Conversation, Pair
from packer.corpus.schema import MEDIA_FIELDS, shorten
from packer.corpus.sources import Schema

ROLES = {
    **{role: role for role in ("system", "developer", "user", "assistant", "tool", "ipython")},
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "function_call": "assistant",
    "tool_call": "assistant",
}
KNOWN = "system, developer, user, assistant, tool; human, gpt, function_call, observation"
CALLS = ("function_call", "tool_call")  # ShareGPT: the assistant calls a tool, and its value is the call as JSON
TEXT_PARTS = ("text", "input_text", "output_text")
ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
KIND_NAMES = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}


class ChatError(ValueError):
    """A record that is no chat and no pair. Its text is the reason, without the place."""


def conversation_of(record: Any, schema: Schema) -> Conversation | Pair:
    """What the record says; an object with the schema's fields, or a list of messages. Raises ChatError."""
    if isinstance(record, list) and schema.kind == "messages":
        return _chat(record, {}, "the record")
    if not isinstance(record, Mapping):
        raise ChatError(f"is {_kind(record)}, not an object")
    for name in schema.fields:
        if name not in record:
            raise ChatError(f"field {name} is missing (keys: {shorten(map(str, record))})")
        if record[name] is None:
            raise ChatError(f"field {name} is null")
    for name in MEDIA_FIELDS:
        if record.get(name):
            raise ChatError(f"field {name} holds what is not text")
    if schema.kind == "messages":
        return _chat(_array(record[schema.field], schema.field), record, f"field {schema.field}")
    if schema.kind == "alpaca":
        return _alpaca(record, schema)
    return _pair(record, schema)


def _chat(
    messages: list[Any], record: Mapping[str, Any], name: str, completion_from: int | None = None
) -> Conversation:
    if not messages:
        raise ChatError(f"{name} holds no message")
    said, train = [], []
    for number, message in enumerate(messages, 1):
        try:
            said.append(_message(message))
            train.append(_train(message))
        except ChatError as error:
            raise ChatError(f"message {number}: {error}") from None
    if system := record.get("system"):
        if not isinstance(system, str):
            raise ChatError(f"field system is {_kind(system)}, not a string")
        if said[0]["role"] in ("system", "developer"):
            raise ChatError("has both a field system and a system message")
        said.insert(0, {"role": "system", "content": system})
        train.insert(0, None)
        completion_from = None if completion_from is None else completion_from + 1
    return Conversation(said, tuple(train), _tools(record), _template_args(record), completion_from)


def _message(message: object) -> dict[str, Any]:
    """A message as `apply_chat_template` takes it."""
    if not isinstance(message, Mapping):
        raise ChatError(f"is {_kind(message)}, not an object")
    said = {key: value for key, value in message.items() if value is not None and key not in ("train", "weight")}
    if "role" not in said and "from" in said:
        said["role"] = said.pop("from")
        if "value" in said:
            said["content"] = said.pop("value")
    if "role" not in said:
        raise ChatError(f"has no role (keys: {shorten(map(str, message))})")
    role = said["role"]
    if not isinstance(role, str) or role not in ROLES:
        raise ChatError(f"role {shorten([repr(role)])} is not known (known are {KNOWN})")
    said["role"] = ROLES[role]
    if "content" in said:
        said["content"] = _text(said["content"])
    if role in CALLS:
        said["tool_calls"] = _calls(said.pop("content", ""))
    _settle_calls(said)
    if "content" not in said and not said.get("tool_calls"):
        raise ChatError("content is null" if "content" in message or "value" in message else "has no content")
    for name in MEDIA_FIELDS:
        if said.get(name):
            raise ChatError(f"{name} is not text")
    return said


def _settle_calls(said: dict[str, Any]) -> None:
    """Tool calls as a list of objects, in the place where templates look for them."""
    if isinstance(said.get("tool_calls"), str):
        said["tool_calls"] = _parsed(said["tool_calls"] or "[]", "tool_calls")
    if "function_call" in said:
        said["tool_calls"] = [*said.get("tool_calls", []), {"type": "function", "function": said.pop("function_call")}]
    if "tool_calls" in said:
        _check_calls(said["tool_calls"])


def _text(content: object) -> str:
    """A text, or the text parts of a list joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ChatError(f"content is {_kind(content)}, not a string or a list of text parts")
    texts = []
    for number, part in enumerate(content, 1):
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = (part.get("type") or "text") if isinstance(part, Mapping) else _kind(part)
        if kind not in TEXT_PARTS:
            raise ChatError(f"part {number} is {kind}, not text")
        if not isinstance(part.get("text"), str):
            raise ChatError(f"part {number} has no text")
        texts.append(part["text"])
    return "".join(texts)


def _train(message: Mapping[str, Any]) -> bool | None:
    """What the message says of itself. A fraction weighs a loss, which a mask cannot."""
    found = {name: message[name] for name in ("train", "weight") if message.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise ChatError(f"{name} is {json.dumps(value)[:40]}; a message is trained (1) or not (0), nothing between")
    if len({bool(value) for value in found.values()}) > 1:
        raise ChatError("train and weight contradict each other")
    return next((bool(value) for value in found.values()), None)


def _calls(value: str) -> list[Any]:
    """The tool calls of a ShareGPT record: one as JSON, or a list of them."""
    try:
        calls = json.loads(value)
    except ValueError:
        raise ChatError("is a tool call, but its value is not JSON") from None
    return [{"type": "function", "function": call} for call in (calls if isinstance(calls, list) else [calls])]


def _check_calls(calls: object) -> None:
    if not isinstance(calls, list):
        raise ChatError(f"tool_calls is {_kind(calls)}, not an array")
    for number, call in enumerate(calls, 1):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ChatError(f"tool call {number} names no function")


def _tools(record: Mapping[str, Any]) -> list[Any] | None:
    """The tools, which some records hold as JSON, and old ones as `functions`."""
    name = next((name for name in ("tools", "functions") if record.get(name)), None)
    if name is None:
        return None
    tools = [_parsed(tool, name) for tool in _array(record[name], name)]
    if wrong := next((tool for tool in tools if not isinstance(tool, Mapping)), None):
        raise ChatError(f"field {name} holds {_kind(wrong)}, not an object")
    if name == "functions":
        return [{"type": "function", "function": tool} for tool in tools]
    return tools or None


def _template_args(record: Mapping[str, Any]) -> dict[str, Any]:
    found = _parsed(record.get("chat_template_kwargs") or {}, "chat_template_kwargs")
    if not isinstance(found, Mapping):
        raise ChatError(f"field chat_template_kwargs is {_kind(found)}, not an object")
    return dict(found)


def _pair(record: Mapping[str, Any], schema: Schema) -> Conversation | Pair:
    prompt, completion = record[schema.field], record[schema.completion]
    if isinstance(prompt, str) and isinstance(completion, str) and not _looks_like_messages(prompt, completion):
        _refuse(record, ("system", "tools", "functions"))
        return Pair(prompt, completion)
    prompt, completion = _parsed(prompt, schema.field), _parsed(completion, schema.completion)
    if not isinstance(prompt, list) or not isinstance(completion, list):
        kinds = f"field {schema.field} is {_kind(prompt)}, field {schema.completion} is {_kind(completion)}"
        raise ChatError(f"{kinds}: give both as texts, or both as lists of messages")
    if not completion:
        raise ChatError(f"field {schema.completion} holds no message")
    return _chat([*prompt, *completion], record, f"field {schema.field}", len(prompt))


def _looks_like_messages(*texts: str) -> bool:
    """Whether both are lists of messages as JSON, as in a column of a table."""
    return all(text.startswith("[{") and '"role"' in text for text in texts)


def _alpaca(record: Mapping[str, Any], schema: Schema) -> Pair:
    _refuse(record, ("system", "history", "tools", "functions"))
    texts = {name: record[name] for name in schema.fields}
    extra = next((name for name in ("input", "context") if record.get(name)), None)
    if extra:
        texts[extra] = record[extra]
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ChatError(f"field {name} is {_kind(text)}, not a string")
    instruction = texts[schema.field]
    if extra is None:
        return Pair(ALPACA.format(instruction=instruction), texts[schema.completion], instruction)
    prompt = ALPACA_WITH_INPUT.format(instruction=instruction, input=texts[extra])
    return Pair(prompt, texts[schema.completion], f"{instruction}\n\n{texts[extra]}")


def _refuse(record: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Fields that say something which a pair of texts has no place for."""
    for name in names:
        if record.get(name):
            raise ChatError(f"field {name} is not empty, and a pair of texts has no place for it; give messages")


def _array(value: object, name: str) -> list[Any]:
    """A list, or one written as JSON."""
    found = _parsed(value, name)
    if not isinstance(found, list):
        raise ChatError(f"field {name} is {_kind(found)}, not an array")
    return found


def _parsed(value: object, name: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        parsed: object = json.loads(value)
    except ValueError:
        raise ChatError(f"field {name} is a string that is not JSON") from None
    return parsed


def _kind(value: object) -> str:
    return "null" if value is None else KIND_NAMES.get(type(value), "an object")
