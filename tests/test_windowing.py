"""Windows against a reference in three lines, over lengths, sizes, strides, tails and scopes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from packer.plan import offsets_of
from packer.rows import gather, whole_documents
from packer.schema import IGNORE_INDEX, TAILS
from packer.windowing import Coverage, Windowing, coverage, pieces, plan, windows_of

Window = tuple[list[int], list[int]]  # tokens and labels


def naive_starts(n: int, size: int, stride: int, tail: str) -> list[int]:
    """Windows with all labels, then what the tail asks for."""
    full = [s for s in range(0, n, stride) if s + size < n]
    keep = [s for s in range(0, n, stride) if s + size >= n][:1]
    align = [max(n - size - 1, 0)] if max((s + size for s in full), default=0) < n - 1 else []
    return full + {"keep": keep, "align": align, "drop": []}[tail]


def naive(ids: list[int], size: int, stride: int, tail: str, mask_overlap: bool) -> list[Window]:
    """The usual loop, with the label that does not exist never made up."""
    windows, predicted = [], set()
    for s in naive_starts(len(ids), size, stride, tail):
        targets = range(s + 1, min(s + size, len(ids)) + 1)
        known = [t for t in targets if t < len(ids) and not (mask_overlap and t in predicted)]
        if known:
            windows.append((ids[s : s + size], [ids[t] if t in known else IGNORE_INDEX for t in targets]))
            predicted |= set(targets)
    return windows


def made(ids: list[int], size: int, stride: int, tail: str, *, mask_overlap: bool = False) -> list[Window]:
    """The same by the plan."""
    windowing = Windowing(stride, "document", tail, mask_overlap)  # type: ignore[arg-type]
    cut, seen = plan(np.array([len(ids)]), size, windowing)
    windows = []
    for start, length, masked in zip(cut.start.tolist(), cut.length.tolist(), seen.tolist(), strict=True):
        labels = [*ids, IGNORE_INDEX][start + 1 : start + length + 1]
        if mask_overlap:
            labels[:masked] = [IGNORE_INDEX] * masked
        windows.append((ids[start : start + length], labels))
    return windows


sizes, strides = st.integers(1, 12), st.integers(1, 15)
tails, masks = st.sampled_from(TAILS), st.booleans()
documents = st.lists(st.integers(1, 40), max_size=12)


@given(st.integers(1, 60), sizes, strides, tails, masks)
@example(17, 4, 2, "keep", True)  # the last window would bring no label that is new
def test_windows_of_a_document(n: int, size: int, stride: int, tail: str, mask_overlap: bool) -> None:
    ids = list(range(100, 100 + n))
    assert made(ids, size, stride, tail, mask_overlap=mask_overlap) == naive(ids, size, stride, tail, mask_overlap)


@given(documents, sizes, strides, tails, masks)
def test_every_document_for_itself(lengths: list[int], size: int, stride: int, tail: str, mask_overlap: bool) -> None:
    windowing = Windowing(stride, "document", tail, mask_overlap)  # type: ignore[arg-type]
    cut, seen = plan(np.array(lengths, np.int32), size, windowing)
    cut.validate(np.array(lengths, np.int32), size)
    assert (cut.row_offsets == np.arange(cut.rows + 1)).all(), "one segment a window"
    found = list(zip(cut.doc.tolist(), cut.start.tolist(), cut.length.tolist(), seen.tolist(), strict=True))
    expected = []
    for doc, n in enumerate(lengths):
        alone, alone_seen = plan(np.array([n]), size, windowing)
        expected += [(doc, *window) for window in zip(alone.start, alone.length, alone_seen, strict=True)]
    assert found == expected


@given(documents, sizes, strides, tails, masks)
def test_the_corpus_is_one_document(lengths: list[int], size: int, stride: int, tail: str, mask_overlap: bool) -> None:
    windowing = Windowing(stride, "corpus", tail, mask_overlap)  # type: ignore[arg-type]
    cut, seen = plan(np.array(lengths, np.int32), size, windowing)
    cut.validate(np.array(lengths, np.int32), size)
    stream = [(doc, position) for doc, n in enumerate(lengths) for position in range(n)]
    numbers = list(range(len(stream)))
    rows = [
        [
            (int(cut.doc[i]), int(cut.start[i]) + k)
            for i in range(cut.row_offsets[row], cut.row_offsets[row + 1])
            for k in range(cut.length[i])
        ]
        for row in range(cut.rows)
    ]
    expected = naive(numbers, size, stride, tail, mask_overlap)
    assert rows == [[stream[number] for number in tokens] for tokens, _ in expected]
    if mask_overlap:
        masked = [sum(label == IGNORE_INDEX for label in labels[: len(tokens) - 1]) for tokens, labels in expected]
        assert [min(k, len(row) - 1) for k, row in zip(seen.tolist(), rows, strict=True)] == masked


@given(st.integers(1, 200), sizes, st.data(), st.sampled_from(["keep", "align"]))
def test_every_token_but_the_first_is_predicted_once(n: int, size: int, data: st.DataObject, tail: str) -> None:
    stride = data.draw(st.integers(1, size))
    ids = list(range(n))
    windows = made(ids, size, stride, tail, mask_overlap=True)
    assert Counter(label for _, labels in windows for label in labels if label != IGNORE_INDEX) == Counter(ids[1:])
    plain = made(ids, size, stride, tail)
    assert {label for _, labels in plain for label in labels} - {IGNORE_INDEX} == set(ids[1:]), "none is lost"
    if tail == "keep" and n > 1:
        assert {token for tokens, _ in plain for token in tokens} >= set(ids[:-1]), "and each is an input"


@given(st.integers(0, 500), sizes, strides)
def test_count_without_tail(n: int, size: int, stride: int) -> None:
    expected = (n - size - 1) // stride + 1 if n > size else 0
    windows = windows_of(np.array([n]), size, Windowing(stride, tail="drop"))
    assert windows.total == expected
    assert (windows.take(np.arange(expected)).length == size).all()


# --- worked examples -------------------------------------------------------------------------------------------------


def test_twenty_tokens() -> None:
    """nanoGPT-style loops leave the last window's target one short."""
    windows = made(list(range(1, 21)), 4, 2, "drop")
    assert len(windows) == 8
    assert windows[:4] == [
        ([1, 2, 3, 4], [2, 3, 4, 5]),
        ([3, 4, 5, 6], [4, 5, 6, 7]),
        ([5, 6, 7, 8], [6, 7, 8, 9]),
        ([7, 8, 9, 10], [8, 9, 10, 11]),
    ]
    assert windows[-1] == ([15, 16, 17, 18], [16, 17, 18, 19])


