"""A partition's documents as token ids: reading, tokenizing and adding BOS and EOS, a few batches ahead.

The tokenizer's threads use every core inside one call, but idle while ids are copied out and texts are read. A few
calls in flight fill those gaps; results keep the input's order.

A chat or a pair comes with the characters to train on. Its ids are those of the whole text, its mask follows the
characters (`packer.alignment`), and BOS and EOS are put around it only where the text does not have its own ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from packer.alignment import Aligner
from packer.conversation import ChatCounts, Rendered
from packer.corpus.documents import TextBatch, TokenBatch
from packer.engines import Engine, EngineError, Sample, Watch
from packer.errors import UsageError
from packer.plan import BoolArray, Int32Array, Int64Array, offsets_of
from packer.similarity import Traits
from packer.threads import made_ahead, ordered_ahead
from packer.tokenizer import Ends

THREADS = 3
READ_AHEAD = 2  # batches of a few megabytes
COMPARED = 64  # pairs of a batch whose prompts are also tokenized apart


@dataclass(frozen=True)
class Encoded:
    """Documents of at least one token. ordinals: int64 (n,); ids: int32 (t,); offsets: int64 (n+1,); mask: bool (t,)
    or None where all documents train on all their tokens; masked: bool (n,), documents that came with a mask; empty:
    documents without a token, which are left out; chats: what the chats and pairs among them came to; checked:
    documents that the reference engine encodes too; sample: these, until they are compared; traits: of the documents,
    where they are asked for."""

    ordinals: Int64Array
    ids: Int32Array
    offsets: Int64Array
    mask: BoolArray | None
    masked: BoolArray
    empty: int
    chats: ChatCounts = field(default_factory=ChatCounts)
    checked: int = 0
    sample: Sample | None = None
    traits: Traits | None = None


@dataclass(frozen=True)
class ChatEnds:
    """What rendered texts need. aligner: gives what turns characters to tokens; bos, eos: the tokenizer's, to find them
    at a text's ends; add_bos, add_eos: whether they are put around texts too that have their own ends, as was asked for
    by name."""

    aligner: Callable[[], Aligner]
    bos: int | None = None
    eos: int | None = None
    add_bos: bool = False
    add_eos: bool = False


def encode(
    batches: Iterable[TextBatch | TokenBatch],
    engine: Engine | None,
    ends: Ends | None,
    chats: ChatEnds | None = None,
    watch: Watch | None = None,
) -> Iterator[Encoded]:
    """Tokenizes texts; ready-made ids pass untouched. Without an engine a text is a UsageError.

    With a watch, raises DifferenceError where a sampled document's ids are not the reference's.
    """

    def work(item: tuple[TextBatch | TokenBatch, list[int]]) -> Encoded:
        return _with_traits(_encode(*item, engine, ends, chats, watch), item[0])

    read = made_ahead(_picked(batches, watch), READ_AHEAD)
    encoded = ordered_ahead(work, read, threads=THREADS, ahead=THREADS + 1)
    return encoded if watch is None else _compared(encoded, watch)


def _compared(batches: Iterator[Encoded], watch: Watch) -> Iterator[Encoded]:
    """The batches; ends when their samples have been compared too. Of several differences the first one is raised."""
    pending: deque[Sample] = deque()
    try:
        for batch in batches:
            if batch.sample:
                pending.append(batch.sample)
            while pending and pending[0].expected.done():
                pending[0].compare()  # what differs stays the first of them
                pending.popleft()
            yield replace(batch, sample=None)
    except EngineError:
        _compare_all(pending)
        raise
    else:
        _compare_all(pending)
    finally:
        watch.close()


def _compare_all(samples: Iterable[Sample]) -> None:
    for sample in samples:
        sample.compare()


def _picked(
    batches: Iterable[TextBatch | TokenBatch], watch: Watch | None
) -> Iterator[tuple[TextBatch | TokenBatch, list[int]]]:
    """Each batch with the documents that are to be compared: chosen in order, before threads take them."""
    for batch in batches:
        yield batch, watch.pick(batch.ordinals, batch.texts) if watch and isinstance(batch, TextBatch) else []


def _tokenized(
    texts: TextBatch, picked: list[int], engine: Engine, watch: Watch | None
) -> tuple[Int32Array, Int64Array, Sample | None]:
    if watch is None or not texts.texts:
        return *engine.encode(texts.texts), None
    return watch.encode(engine, texts.ordinals, texts.texts, picked)


def _encode(
    batch: TextBatch | TokenBatch,
    picked: list[int],
    engine: Engine | None,
    ends: Ends | None,
    chats: ChatEnds | None,
    watch: Watch | None,
) -> Encoded:
    mask, masked, sample = None, np.zeros(len(batch.ordinals), np.bool_), None
    if isinstance(batch, TokenBatch):
        ids, offsets, mask, masked = batch.ids, batch.offsets, batch.mask, batch.masked
    elif engine is None or ends is None or (batch.chats and chats is None):
        raise UsageError("INPUT holds texts, so --tokenizer is needed (only ready-made input_ids can do without one)")
    elif batch.chats and chats is not None:
        return _encode_chats(batch, picked, engine, ends, chats, watch)
    else:
        ids, offsets, sample = _tokenized(batch, picked, engine, watch)
        ids, offsets = ends.add(ids, offsets)
    return _without_empty(batch.ordinals, ids, offsets, mask, masked, ChatCounts(), sample)


def _with_traits(encoded: Encoded, batch: TextBatch | TokenBatch) -> Encoded:
    if batch.traits is None:
        return encoded
    return replace(encoded, traits=batch.traits.take(np.searchsorted(batch.ordinals, encoded.ordinals)))


def _without_empty(
    ordinals: Int64Array,
    ids: Int32Array,
    offsets: Int64Array,
    mask: BoolArray | None,
    masked: BoolArray,
    chats: ChatCounts,
    sample: Sample | None,
) -> Encoded:
    lengths = np.diff(offsets)
    full = lengths > 0
    checked = len(sample) if sample else 0
    return Encoded(
        ordinals[full], ids, offsets_of(lengths[full]), mask, masked[full], int((~full).sum()), chats, checked, sample
    )


def _encode_chats(
    batch: TextBatch, picked: list[int], engine: Engine, ends: Ends, chats: ChatEnds, watch: Watch | None
) -> Encoded:
    ids, offsets, sample = _tokenized(batch, picked, engine, watch)
    found = [batch.chats.get(place) for place in range(len(batch.texts))]
    masked = np.array([chat is not None and chat.trained is not None for chat in found], np.bool_)
    own_mask, straddling = _mask(batch, ids, offsets, masked, chats.aligner())
    compared, retokenized = _compare(batch, engine, ids, offsets)
    open_ended = np.array([chat is None or chat.ends for chat in found], np.bool_)
    ids, offsets, own = ends.around(ids, offsets, open_ended | chats.add_bos, open_ended | chats.add_eos)
    trains_end = [_trains_its_end(text, chat) for text, chat in zip(batch.texts, found, strict=True)]
    mask = _extended(own_mask, own, offsets, masked, np.array(trains_end, np.bool_))
    counts = _counts(ids, offsets, mask, masked, found, chats)
    counts += ChatCounts(straddling_tokens=straddling, compared_pairs=compared, retokenized_pairs=retokenized)
    return _without_empty(batch.ordinals, ids, offsets, mask if masked.any() else None, masked, counts, sample)


def _mask(
    batch: TextBatch, ids: Int32Array, offsets: Int64Array, masked: BoolArray, aligner: Aligner
) -> tuple[BoolArray, int]:
    """Which tokens are trained, bool (t,), and how many straddle a boundary; all tokens of texts without a mask."""
    spans = [batch.chats[place].trained or () for place in np.flatnonzero(masked).tolist()]
    if masked.all():
        return aligner.masks(batch.texts, ids, offsets, spans)
    mask = np.ones(len(ids), np.bool_)
    within = np.repeat(masked, np.diff(offsets))
    texts = [batch.texts[place] for place in np.flatnonzero(masked).tolist()]
    mask[within], straddling = aligner.masks(texts, ids[within], offsets_of(np.diff(offsets)[masked]), spans)
    return mask, straddling


def _trains_its_end(text: str, chat: Rendered | None) -> bool:
    """Whether an EOS that is put after the text is trained: where what comes before it is."""
    if chat is None or chat.trained is None:
        return True
    return bool(chat.trained) and chat.trained[-1][1] == len(text)


def _extended(
    mask: BoolArray, own: BoolArray, offsets: Int64Array, masked: BoolArray, trains_end: BoolArray
) -> BoolArray:
    """The mask of what was there, and of what was put around it: what stands before a document is trained unless that
    has a mask, what stands after it where its end is. own: bool (t,); offsets: int64 (n+1,); the others bool (n,)."""
    extended = np.zeros(len(own), np.bool_)
    extended[own] = mask
    added = np.flatnonzero(~own)
    document = np.searchsorted(offsets, added, side="right") - 1
    before = offsets_of(own.view(np.int8))
    after = before[added] > before[offsets[document]]  # some token of the document's own comes before it
    extended[added] = np.where(after, trains_end[document], ~masked[document])
    return extended


def _compare(batch: TextBatch, engine: Engine, ids: Int32Array, offsets: Int64Array) -> tuple[int, int]:
    """How many of the first prompts of pairs were tokenized apart, and how many of these are no beginning of the pair's
    ids: there the joined text has other tokens than inference will give."""
    chosen = [(place, chat.prompt) for place, chat in batch.chats.items() if chat.prompt is not None][:COMPARED]
    if not chosen:
        return 0, 0
    apart, ends = engine.encode([batch.texts[place][:prompt] for place, prompt in chosen])
    different = 0
    for i, (place, _) in enumerate(chosen):
        prompt = apart[ends[i] : ends[i + 1]]
        start = int(offsets[place])
        joined = ids[start : min(start + len(prompt), int(offsets[place + 1]))]
        different += not np.array_equal(joined, prompt)
    return len(chosen), different


def _counts(
    ids: Int32Array,
    offsets: Int64Array,
    mask: BoolArray,
    masked: BoolArray,
    found: list[Rendered | None],
    chats: ChatEnds,
) -> ChatCounts:
    rendered = [chat for chat in found if chat is not None]
    here = np.array([chat is not None for chat in found], np.bool_)
    lengths = np.diff(offsets)
    before = offsets_of(mask.view(np.int8))
    trained = before[offsets[1:]] - before[offsets[:-1]]
    firsts, lasts = offsets[:-1][here & (lengths > 0)], offsets[1:][here & (lengths > 0)] - 1
    bos = ids[firsts] == (-1 if chats.bos is None else chats.bos)
    seconds = np.minimum(firsts + 1, lasts)
    return ChatCounts(
        documents=len(rendered),
        tokens=int(lengths[here].sum()),
        turns=sum(chat.turns for chat in rendered),
        trained_tokens=int(trained[here].sum()),
        untrained_documents=int((here & masked & (trained == 0)).sum()),
        control_documents=sum(chat.control for chat in rendered),
        begin_with_bos=int(bos.sum()),
        double_bos=int((bos & (seconds > firsts) & (ids[seconds] == ids[firsts])).sum()),
        pairs=sum(chat.prompt is not None for chat in rendered),
        end_with_eos=int((ids[lasts] == (-1 if chats.eos is None else chats.eos)).sum()),
    )
