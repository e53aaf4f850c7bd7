"""Which field of a record is its content: found once for each source, from the first record that shows it.

input_ids                                    ready-made token ids
messages | conversations                     a chat          } need a loss mask: told apart to be refused
prompt + (completion | response)             a pair          } with advice
instruction + output                         alpaca          }
text | content                               text
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from packer.corpus.sources import ReadOptions, Schema
from packer.errors import InputError, UsageError

MASK_FIELDS = ("loss_mask", "assistant_masks", "completion_mask", "labels")  # the first one present is the mask
PACKED_FIELDS = ("cu_seqlens", "seq_lengths", "seq_start_id")
MASKED_KINDS = (
    ("chats", (("messages",), ("conversations",))),
    ("prompt and completion pairs", (("prompt", "completion"), ("prompt", "response"))),
    ("instruction and output pairs", (("instruction", "output"),)),
)
PLAIN_TEXT = Schema("text", "")  # a free-text file
DEFAULT = Schema("text", "text")
READY = Schema("input_ids", "input_ids")


def check_options(options: ReadOptions) -> None:
    """Raises UsageError where the options name what does not exist or contradict each other."""
    for name, allowed in (
        ("schema", (None, "text", "input_ids")),
        ("split_text", ("file", "line", "paragraph")),
        ("on_error", ("fail", "skip")),
    ):
        value = getattr(options, name)
        if value not in allowed:
            choices = ", ".join(choice for choice in allowed if choice)
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be one of {choices}")
    if options.text_field is not None and options.schema == "input_ids":
        raise UsageError("--text-field names a text, but --schema input_ids asks for token ids: give one of them")
    if options.max_record_bytes < 1 or options.partition_bytes < 1:
        raise UsageError("--max-record-bytes and the partition size must be at least 1")


def asked_for(options: ReadOptions) -> Schema | None:
    """The schema that the options settle without looking at a record."""
    if options.text_field is not None:
        return Schema("text", options.text_field)
    return Schema("input_ids", "input_ids") if options.schema == "input_ids" else None


def of_keys(keys: Iterable[str], place: str, options: ReadOptions) -> Schema | None:
    """The schema of records with these keys, or None if there is no known field.

    Raises InputError, starting with `place`, for records that cannot be packed as they are.
    """
    names = set(keys)
    schema = asked_for(options)
    if schema is None and options.schema is None and "input_ids" in names:
        schema = Schema("input_ids", "input_ids")
    if schema is not None and schema.kind == "input_ids":
        if reason := packed_row(names):
            raise InputError(f"{place}: {reason}")
        return schema
    if schema is None and options.schema is None:
        _refuse_masked(names, place)
    return schema or next((Schema("text", field) for field in ("text", "content") if field in names), None)


def _refuse_masked(names: set[str], place: str) -> None:
    for kind, field_sets in MASKED_KINDS:
        for fields in field_sets:
            if names.issuperset(fields):
                raise InputError(
                    f"{place}: the records are {kind} ({', '.join(fields)}); packing them needs loss masks, which this"
                    " version does not build; --text-field NAME packs one field as plain text"
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
        raise InputError(f"{path}: no known column; it has {shorten(names)}; name the text's column with --text-field")
    if names.count(schema.field) != 1:
        number = "no" if schema.field not in names else "more than one"
        raise InputError(f"{path}: {number} column {schema.field}; it has {shorten(names)}")
    return schema


def of_records(records: Iterable[tuple[str, object]], path: str, options: ReadOptions) -> Schema:
    """The schema of the first object with a known field among (place, record) pairs: a source's bounded head.

    Where the head holds no object at all it is taken for text, so that reading names each record's own fault.
    """
    if (schema := asked_for(options)) is not None and schema.kind == "text":
        return schema
    unknown = None
    for where, record in records:
        if not isinstance(record, dict):
            continue
        if schema := of_keys(record, f"{path}, {where}", options):
            return schema
        unknown = unknown or (where, list(record))
    if unknown:
        where, keys = unknown
        raise InputError(
            f"no known field in {path}, {where}: it has the keys {shorten(keys)};"
            " name the text's field with --text-field"
        )
    return DEFAULT


def shorten(names: Iterable[str], width: int = 80) -> str:
    """Names for a message, cut at about `width` characters.   ["a", "b"] -> "a, b" """
    text = ", ".join(names).encode("utf-8", "replace").decode() or "none"
    return text if len(text) <= width else text[:width] + "..."
