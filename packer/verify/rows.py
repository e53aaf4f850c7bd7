"""What must hold within a row. Each rule says which rows of a group break it; the tables below are the whole list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from packer.errors import DatasetError
from packer.manifest import Manifest, Totals
from packer.plan import BoolArray, Int64Array
from packer.remote import Place
from packer.schema import IGNORE_INDEX
from packer.stored.groups import Group, groups

Rule = Callable[[Group], BoolArray]


def _token_counts(g: Group) -> BoolArray:
    n = g.counts("input_ids")
    multiple = g.manifest.options.segment_multiple
    padded = n
    if multiple > 1:
        padded = np.add.reduceat(-(-g.segment_lengths // multiple) * multiple, g.at["doc_ids"][:-1])
    wrong: BoolArray = (n < 1) | (padded > g.manifest.max_length) | (n != g.scalar["num_tokens"])
    return wrong


def _list_lengths(g: Group) -> BoolArray:
    wrong: BoolArray = np.zeros(g.rows, np.bool_)
    for name in ("labels", "position_ids"):
        if name in g.at:
            wrong |= g.counts(name) != g.counts("input_ids")
    segments = g.counts("doc_ids")
    for name in ("doc_starts", "doc_lengths", "next_tokens"):
        wrong |= g.counts(name) != segments
    sequences = segments if g.manifest.layout.boundaries == "document" else np.ones_like(segments)
    if "seq_lengths" in g.at:
        wrong |= g.counts("seq_lengths") != sequences
    wrong |= (segments < 1) | (g.counts("cu_seqlens") != sequences + 1)
    return wrong


def _cu_seqlens(g: Group) -> BoolArray:
    values, at = g.flat["cu_seqlens"], g.at["cu_seqlens"]
    rising = np.diff(values, prepend=-1) > 0
    rising[at[:-1]] = values[at[:-1]] == 0
    wrong: BoolArray = values[at[1:] - 1] != g.counts("input_ids")
    return wrong | g.rows_with("cu_seqlens", ~rising)


def _segment_lengths(g: Group) -> BoolArray:
    lengths = g.segment_lengths
    beyond = g.flat["doc_starts"] + lengths > g.flat["doc_lengths"]
    return g.rows_with("doc_ids", (lengths < 1) | beyond | (g.flat["doc_starts"] < 0))


def _loss_spans(g: Group) -> BoolArray:
    if "loss_spans" not in g.flat:
        return np.zeros(g.rows, np.bool_)
    values, at = g.flat["loss_spans"], g.at["loss_spans"]
    wrong: BoolArray = g.counts("loss_spans") % 2 == 1
    falling = np.diff(values, prepend=-1) <= 0
    falling[at[:-1][at[:-1] < len(values)]] = False
    outside = (values < 0) | (values > g.counts("input_ids")[g.row_of("loss_spans")])
    return wrong | g.rows_with("loss_spans", falling | outside)


def _token_ids(g: Group) -> BoolArray:
    ids = g.flat["input_ids"]
    limit = g.manifest.totals.max_token_id
    return g.rows_with("input_ids", (ids < 0) | (ids > limit))


def _doc_ids(g: Group) -> BoolArray:
    ids = g.flat["doc_ids"]
    return g.rows_with("doc_ids", (ids < 0) | (ids >= g.manifest.totals.records))


def _seq_lengths(g: Group) -> BoolArray:
    if "seq_lengths" not in g.flat:
        return np.zeros(g.rows, np.bool_)
    return g.rows_with("seq_lengths", g.flat["seq_lengths"] != g.sequence_lengths)


def _positions(g: Group) -> BoolArray:
    if "position_ids" not in g.flat:
        return np.zeros(g.rows, np.bool_)
    place = np.arange(len(g.flat["input_ids"]))
    kind = g.manifest.layout.positions
    if kind == "segment":
        expected = place - np.repeat(g.sequence_starts, g.sequence_lengths)
    elif kind == "row":
        expected = place - np.repeat(g.at["input_ids"][:-1], g.counts("input_ids"))
    else:
        expected = place - np.repeat(g.segment_starts - g.flat["doc_starts"], g.segment_lengths)
    return g.rows_with("position_ids", g.flat["position_ids"] != expected)


def _next_tokens(g: Group) -> BoolArray:
    """-100 where the document ends; inside a row that is one sequence, the row's next token. Windows over the corpus
    go on with the next document, which other rows hold (see `packer.verify.windows`)."""
    found = g.flat["next_tokens"]
    ends = g.segment_starts + g.segment_lengths
    at_end = g.flat["doc_starts"] + g.segment_lengths == g.flat["doc_lengths"]
    window = g.manifest.options.window
    over_documents = window is not None and window.scope == "corpus"
    wrong = at_end & (found != IGNORE_INDEX) & (not over_documents)
    if g.manifest.layout.boundaries == "row":
        inner = np.ones(len(found), np.bool_)
        inner[g.at["doc_ids"][1:] - 1] = False
        following = g.flat["input_ids"][np.minimum(ends, len(g.flat["input_ids"]) - 1)]
        apart = _differs(g, found, following)
        if g.manifest.layout.masked and g.manifest.layout.labels == "aligned":
            apart[inner] |= found[inner] != g.labels[ends[inner]]
        wrong = np.where(inner, apart, wrong)
    return g.rows_with("doc_ids", wrong)


def _labels(g: Group) -> BoolArray:
    if "labels" not in g.flat:
        return np.zeros(g.rows, np.bool_)
    ids, labels = g.flat["input_ids"], g.flat["labels"]
    if g.manifest.layout.labels == "aligned":
        wrong = np.where(g.is_sequence_start, labels != IGNORE_INDEX, _differs(g, labels, ids))
    else:
        wrong = _differs(g, labels, np.append(ids[1:], IGNORE_INDEX))
        last = g.segment_starts + g.segment_lengths - 1
        wrong[last] = labels[last] != g.flat["next_tokens"]
    return g.rows_with("labels", wrong)


def _differs(g: Group, found: Int64Array, expected: Int64Array) -> BoolArray:
    """Where a target is not the expected one; with loss masks it may also be -100 (INPUT alone can tell)."""
    wrong: BoolArray = found != expected
    return wrong & (found != IGNORE_INDEX) if g.manifest.layout.masked else wrong


def _loss_tokens(g: Group) -> BoolArray:
    trained = np.add.reduceat(g.labels != IGNORE_INDEX, g.at["input_ids"][:-1], dtype=np.int64)
    wrong: BoolArray = trained != g.scalar["loss_tokens"]
    return wrong


def _max_seqlen(g: Group) -> BoolArray:
    longest = np.maximum.reduceat(g.sequence_lengths, g.sequence_offsets[:-1])
    wrong: BoolArray = longest != g.scalar["max_seqlen"]
    return wrong


def _attention_cost(g: Group) -> BoolArray:
    wrong: BoolArray = g.sums(g.sequence_lengths**2) != g.scalar["attention_cost"]
    return wrong


SHAPE: dict[str, Rule] = {  # what the rules on values stand on, so it comes first, in this order
    "num_tokens is the row's tokens, 1 to max_length": _token_counts,
    "lists agree in length": _list_lengths,
    "cu_seqlens rises from 0 to the token count": _cu_seqlens,
    "segments lie within their documents": _segment_lengths,
    "loss_spans rise within the row": _loss_spans,
}
VALUES: dict[str, Rule] = {
    "input_ids are token ids": _token_ids,
    "doc_ids are ordinals of the input": _doc_ids,
    "seq_lengths are the differences of cu_seqlens": _seq_lengths,
    "position_ids restart where they must": _positions,
    "next_tokens end with the document": _next_tokens,
    "labels follow the convention": _labels,
    "loss_tokens counts the labels": _loss_tokens,
    "max_seqlen is the longest sequence": _max_seqlen,
    "attention_cost is the sum of squares": _attention_cost,
}


@dataclass(frozen=True)
class Found:
    """What the rows add up to, and the highest document ordinal in them."""

    totals: Totals
    last_doc: int


def check(out: Place, manifest: Manifest) -> Found:
    """Applies every rule to every row."""
    totals = Totals()
    last_doc = -1
    sizes = [group.max_length for group in manifest.groups]
    for part, shard in ((sized, one) for sized in manifest.by_length for one in sized.shards):
        shorter = max((size for size in sizes if size < part.max_length), default=0)
        rows = tokens = 0
        for group in groups(out, part, shard.path):
            for rules in (SHAPE, VALUES):
                for rule, broken in rules.items():
                    _raise_first(group, rule, broken(group))
            for rule, needed in _needed(manifest.options.gaps).items():
                _raise_first(group, rule, needed.reduceat(_counted(group), group.at["doc_ids"][:-1]) <= shorter)
            totals += _totals(group)
            last_doc = max(last_doc, int(group.flat["doc_ids"].max()))
            rows += group.rows
            tokens += len(group.flat["input_ids"])
        if (rows, tokens) != (shard.rows, shard.tokens):
            raise DatasetError(
                f"{shard.path}: totals: {rows} rows and {tokens} tokens, "
                f"the manifest says {shard.rows} and {shard.tokens}"
            )
    return Found(totals, last_doc)


def _needed(gaps: str | None) -> dict[str, np.ufunc]:
    """Which segments of a row must be longer than the next shorter rows can hold."""
    rules = {"a row holds a segment that needs its length": np.maximum}
    return rules | ({"every segment of a row needs its length": np.minimum} if gaps == "leave" else {})


def _counted(group: Group) -> Int64Array:
    """Tokens of each segment as they count for the row: int64 (S,)."""
    multiple = group.manifest.options.segment_multiple
    return np.asarray(-(-group.segment_lengths // multiple) * multiple, np.int64)


def _raise_first(group: Group, rule: str, broken: BoolArray) -> None:
    if broken.any():
        row = group.first_row + int(np.argmax(broken))
        raise DatasetError(f"{group.shard}, row {row}: broken rule: {rule}")


def _totals(group: Group) -> Totals:
    return Totals(
        rows=group.rows,
        segments=len(group.flat["doc_ids"]),
        placed_tokens=len(group.flat["input_ids"]),
        loss_tokens=int(group.scalar["loss_tokens"].sum()),
        attention_cost=int(group.scalar["attention_cost"].sum()),
        max_seqlen=int(group.scalar["max_seqlen"].max()),
        max_token_id=int(group.flat["input_ids"].max()),
    )
