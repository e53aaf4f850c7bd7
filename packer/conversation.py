"""What a record with a loss mask to build says, before any template: a chat, or a prompt with its completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Conversation:
    """messages: as `apply_chat_template` takes them (role, content, tool_calls, ...); train: for each message, what its
    own `train` or `weight` field says, None where it says nothing; tools: as `apply_chat_template` takes them;
    template_args: more variables for the template; completion_from: the first message of the completion, where the
    record is a prompt and a completion of messages."""

    messages: list[dict[str, Any]]
    train: tuple[bool | None, ...]
    tools: list[Any] | None = None
    template_args: dict[str, Any] = field(default_factory=dict)
    completion_from: int | None = None


@dataclass(frozen=True)
class Pair:
    """A prompt and its completion, both texts; they are tokenized joined."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Rendered:
    """A text to tokenize. trained: spans [start, stop) of characters to train on, in order, or None where all of it is
    (no loss mask); ends: whether BOS and EOS are put around it as around a plain document (an EOS that is added is
    trained where the text's end is); turns: messages of the assistant in it."""

    text: str
    trained: tuple[tuple[int, int], ...] | None
    ends: bool
    turns: int


class RenderError(ValueError):
    """A record that cannot be rendered or masked. Its text is the reason, without the place."""
