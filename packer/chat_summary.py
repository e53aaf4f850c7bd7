"""What a person should know of the chats and pairs in a corpus, as lines: for the summary of a run, `stats`, its page.

    chats        60 with 124 turns of the assistant (2.1 each), by template default
    to train     12,206 of 15,799 tokens (77.3%), what the assistant wrote; 2 chats have none
    ends         each begins with BOS; none ends with EOS
    control      1 chat has a control token written in what it says

Lines without a finding are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packer.conversation import ChatCounts

LOSSES = {
    "assistant": "what the assistant wrote",
    "completion": "the completion",
    "last": "the last turn of the assistant",
    "all": "everything",
}


def lines(chats: ChatCounts, described: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """(label, text) of each. described: how they were rendered, as `packer.rendering.describe` tells."""
    described = described or {}
    noun = "pair" if chats.pairs == chats.documents else "chat"
    turns = f"{chats.turns:,} turn{_s(chats.turns)} of the assistant ({chats.turns / chats.documents:,.1f} each)"
    what = f"{chats.documents:,}"
    if noun == "chat":
        what = "; ".join([f"{what} with {turns}", *_template(described)])
    yield f"{noun}s", what
    trained = f"{chats.trained_tokens:,} of {chats.tokens:,} tokens ({chats.trained_tokens / max(chats.tokens, 1):.1%})"
    none = chats.untrained_documents
    left = f"; {_counted(none, noun)} {'has' if none == 1 else 'have'} none" if none else ""
    yield "to train", f"{trained}, {_trained_part(chats, described)}" + left
    yield "ends", "; ".join(_ends(chats))
    if chats.control_documents:
        one = chats.control_documents == 1
        have, they = ("has", "it says") if one else ("have", "they say")
        yield "control", f"{_counted(chats.control_documents, noun)} {have} a control token written in what {they}"
    if chats.straddling_tokens:
        straddle = "token straddles" if chats.straddling_tokens == 1 else "tokens straddle"
        yield "boundaries", f"{chats.straddling_tokens:,} {straddle} one; trained is what begins inside"
    if chats.retokenized_pairs:
        of = f"{chats.retokenized_pairs:,} of {chats.compared_pairs:,} prompts looked at"
        yield "joined", f"{of} have other tokens alone than with their completion"


def added(summary: str, documents: int, chats: ChatCounts | None, *, asked: bool) -> str:
    """What is put around documents; asked: BOS or EOS by name, and so for chats too."""
    rendered = chats.documents - chats.pairs if chats else 0
    if not rendered or asked:
        return summary
    return (
        "nothing: chats have the ends that their template writes"
        if rendered == documents
        else (f"{summary}; nothing to chats, which have the ends that their template writes")
    )


def _trained_part(chats: ChatCounts, described: Mapping[str, Any]) -> str:
    default = "completion" if chats.pairs == chats.documents else "assistant"
    return LOSSES[described.get("loss") or default]


def _template(described: Mapping[str, Any]) -> Iterator[str]:
    facts = described.get("rendered_by")
    if not facts:
        return
    arguments = ", ".join(f"{name}={value}" for name, value in described.get("template_args", {}).items())
    date = f", its date {facts['date']}" if facts.get("date") else ""
    yield f"by template {facts['template']}" + (f" with {arguments}" if arguments else "") + date
    if described.get("turns") == "each":
        yield "one document a turn"


def _ends(chats: ChatCounts) -> Iterator[str]:
    yield _each(chats.begin_with_bos, chats.documents, "begin", "BOS")
    if chats.double_bos:
        yield f"{chats.double_bos:,} begin with BOS twice, which is written in what they say"
    yield _each(chats.end_with_eos, chats.documents, "end", "EOS")


def _each(count: int, of: int, verb: str, token: str) -> str:
    if count in (0, of):
        return f"{'each' if count else 'none'} {verb}s with {token}"
    return f"{count:,} of {of:,} {verb} with {token}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{_s(count)}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
