"""What a record with a loss mask to build says, before any template: a chat, or a prompt with its completion.

Conversation | Pair ──(Render)──▶ Rendered, one or more ──(tokenized)──▶ ChatCounts, and documents with a mask
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
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
    """A prompt and its completion, both texts; they are tokenized joined. message: the prompt as a user would write it
    in a chat, where that is another text (an alpaca record's instruction, without the words around it)."""

    prompt: str
    completion: str
    message: str | None = None


@dataclass(frozen=True)
class Rendered:
    """A text to tokenize. trained: spans [start, stop) of characters to train on, in order, or None where all of it is
    (no loss mask); ends: whether BOS and EOS are put around it as around a plain document (an EOS that is added is
    trained where the text's end is); turns: messages of the assistant in it; control: whether the record has a control
    token written in what it says; prompt: characters of the prompt of a Pair, None for what is not one."""

    text: str
    trained: tuple[tuple[int, int], ...] | None
    ends: bool
    turns: int
    control: bool = False
    prompt: int | None = None


class RenderError(ValueError):
    """A record that cannot be rendered or masked. Its text is the reason, without the place."""


Render = Callable[[Conversation | Pair], list[Rendered]]  # raises RenderError


@dataclass(frozen=True)
class ChatCounts:
    """What chats and pairs came to as tokens; adds up. documents, tokens: of chats and pairs; turns: messages of the
    assistant; trained_tokens: before any is lost; untrained_documents: without one; control_documents: with a control
    token written in what they say; begin_with_bos, end_with_eos, double_bos: documents; straddling_tokens: tokens that
    begin on one side of a mask's boundary and end on the other; compared_pairs, retokenized_pairs: prompts that were
    also tokenized apart from their completion, and those of them whose ids are others then; pairs: documents that were
    joined from two texts, without a template."""

    documents: int = 0
    tokens: int = 0
    turns: int = 0
    trained_tokens: int = 0
    untrained_documents: int = 0
    control_documents: int = 0
    begin_with_bos: int = 0
    double_bos: int = 0
    end_with_eos: int = 0
    straddling_tokens: int = 0
    compared_pairs: int = 0
    retokenized_pairs: int = 0
    pairs: int = 0

    def __add__(self, other: ChatCounts) -> ChatCounts:
        return ChatCounts(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))
