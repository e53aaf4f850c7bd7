"""One parsed record to the document in it: a text, token ids with their mask, or a chat as rendered texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from packer.conversation import Render, Rendered, RenderError
from packer.corpus import schema as schemas
from packer.corpus.batches import Block, Ids, Marked, Plain, tokens_of
from packer.corpus.chats import ChatError, conversation_of
from packer.corpus.documents import Tally
from packer.corpus.sources import ReadOptions, Schema, Slice
from packer.corpus.streams import count_newlines, not_utf8
from packer.corpus.traits import Traited, TraitError, TraitReader
from packer.errors import RecordError, UsageError
from packer.plan import BoolArray, Int32Array

IGNORED = -100  # the label of a token that is not trained on, in the Hugging Face convention
ID_LIMIT = 1 << 31
TYPE_NAMES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class BadRecordError(ValueError):
    """A record that holds no document. Its text is the reason, without the place."""


class Reading:
    """What a format needs while it reads one slice: the slice, the options, and what to do about a bad record."""

    def __init__(
        self,
        piece: Slice,
        options: ReadOptions,
        tally: Tally,
        render: Render | None = None,
        traits: TraitReader | None = None,
    ) -> None:
        self.slice, self.source, self.options, self._tally = piece, piece.source, options, tally
        self._render = render
        self.traits = traits or TraitReader(options)
        # Lines or rows of the source before the slice; formats whose slices are not bytes put their own here.
        self.count_before: Callable[[], int] = lambda: count_newlines(self.source, piece.start) if piece.start else 0
        self._before: int | None = None

    @property
    def schema(self) -> Schema:
        return self.source.schema or schemas.DEFAULT

    def on(self, piece: Slice) -> Reading:
        """The same reading of another slice."""
        return Reading(piece, self.options, self._tally, self._render, self.traits)

    def converter(self, *, whole: bool = True) -> Callable[[object], Any]:
        """What makes a parsed record its document (a chat: a list of texts), what `block_of` takes; it raises
        BadRecordError. whole: lone surrogates are looked for, which one of the parsers lets through."""
        convert = self._converter(whole)
        if not self.traits.fields:
            return convert

        def with_traits(record: object) -> Traited:
            document = convert(record)
            try:
                return self.traits.of_record(record, document)
            except TraitError as error:
                raise BadRecordError(str(error)) from None

        return with_traits

    def block_of(self, documents: list[Any]) -> Block:
        """What a converter made of records, one after another, as a block; None is a bad record."""
        if not self.traits.fields:
            return _block_of(documents, self.schema)
        contents = [None if one is None else one.document for one in documents]
        several = self.schema.rendered
        counts = [len(content) if several and content is not None else 1 for content in contents]
        return Marked(_block_of(contents, self.schema), self.traits.gathered(documents, counts))

    def _converter(self, whole: bool) -> Callable[[object], Any]:
        schema = self.schema
        if schema.rendered:
            return _renderer(schema, self._render, self.source.path, whole)
        convert: Any = ids_of if schema.kind == "input_ids" else whole_text_of if whole else text_of
        return lambda record: convert(record, schema.field)

    def bad_at(self, unit: str, number: int, reason: str) -> None:
        """`bad` for "line" or "row" `number` of the slice; what comes before the slice is counted only now."""
        if self._before is None:
            self._before = self.count_before()
        self.bad(f"{unit} {self._before + number}", reason)

    def bad(self, where: str, reason: str) -> None:
        """Raises RecordError, or under `--on-error skip` counts the record."""
        if self.options.on_error == "fail":
            raise RecordError(self.source.path, where, reason)
        self._tally.skip(self.source.path, where, reason)


def too_long(options: ReadOptions) -> str:
    return f"record is above {options.max_record_bytes} bytes (--max-record-bytes)"


def parse_line(line: bytes) -> object:
    """A line that the fast parser refused, parsed as Python's json does. Raises BadRecordError."""
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadRecordError(not_utf8(line, error.start)) from None
    except json.JSONDecodeError as error:
        raise BadRecordError(f"not valid JSON: {error.msg} at character {error.pos}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise BadRecordError(f"not valid JSON: {error}") from None
    except RecursionError:
        raise BadRecordError("not valid JSON: nested too deeply") from None


def field_of(record: object, field: str) -> object:
    """The record's content, not null. Raises BadRecordError."""
    if not isinstance(record, dict):
        raise BadRecordError(f"is {_kind(record)}, not an object")
    if field not in record:
        raise BadRecordError(f"field {field} is missing (keys: {schemas.shorten(map(str, record))})")
    if record[field] is None:
        raise BadRecordError(f"field {field} is null")
    return record[field]


def text_of(record: object, field: str) -> str:
    """The record's text. Raises BadRecordError."""
    text = field_of(record, field)
    if not isinstance(text, str):
        raise BadRecordError(f"field {field} is {_kind(text)}")
    return text


def whole_text_of(record: object, field: str) -> str:
    """The record's text where the parser lets lone surrogates through (orjson does not). Raises BadRecordError."""
    text = text_of(record, field)
    _check_whole(text, f"field {field}")
    return text


def _check_whole(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise BadRecordError(f"{name} holds a lone surrogate \\u{code:04x} at character {error.start}") from None


def ids_of(record: Any, field: str) -> Ids:
    """The record's token ids and mask. Raises BadRecordError."""
    ids = _integers(field_of(record, field), field)
    if reason := schemas.packed_row(record):
        raise BadRecordError(reason)
    wrong = np.flatnonzero((ids < 0) | (ids >= ID_LIMIT))
    if len(wrong):
        raise BadRecordError(id_reason(field, int(ids[wrong[0]]), int(wrong[0])))
    narrow = ids.astype(np.int32)
    return narrow, _mask_of(record, narrow)


def _integers(values: object, field: str, *, booleans: bool = False) -> NDArray[np.int64]:
    if not isinstance(values, list):
        raise BadRecordError(f"field {field} is {_kind(values)}, not an array of integers")
    types = set(map(type, values)) - ({int, bool} if booleans else {int})
    if types:
        position = next(i for i, value in enumerate(values) if type(value) in types)
        value = values[position]
        kind = "a float" if isinstance(value, float) else _kind(value)
        raise BadRecordError(f"field {field} holds {kind} at position {position}, not an integer")
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise BadRecordError(f"field {field} holds an integer beyond 64 bits") from None


def _mask_of(record: Mapping[str, object], ids: Int32Array) -> BoolArray | None:
    field = next((name for name in schemas.MASK_FIELDS if name in record), None)
    if field is None:
        return None
    values = _integers(field_of(record, field), field, booleans=field != "labels")
    if len(values) != len(ids):
        raise BadRecordError(length_reason(field, len(values), len(ids)))
    mask, wrong = mask_from(field, values, ids)
    if wrong.any():
        position = int(wrong.argmax())
        raise BadRecordError(mask_reason(field, int(values[position]), position, int(ids[position])))
    return mask


def mask_from(field: str, values: NDArray[np.integer], ids: NDArray[np.integer]) -> tuple[BoolArray, BoolArray]:
    """The tokens to train on, and the tokens whose value makes no sense: bool (t,) each, of values and ids (t,)."""
    if field == "labels":
        trained = values != IGNORED
        return trained, trained & (values != ids)
    return values == 1, (values != 0) & (values != 1)


def id_reason(field: str, value: int, position: int) -> str:
    return f"field {field} holds {value} at position {position}, not a token id (0 to 2147483647)"


def length_reason(field: str, length: int, ids: int) -> str:
    return f"field {field} has {length} values for {ids} token ids"


def mask_reason(field: str, value: int, position: int, token: int) -> str:
    if field == "labels":
        expected = f"neither -100 nor the token id {token} there (labels must be aligned, not shifted)"
    else:
        expected = "neither 0 nor 1"
    return f"field {field} holds {value} at position {position}, {expected}"


def _kind(value: object) -> str:
    return TYPE_NAMES.get(type(value), f"a {type(value).__name__}")


def _block_of(documents: list[Any], schema: Schema) -> Plain:
    if schema.kind == "input_ids":
        return tokens_of(documents)
    if schema.rendered:
        return [text for texts in documents for text in ([None] if texts is None else texts)]
    return documents


def _renderer(schema: Schema, render: Render | None, path: str, whole: bool) -> Callable[[object], list[Rendered]]:
    if render is None:
        raise UsageError(f"{path}: the records are to be rendered as text, so --tokenizer is needed")

    def convert(record: object) -> list[Rendered]:
        try:
            texts = render(conversation_of(record, schema))
        except (ChatError, RenderError) as error:
            raise BadRecordError(str(error)) from None
        if whole:
            for text in texts:
                _check_whole(text.text, "the chat")
        return texts

    return convert