def test_tails() -> None:
    seventeen, eighteen = list(range(1, 18)), list(range(1, 19))
    assert len(made(seventeen, 4, 4, "keep")) == 4
    assert made(seventeen, 4, 4, "keep") == made(seventeen, 4, 4, "drop") == made(seventeen, 4, 4, "align")
    assert made(eighteen, 4, 4, "keep")[4:] == [([17, 18], [18, IGNORE_INDEX])]
    assert made(eighteen, 4, 4, "align")[4:] == [([14, 15, 16, 17], [15, 16, 17, 18])]
    assert made(eighteen, 4, 4, "drop") == made(seventeen, 4, 4, "drop")


def test_short_documents() -> None:
    """Shorter than a window, or just as long: nothing to drop, one window to keep; one token predicts nothing."""
    for tail in ("keep", "align"):
        assert made([7, 8, 9], 4, 2, tail) == [([7, 8, 9], [8, 9, IGNORE_INDEX])]
        assert made([6, 7, 8, 9], 4, 2, tail) == [([6, 7, 8, 9], [7, 8, 9, IGNORE_INDEX])]
        assert made([7], 4, 2, tail) == []
    assert made([6, 7, 8, 9], 4, 2, "drop") == []
    assert made([5, 6, 7, 8, 9], 4, 2, "drop") == [([5, 6, 7, 8], [6, 7, 8, 9])]


def test_masked_overlap() -> None:
    ids = list(range(1, 9))
    assert made(ids, 4, 2, "keep", mask_overlap=True) == [
        ([1, 2, 3, 4], [2, 3, 4, 5]),
        ([3, 4, 5, 6], [IGNORE_INDEX, IGNORE_INDEX, 6, 7]),
        ([5, 6, 7, 8], [IGNORE_INDEX, IGNORE_INDEX, 8, IGNORE_INDEX]),
    ]
    assert made(ids, 4, 2, "align", mask_overlap=True)[-1] == ([4, 5, 6, 7], [IGNORE_INDEX] * 3 + [8])
    assert made(ids[:7], 4, 2, "keep")[2:] == [([5, 6, 7], [6, 7, IGNORE_INDEX])]
    assert made(ids[:7], 4, 2, "keep", mask_overlap=True)[2:] == [], "it would predict nothing that is new"


