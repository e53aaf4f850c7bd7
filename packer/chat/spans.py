"""Which characters of a rendered chat the assistant wrote.

Without markers in the template they follow from rendering beginnings of the chat: what the assistant wrote as message i
stands between what inference would be given, which is the messages before it with the generation prompt, and the end of
the messages up to it:

    <|user|>Hi<|end|>\\n<|assistant|>Hello<|end|>\\n<|user|>...
                                     ^ prompt ends       the newline after the last visible character of a turn that
                                          ^^^^^^^ turn    ends in more than white space is the template's

Both must be beginnings of the whole text. Where they are not the template rewrites history (a thinking block dropped
from earlier turns), and training on the whole text would train what inference never sees: an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from packer.chat.rendering import ChatTemplateError, Span, Template
from packer.conversation import RenderError

PROBE = "\ue000probe\ue001"  # private-use characters, which no template trims
ANSWER = {"role": "assistant", "content": PROBE}


@dataclass(frozen=True)
class Stream:
    """A chat as a streaming template writes it. text: without a prompt; places: where message skipped + i begins in it,
    and its end; prompt: what follows any beginning of the chat to ask for an answer."""

    text: str
    places: list[int]
    skipped: int
    prompt: str

    def place(self, i: int) -> int:
        """Where message i begins, or the chat ends."""
        return self.places[i - self.skipped]


class Chat:
    """One chat with its template: renders it, and beginnings of it."""

    def __init__(self, template: Template, messages: list[dict[str, Any]], variables: dict[str, Any]) -> None:
        self.template, self.messages = template, messages
        self._variables = variables

    def _with(self, messages: list[dict[str, Any]], prompt: bool) -> dict[str, Any]:
        return {**self._variables, "messages": messages, "add_generation_prompt": prompt}

    def beginning(self, count: int) -> Chat:
        return Chat(self.template, self.messages[:count], self._variables)

    def text(self, count: int) -> str:
        """The first `count` messages, rendered."""
        return self.template.render(self._with(self.messages[:count], False))

    def marked(self) -> tuple[str, list[Span]]:
        """The whole chat, with the spans that the template marks."""
        return self.template.render_marked(self._with(self.messages, False))

    def prompt(self, count: int) -> str:
        """What inference is given to answer the first `count` messages."""
        return self.template.render(self._with(self.messages[:count], True))

    def probe(self, count: int) -> str:
        """The first `count` messages and up to the content of an answer of the assistant."""
        return self.template.render(self._with([*self.messages[:count], ANSWER], False)).partition(PROBE)[0]

    def stream(self, turns: Sequence[int]) -> Stream | None:
        """The whole chat in one rendering; None where that cannot tell about the messages `turns`."""
        how = self.template.streaming
        if how is None or (how.stateful and not self.template.prompts):
            return None
        text, places = self.template.render_streamed(self._with(self.messages, True))
        skipped = len(self.messages) + 1 - len(places)
        # A beginning must have its first message, and one that is in the loop.
        if any(i <= skipped for i in turns):
            return None
        return Stream(text[: places[-1]], places, skipped, text[places[-1] :])

    def headers(self, turns: Sequence[int]) -> dict[int, str]:
        """What the template writes before the content of the assistant's messages `turns`, in one rendering."""
        probed = [ANSWER if i in turns else message for i, message in enumerate(self.messages)]
        text, places = self.template.render_streamed(self._with(probed, False))
        skipped = len(probed) + 1 - len(places)
        return {i: text[places[i - skipped] : places[i - skipped + 1]].partition(PROBE)[0] for i in turns}


NOT_THE_PROMPT = (
    "the prompt for message {} is not how the text begins: the chat template renders earlier messages in another way "
    "once others follow them, or prompts for an answer of another form; --turns each makes one document of each of the "
    "assistant's turns"
)


def turn_start(chat: Chat, i: int, text: str) -> int:
    """Where what the assistant wrote as message i begins in `text`, which ends with that message or goes on."""
    prompt = chat.prompt(i) if i else _first_prompt(chat)
    if not text.startswith(prompt):
        raise RenderError(NOT_THE_PROMPT.format(i + 1))
    if chat.template.prompts:
        return len(prompt)
    return _after_header(i, text, len(prompt), chat.probe(i)[len(prompt) :])


def _first_prompt(chat: Chat) -> str:
    """For a chat that the assistant begins; not every template can render a chat without messages."""
    try:
        return chat.prompt(0)
    except ChatTemplateError:
        return chat.probe(0)


