"""What becomes of long, short and untrained documents, against one document at a time; and that nothing gets lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.packing import OVERLONG
from packer.packing.overlong import Kept, Losses, OverlongError, Trained, keep, split, whole
from packer.plan import offsets_of

Mask = list[bool] | None  # None: the document came without a mask
POLICIES = [policy for policy in (None, *OVERLONG) if policy != "error"]


@dataclass
class Case:
    """Documents by their lengths and masks, and the options that decide about them."""

    documents: list[tuple[int, Mask]]
    max_length: int
    min_tokens: int = 0
    policy: str | None = None
    lengths: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = [length for length, _ in self.documents]

    def keep(self) -> Kept:
        masks = [mask for _, mask in self.documents]
        trained = None
        if any(mask is not None for mask in masks):
            flat = [bit for length, mask in self.documents for bit in (mask or [True] * length)]
            trained = Trained.of(
                np.array(flat, np.bool_), np.array([mask is not None for mask in masks]), offsets_of(self.array())
            )
        return keep(self.array(), self.max_length, self.policy, min_tokens=self.min_tokens, trained=trained)

    def array(self) -> np.ndarray:
        return np.array(self.lengths, np.int32)


def naive(case: Case) -> tuple[list[tuple[int, int] | None], dict[str, int]]:
    """The part [start, stop) of each document that is kept, or None; and what is lost, by reason."""
    parts: list[tuple[int, int] | None] = []
    lost = dict.fromkeys(asdict(Losses()), 0)

    def lose(reason: str, tokens: int, lost_mask: list[bool]) -> None:
        lost[f"{reason}_documents"] += 1
        lost[f"{reason}_tokens"] += tokens
        lost[f"{reason}_trained_tokens"] += sum(lost_mask)

    for length, mask in case.documents:
        own = mask or []
        policy = case.policy or ("split" if mask is None else "truncate")
        too_long = length > case.max_length
        start, stop = 0, length
        if too_long and policy == "truncate":
            stop = case.max_length
        if too_long and policy == "truncate-left":
            start = length - case.max_length
        if length < case.min_tokens:
            lose("short", length, own)
            parts.append(None)
        elif too_long and policy == "drop":
            lose("dropped", length, own)
            parts.append(None)
        elif mask is not None and not any(mask[start + 1 : stop]):  # nothing predicts the first token that is kept
            lose("untrained", length, own)
            parts.append(None)
        else:
            if stop - start < length:
                lose("truncated", length - (stop - start), own[:start] + own[stop:])
            parts.append((start, stop))
    return parts, lost


masks = st.lists(st.booleans(), min_size=1, max_size=20) | st.integers(1, 20).map(lambda n: [False] * n)
masked = masks.map(lambda mask: (len(mask), mask))
unmasked = st.integers(1, 20).map(lambda length: (length, None))
documents = st.lists(unmasked) | st.lists(masked) | st.lists(unmasked | masked)
cases = st.builds(Case, documents, st.integers(1, 12), st.integers(0, 6), st.sampled_from(POLICIES))


@given(cases)
def test_keep(case: Case) -> None:
    parts, lost = naive(case)
    kept = case.keep()
    spans = list(zip(kept.start.tolist(), kept.stop.tolist(), strict=True))
    assert [span if span[0] < span[1] else None for span in spans] == parts
    assert all(start <= stop for start, stop in spans)
    assert asdict(kept.losses) == lost


@given(cases)
def test_every_token_kept_or_counted(case: Case) -> None:
    kept = case.keep()
    left = int((kept.stop - kept.start).sum())
    assert left + kept.losses.tokens == sum(case.lengths)
    assert int((kept.stop > kept.start).sum()) + kept.losses.documents == len(case.documents)


@given(cases)
def test_split_and_whole(case: Case) -> None:
    kept = case.keep()
    parts = [(doc, part) for doc, part in enumerate(naive(case)[0]) if part]
    cut = [
        (doc, at, min(case.max_length, stop - at))
        for doc, (start, stop) in parts
        for at in range(start, stop, case.max_length)
    ]
    for pieces, expected in (
        (split(kept, case.max_length), cut),
        (whole(kept), [(d, a, b - a) for d, (a, b) in parts]),
    ):
        dtypes = [array.dtype for array in (pieces.doc, pieces.start, pieces.length)]
        assert dtypes == [np.int64, np.int32, np.int32]
        assert list(zip(pieces.doc.tolist(), pieces.start.tolist(), pieces.length.tolist(), strict=True)) == expected


@given(cases)
def test_error_names_the_first_long_document(case: Case) -> None:
    case.policy = "error"
    long = [doc for doc, length in enumerate(case.lengths) if length > case.max_length and length >= case.min_tokens]
    if not long:
        assert case.keep().losses.truncated_documents == 0
        return
    with pytest.raises(OverlongError, match="--max-length") as caught:
        case.keep()
    assert (caught.value.document, caught.value.length) == (long[0], case.lengths[long[0]])


@given(st.lists(st.tuples(*[st.integers(0, 1 << 40)] * 12), max_size=4))
def test_losses_add_up(blocks: list[tuple[int, ...]]) -> None:
    total = sum((Losses(*block) for block in blocks), Losses())
    assert list(asdict(total).values()) == [sum(block[i] for block in blocks) for i in range(12)]
    assert total.tokens == sum(sum(block[1:8:2]) for block in blocks)
    assert total.documents == sum(sum(block[2:8:2]) for block in blocks), "a truncated document is still there"


@pytest.mark.parametrize(
    ("reported", "document", "max_length", "policy", "pieces", "tokens_lost"),
    [
        ("trl 4554", (4, None), 1, None, [(0, 1), (1, 1), (2, 1), (3, 1)], 0),
        ("trl 4554", (4, None), 1, "truncate", [(0, 1)], 3),
        ("trl 5075", (13, [False] * 5 + [True] * 8), 10, None, [(0, 10)], 3),
        ("trl 5075", (13, [False] * 5 + [True] * 8), 10, "split", [(0, 10), (10, 3)], 0),
        ("qlora-pipe 40", (5, None), 4, None, [(0, 4), (4, 1)], 0),
        ("axolotl 3401", (9, None), 4, "truncate", [(0, 4)], 5),
        ("ms-swift 6961", (6, None), 4, "truncate-left", [(2, 4)], 2),
        ("nanochat 590", (9, None), 4, None, [(0, 4), (4, 4), (8, 1)], 0),
        ("an answer that was cut off", (6, [False] * 4 + [True] * 2), 4, None, [], 6),
        ("an answer of the first token", (3, [True, False, False]), 4, None, [], 3),
        ("one token without a mask", (1, None), 4, None, [(0, 1)], 0),
    ],
)
def test_reported_faults(
    reported: str,
    document: tuple[int, Mask],
    max_length: int,
    policy: str | None,
    pieces: list[tuple[int, int]],
    tokens_lost: int,
) -> None:
    kept = Case([document], max_length, policy=policy).keep()
    cut = split(kept, max_length)
    assert list(zip(cut.start.tolist(), cut.length.tolist(), strict=True)) == pieces, reported
    assert kept.losses.tokens == tokens_lost


def test_totals_beyond_int32() -> None:
    lengths = np.full(3, 2**31 - 1, np.int32)
    assert keep(lengths, 10, "drop").losses.dropped_tokens == 3 * (2**31 - 1)
    assert keep(lengths, 10, "truncate").losses.truncated_tokens == 3 * (2**31 - 11)
    assert whole(keep(lengths, 10, "split")).length.tolist() == lengths.tolist()


def test_split_near_the_end_of_int32() -> None:
    pieces = split(keep(np.array([2**31 - 1], np.int32), 1 << 28, "split"), 1 << 28)
    assert pieces.start.tolist() == [i << 28 for i in range(8)]
    assert pieces.length.tolist() == [1 << 28] * 7 + [(1 << 28) - 1]