def test_gaps() -> None:
    ids = list(range(1, 12))
    assert [tokens for tokens, _ in made(ids, 3, 5, "keep")] == [[1, 2, 3], [6, 7, 8]]
    assert [tokens for tokens, _ in made([*ids, 12], 3, 5, "keep")] == [[1, 2, 3], [6, 7, 8], [11, 12]]


def test_a_label_over_a_cut_comes_from_the_document() -> None:
    """Gathered rows carry the next token of the document, as the rows of `pack` do."""
    lengths = np.array([6])
    source = whole_documents(np.array([0]), np.arange(10, 16, dtype=np.int32), offsets_of(lengths), None)
    cut, _ = plan(lengths, 4, Windowing(2))
    rows = gather(source, cut, lengths.astype(np.int32))
    assert rows.segments["next"].tolist() == [14, IGNORE_INDEX]


def test_pieces() -> None:
    found = pieces(offsets_of(np.array([3, 4, 2])), np.array([1, 3]), np.array([7, 4]))
    assert [part.tolist() for part in found] == [[0, 1, 2, 1], [1, 0, 0, 0], [2, 4, 1, 4], [0, 3, 4]]


def test_offsets_beyond_32_bits() -> None:
    n = 5 << 32
    windows = windows_of(np.array([n]), 1 << 20, Windowing(1 << 19))
    last = windows.take(np.array([windows.total - 1]))
    assert last.start[0] + last.length[0] == n
    assert coverage(np.array([n]), 1 << 20, Windowing(1 << 19)).distinct_tokens == n


# --- what they cost --------------------------------------------------------------------------------------------------


def counted(lengths: list[int], size: int, windowing: Windowing) -> Coverage:
    """Counted token by token."""
    streams = [sum(lengths)] if windowing.scope == "corpus" else lengths
    windows = tokens = 0
    held, predicted = Counter(), Counter()  # type: ignore[var-annotated]
    for stream, n in enumerate(streams):
        for part, labels in naive(list(range(n)), size, windowing.stride, windowing.tail, windowing.mask_overlap):
            windows, tokens = windows + 1, tokens + len(part)
            held.update((stream, token) for token in part)
            predicted.update((stream, label) for label in labels if label != IGNORE_INDEX)
    per_token = [predicted[stream, token] for stream, n in enumerate(streams) for token in range(1, n)]
    return Coverage(
        windows,
        tokens,
        len(held),
        tokens / len(held) if held else 0.0,
        sum(lengths) - len(held),
        sum(per_token),
        min(per_token, default=0),
        sum(per_token) / len(per_token) if per_token else 0.0,
        max(per_token, default=0),
    )


@given(documents, sizes, strides, st.sampled_from(["document", "corpus"]), tails, masks)
def test_coverage(lengths: list[int], size: int, stride: int, scope: str, tail: str, mask_overlap: bool) -> None:
    windowing = Windowing(stride, scope, tail, mask_overlap)  # type: ignore[arg-type]
    expected = counted(lengths, size, windowing)
    assert coverage(np.array(lengths, np.int32), size, windowing) == expected
    distinct, counts = np.unique(np.array(lengths, np.int32), return_counts=True)
    assert coverage(distinct, size, windowing, counts=counts) == expected


@pytest.mark.parametrize("tail", ["keep", "align"])
def test_predicted_exactly_once_shows_in_the_figures(tail: str) -> None:
    found = coverage(np.array([100, 3, 57]), 16, Windowing(4, "document", tail, mask_overlap=True))  # type: ignore[arg-type]
    assert (found.predictions_min, found.predictions_mean, found.predictions_max) == (1, 1.0, 1)
    assert found.predictions == 157


def test_a_million_documents() -> None:
    lengths = np.random.default_rng(0).lognormal(6, 1.2, 1_000_000).clip(1, 4096).astype(np.int32)
    cut, _ = plan(lengths, 1024, Windowing(512))
    cut.validate(lengths, 1024)
    found = coverage(lengths, 1024, Windowing(512))
    assert (found.windows, found.tokens) == (cut.rows, cut.tokens)