def _after_header(i: int, text: str, start: int, header: str) -> int:
    """Without a generation prompt an answer's visible header (`ASSISTANT:`) is the template's; white space is not."""
    if not header.strip():
        return start
    if not text.startswith(header, start):
        raise RenderError(
            f"the chat template knows no generation prompt, so it cannot be told where message {i + 1} begins; use a "
            "template with {% generation %} markers"
        )
    # A space before the answer makes one token with its first word.
    return start + len(header) - header.endswith(" ")


def turn_stop(chat: Chat, i: int, text: str) -> int:
    """Where message i, the end of turn included, ends in `text`, which goes on or ends with it."""
    if i + 1 == len(chat.messages):
        return len(text)
    ended = chat.text(i + 1)
    if not text.startswith(ended):
        raise RenderError(
            f"the chat template renders message {i + 1} in another way once others follow it (it rewrites history, as "
            "templates with thinking do), so what is trained would not be what inference sees; "
            "--turns each makes one document of each of the assistant's turns"
        )
    return len(ended)


def trimmed(text: str, start: int, stop: int, content: object) -> Span:
    """The turn without the white space that a template puts after its end-of-turn token. Where nothing visible follows
    the content, white space is all that ends the turn, and stays."""
    written = text[start:stop]
    visible = written.rstrip()
    last = _last_text(content).strip()
    place = visible.find(last)  # the first: a tail that is too long still ends where it ends
    tail = visible[place + len(last) :] if place >= 0 else visible
    return (start, start + len(visible)) if tail else (start, stop)


def _last_text(content: object) -> str:
    """The content's last text."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and content:
        return _last_text(content[-1].get("text") if isinstance(content[-1], dict) else content[-1])
    return ""


def written(chat: Chat, turns: Sequence[int]) -> tuple[str, list[Span]]:
    """A chat as one text, and what the assistant wrote in it as the messages `turns`, in order."""
    stream = chat.stream(turns)
    if stream is None:
        text = chat.text(len(chat.messages))
        return text, derived(chat, turns, text)
    headers = _headers(chat, turns)
    return stream.text, _not_empty(_in_stream(chat, stream, i, headers) for i in turns)


def each(chat: Chat, turns: Sequence[int]) -> list[tuple[str, list[Span]]]:
    """For each of the assistant's messages `turns` the chat up to it, and what was written in its turn."""
    if not turns:
        return []
    chat = chat.beginning(turns[-1] + 1)
    stream = chat.stream(turns)
    if stream is None:
        return [_ending(chat.beginning(i + 1)) for i in turns]
    headers = _headers(chat, turns)
    return [(stream.text[: stream.place(i + 1)], _not_empty([_in_stream(chat, stream, i, headers)])) for i in turns]


def _ending(chat: Chat) -> tuple[str, list[Span]]:
    text = chat.text(len(chat.messages))
    return text, derived(chat, [len(chat.messages) - 1], text)


def derived(chat: Chat, turns: Sequence[int], text: str) -> list[Span]:
    """What the assistant wrote as the messages `turns`, in order, in the text of the whole chat."""
    return _not_empty(_span(chat, i, text, turn_start(chat, i, text), turn_stop(chat, i, text)) for i in turns)


def _not_empty(spans: Iterable[Span]) -> list[Span]:
    return [span for span in spans if span[0] < span[1]]


def _headers(chat: Chat, turns: Sequence[int]) -> dict[int, str]:
    return {} if chat.template.prompts else chat.headers(turns)


def _in_stream(chat: Chat, stream: Stream, i: int, headers: dict[int, str]) -> Span:
    """The same as `derived`, of a text that is known to be written message by message."""
    start, stop = stream.place(i), stream.place(i + 1)
    if not stream.text.startswith(stream.prompt, start):
        raise RenderError(NOT_THE_PROMPT.format(i + 1))
    start = _after_header(i, stream.text, start, headers[i]) if headers else start + len(stream.prompt)
    return _span(chat, i, stream.text, start, stop)


def _span(chat: Chat, i: int, text: str, start: int, stop: int) -> Span:
    if stop < start:
        raise RenderError(f"the chat template renders message {i + 1} as less than the prompt for it")
    return trimmed(text, start, stop, chat.messages[i].get("content"))


def within(chat: Chat, turns: Sequence[int], text: str, spans: Sequence[Span]) -> list[Span]:
    """Those marked spans that belong to the messages `turns`."""
    found: list[Span] = []
    for i in turns:
        start, stop = turn_start(chat, i, text), turn_stop(chat, i, text)
        found += [span for span in spans if span[1] > start and span[0] < stop]
    return found
