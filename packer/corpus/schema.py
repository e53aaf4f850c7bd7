"""Which field of a record is its content: found once for each source, from the first record that shows it.

input_ids                                             ready-made token ids
messages | conversations                              a chat
prompt + (completion | response)                      a prompt and its completion
instruction [+ input | context] + (output | response) the same, told apart: alpaca, dolly
text | content                                        text
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from packer.corpus.sources import ReadOptions, Schema
from packer.errors import InputError, UsageError

MASK_FIELDS = ("loss_mask", "assistant_masks", "completion_mask", "labels")  # the first one present is the mask
PACKED_FIELDS = ("cu_seqlens", "seq_lengths", "seq_start_id")
KINDS: dict[str, tuple[tuple[str, ...], ...]] = {  # in the order in which they are looked for
    "input_ids": (("input_ids",),),
    "messages": (("messages",), ("conversations",)),
    "prompt_completion": (("prompt", "completion"), ("prompt", "response")),
    "alpaca": (("instruction", "output"), ("instruction", "response")),
    "text": (("text",), ("content",)),
}
MEDIA_FIELDS = ("image", "images", "video", "videos", "audio", "audios")  # what is no text, beside the messages
EXTRA_FIELDS = (  # what else of a chat's or a pair's record has a meaning
    *("tools", "functions", "system", "chat_template_kwargs", "input", "context", "history"),
    *MEDIA_FIELDS,
)
NAMED_BY = {  # the option that names a field, and the kinds of records that it is for
    "text_field": ("text",),
    "messages_field": ("messages",),
    "prompt_field": ("prompt_completion", "alpaca"),
    "completion_field": ("prompt_completion", "alpaca"),
}
NAME_A_FIELD = (
    "name the text's field with --text-field (--messages-field, --prompt-field, --completion-field for chats)"
)
PLAIN_TEXT = Schema("text", "")  # a free-text file
DEFAULT = Schema("text", "text")
CHAT = Schema("messages", "")  # each record is itself the list of messages
READY = Schema("input_ids", "input_ids")


def check_options(options: ReadOptions) -> None:
    """Raises UsageError where the options name what does not exist or contradict each other."""
    for name, allowed in (
        ("schema", (None, *KINDS)),
        ("split_text", ("file", "line", "paragraph")),
        ("on_error", ("fail", "skip")),
    ):
        value = getattr(options, name)
        if value not in allowed:
            choices = ", ".join(choice for choice in allowed if choice)
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be one of {choices}")
    named = [name for name in NAMED_BY if getattr(options, name) is not None]
    for name in named:
        flag = f"--{name.replace('_', '-')}"
        if options.schema not in (None, *NAMED_BY[name]):
            raise UsageError(f"{flag} is for records of another kind than --schema {options.schema}: give one of them")
        if other := next((other for other in named if NAMED_BY[other] != NAMED_BY[name]), None):
            raise UsageError(f"{flag} and --{other.replace('_', '-')} are for records of two kinds: give one of them")
    if options.max_record_bytes < 1 or options.partition_bytes < 1:
        raise UsageError("--max-record-bytes and the partition size must be at least 1")


def asked_for(options: ReadOptions) -> Schema | None:
    """The schema that the options settle without looking at a record."""
    if options.text_field is not None:
        return Schema("text", options.text_field)
    if options.messages_field is not None:
        return Schema("messages", options.messages_field)
    if options.prompt_field is not None and options.completion_field is not None:
        return Schema(options.schema or "prompt_completion", options.prompt_field, options.completion_field)
    return Schema("input_ids", "input_ids") if options.schema == "input_ids" else None


def of_keys(keys: Iterable[str], place: str, options: ReadOptions) -> Schema | None:
    """The schema of records with these keys, or None if there is no known field.

    Raises InputError, starting with `place`, for records that cannot be packed as they are.
    """
    names = set(keys)
    schema = asked_for(options) or _found(names, options)
    if schema is not None and schema.kind == "input_ids" and (reason := packed_row(names)):
        raise InputError(f"{place}: {reason}")
    if schema is None and (advice := _preferences(names)):
        raise InputError(f"{place}: {advice}")
    if schema == Schema("text", "content") and options.schema is None and "role" in names:
        raise InputError(
            f"{place}: each record is one message (role, content), not a chat: give a chat's messages together in one"
            " record; --text-field content packs each message as a text of its own"
        )
    return schema


def _found(names: set[str], options: ReadOptions) -> Schema | None:
    """The first kind all of whose fields there are, of those that the options leave."""
    kinds = (options.schema,) if options.schema else (*KINDS,)
    if (options.prompt_field or options.completion_field) and options.schema is None:
        kinds = ("prompt_completion",)
    for kind in kinds:
        for fields in KINDS[kind]:
            prompt, completion = options.prompt_field or fields[0], options.completion_field or (*fields, "")[1]
            if names.issuperset((prompt, completion) if completion else (prompt,)):
                return Schema(kind, prompt, completion)
    return None


def _preferences(names: set[str]) -> str | None:
    """What to do with preference pairs, or None."""
    if not names.issuperset(("chosen", "rejected")):
        return None
    apart = ", or --prompt-field prompt --completion-field chosen if chosen is the answer alone"
    return (
        "the records are preference pairs (chosen, rejected), for DPO and the like; --messages-field chosen packs the"
        f" chosen chats{apart * ('prompt' in names)}"
    )


def packed_row(names: Iterable[str]) -> str | None:
    """Why a record with ids and these keys is refused, or None."""
    found = [field for field in PACKED_FIELDS if field in names]
    return (
        f"is another tool's packed row (it has {', '.join(found)}): give the documents it was made of"
        if found
        else None
    )


def of_columns(names: Sequence[str], path: str, options: ReadOptions) -> Schema:
    """The schema of a table with these columns. Raises InputError where the columns do not serve."""
    schema = of_keys(names, path, options)
    if schema is None:
        advice = NAME_A_FIELD.replace("'s field", "'s column")
        raise InputError(f"{path}: no known column; it has {shorten(names)}; {advice}")
    for field in schema.fields:
        if names.count(field) != 1:
            number = "no" if field not in names else "more than one"
            raise InputError(f"{path}: {number} column {field}; it has {shorten(names)}")
    return schema


def of_records(records: Iterable[tuple[str, object]], path: str, options: ReadOptions) -> Schema:
    """The schema of the first object with a known field among (place, record) pairs: a source's bounded head.

    Where the head holds no object at all it is taken for text, so that reading names each record's own fault. A record
    that is an array of messages is a chat.
    """
    if (schema := asked_for(options)) is not None and schema.kind != "input_ids":
        return schema
    unknown = None
    for where, record in records:
        if is_chat(record) and options.schema in (None, "messages"):
            return CHAT
        if not isinstance(record, dict):
            continue
        if schema := of_keys(record, f"{path}, {where}", options):
            return schema
        unknown = unknown or (where, list(record))
    if unknown:
        where, keys = unknown
        raise InputError(f"no known field in {path}, {where}: it has the keys {shorten(keys)}; {NAME_A_FIELD}")
    return DEFAULT


def is_chat(record: object) -> bool:
    """Whether a record is itself a list of messages."""
    first = record[0] if isinstance(record, list) and record else None
    return isinstance(first, dict) and ("role" in first or "from" in first)


def shorten(names: Iterable[str], width: int = 80) -> str:
    """Names for a message, cut at about `width` characters.   ["a", "b"] -> "a, b" """
    text = ", ".join(names).encode("utf-8", "replace").decode() or "none"
    return text if len(text) <= width else text[:width] + "..."
