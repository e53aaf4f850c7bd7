"""One partition, from its records to staged blocks: a function of the job and the partition, and of nothing else.

    read ─▶ encode ─▶ collect a block ─▶ plan ─▶ gather rows in their block's final order ─▶ staging files

A block is the bounded set of documents that is planned at once. Planning far more documents at once than a batch of
the reader is what makes rows full: at a thousand documents a plan, 0.25% (2k) to 2.6% (32k) of rows are lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np

from packer import engines, holdout, rendering, tokenizer
from packer.blocks import Block, Collector
from packer.chat import ChatOptions
from packer.conversation import ChatCounts
from packer.corpus import Partition, PartitionReader, ReadOptions
from packer.corpus.documents import Tally
from packer.encoding import ChatEnds, Encoded, encode
from packer.errors import InputError
from packer.interleave import Stream, generator
from packer.manifest import Totals
from packer.packing import SIMILARITY_THRESHOLD, overlong
from packer.packing.overlong import Losses, OverlongError, Trained
from packer.plan import Int32Array, Plan, offsets_of
from packer.planning import plan_rows
from packer.relating import likeness_of, traits_of
from packer.rows import Rows, gather
from packer.schema import Skipped
from packer.similarity.likeness import Likeness
from packer.staging import BlockWriter, sync
from packer.windowing import Windowing

T = TypeVar("T", bound=np.generic)
CHUNK_TOKENS = 4 << 20  # gathered and written at a time
Progress = Callable[[int, int], None]  # documents and tokens just done; below 0: they are to be done again


@dataclass(frozen=True)
class TokenizerOptions:
    source: str
    bos: bool | None = None
    eos: bool | None = None
    eos_token: str | None = None
    special_in_text: str = "parse"
    engine: str = "auto"  # or hf or fast: one of these once it has been chosen


@dataclass(frozen=True)
class Job:
    """What determines the rows, for every partition alike. Picklable."""

    read: ReadOptions
    tokenizer: TokenizerOptions | None
    strategy: str
    max_length: int
    overlong: str | None
    min_tokens: int
    max_segments: int | None
    seed: int
    order: str
    block_tokens: int
    window: Windowing | None = None
    segment_multiple: int = 1
    chat: ChatOptions | None = None  # None without a tokenizer
    validation: float | None = None
    plan_effort: int | None = None  # of optimal; None: its default
    plan_seconds: float | None = None  # to plan a block: an error after them, and never another plan
    similarity_threshold: float = SIMILARITY_THRESHOLD

    @property
    def cut_later(self) -> bool:
        """Documents are staged whole, and rows cut from them when all partitions are done (see `packer.cutting`)."""
        return self.window is not None or self.strategy == "wrapped"


@dataclass(frozen=True)
class BlockReport:
    """A staged block. folder: relative to the partition's; rows: how many it holds (documents, if rows are cut
    later); masked: it says of each token whether it is trained; digests: of its files, by name; lp_bound: rows that no
    plan of it can go below, where the strategy knows."""

    folder: str
    rows: int
    tokens: int
    masked: bool
    digests: dict[str, str] = field(default_factory=dict)
    lp_bound: int | None = None


@dataclass(frozen=True)
class Held:
    """What was held out of a partition for validation: documents and tokens, losses, blocks of rows."""

    totals: Totals = field(default_factory=Totals)
    losses: Losses = field(default_factory=Losses)
    blocks: list[BlockReport] = field(default_factory=list)
    likeness: Likeness = field(default_factory=Likeness)


@dataclass(frozen=True)
class PartitionReport:
    """What became of a partition. records and tokens: by source slice; chats: what its chats and pairs came to;
    checked: documents that both engines encoded; sampling_seconds: what the reference took for these; likeness: of the
    documents in rows, by strategy `semantic`."""

    index: int
    records: list[int]
    tokens: list[int]
    totals: Totals
    losses: Losses
    skipped: list[Skipped]
    blocks: list[BlockReport] = field(default_factory=list)
    chats: ChatCounts = field(default_factory=ChatCounts)
    checked: int = 0
    sampling_seconds: float = 0.0
    held: Held = field(default_factory=Held)
    likeness: Likeness = field(default_factory=Likeness)

    @property
    def all_blocks(self) -> list[BlockReport]:
        return self.blocks + self.held.blocks


def stage(job: Job, partition: Partition, folder: Path, progress: Progress | None = None) -> PartitionReport:
    """Stages the partition's blocks as folders below a new `folder`, synced."""
    folder.mkdir()
    engine, ends, vocab_size = engine_of(job.tokenizer)
    render, chat_ends = chats_of(job.tokenizer, job.chat)
    reader = PartitionReader(partition, job.read, render)
    counts = Counts(reader.tally)
    places = Places(partition, reader.tally, several=bool(job.chat and job.chat.turns == "each"))
    watch = watch_of(job.tokenizer, job.seed, partition.index)
    encoded = counted(encode(reader, engine, ends, chat_ends, watch), counts, places, vocab_size, progress)
    main, aside = Stager(job, partition.index, folder, places), None
    if job.validation is not None:
        held_job = replace(job, strategy="none", window=None, order="plan")
        aside = Stager(held_job, partition.index, folder, places, "held")
    for batch in encoded:
        if aside is not None and job.validation is not None:
            batch, held = holdout.parted(batch, job.validation, job.seed)
            aside.add(held)
        main.add(batch)
    kept, held_out = main.done(), aside.done() if aside else Held()
    if render:
        render.check(counts.chats)
    sync(folder)
    records = sum(reader.tally.records)
    return PartitionReport(
        partition.index,
        reader.tally.records,
        (counts.tokens + [0] * len(reader.tally.records))[: len(reader.tally.records)],
        replace(kept.totals, records=records, skipped=reader.tally.skipped, empty=counts.empty),
        kept.losses,
        reader.tally.skipped_reasons,
        kept.blocks,
        counts.chats,
        counts.checked,
        watch.seconds if watch else 0.0,
        held_out,
        kept.likeness,
    )


class Stager:
    """Documents on their way to staged blocks, named after `name` and their number."""

    def __init__(self, job: Job, partition: int, folder: Path, places: Places, name: str = "block") -> None:
        self._job, self._partition, self._folder, self._places, self._name = job, partition, folder, places, name
        self._collector = Collector(job.block_tokens)
        self._staged, self._index = Held(), 0

    def add(self, batch: Encoded) -> None:
        for block in self._collector.add(batch):
            self._stage(block)

    def done(self) -> Held:
        """What was staged, with what was still being collected."""
        for block in self._collector.rest():
            self._stage(block)
        return self._staged

    def _stage(self, block: Block) -> None:
        key, name = (self._partition, self._index), f"{self._name}-{self._index:05d}"
        try:
            report, totals, losses, likeness = _stage_block(self._job, block, key, self._folder / name)
        except OverlongError as error:
            place = self._places.of(int(block.documents.segments["doc"][error.document]))
            raise InputError(
                f"{place}: has {error.length} tokens, more than --max-length {self._job.max_length} (--overlong "
                "error); another --overlong splits or truncates it"
            ) from None
        staged = self._staged
        blocks = staged.blocks + [report] * (report.rows > 0)
        self._staged = Held(staged.totals + totals, staged.losses + losses, blocks, staged.likeness + likeness)
        self._index += 1


def load_tokenizer(options: TokenizerOptions) -> tuple[tokenizer.Tokenizer, tokenizer.Ends]:
    """The tokenizer, and what it puts around each document."""
    loaded = tokenizer.load(options.source)
    return loaded, tokenizer.ends_of(loaded, bos=options.bos, eos=options.eos, eos_token=options.eos_token)


def engine_of(options: TokenizerOptions | None) -> tuple[engines.Engine | None, tokenizer.Ends | None, int]:
    """What turns texts to ids, what is put around them, and the vocabulary's size; without a tokenizer no text can."""
    if options is None:
        return None, None, np.iinfo(np.int32).max
    loaded, ends = load_tokenizer(options)
    return engines.make(options.engine, loaded, options.special_in_text), ends, loaded.vocab_size


def watch_of(options: TokenizerOptions | None, seed: int, partition: int) -> engines.Watch | None:
    """What compares the fast engine with the reference while a partition is encoded; None where the reference runs."""
    if options is None or options.engine != "fast":
        return None
    loaded = tokenizer.load(options.source)
    reference = engines.make("hf", loaded, options.special_in_text)
    return engines.Watch(reference, vocab_size=loaded.vocab_size, seed=seed, partition=partition)


def chats_of(
    options: TokenizerOptions | None, chat: ChatOptions | None
) -> tuple[rendering.Rendering | None, ChatEnds | None]:
    """What chats and pairs need to become texts, and then ids with a mask; without a tokenizer they cannot."""
    if options is None or chat is None:
        return None, None
    literal, eos = options.special_in_text == "literal", bool(options.eos or options.eos_token)
    return rendering.prepare(
        chat, tokenizer.load(options.source), literal=literal, add_bos=bool(options.bos), add_eos=eos
    )


class Counts:
    """Empty and checked documents, what chats came to, and the tokens of each slice, added up as batches pass."""

    def __init__(self, tally: Tally) -> None:
        self.empty = self.checked = 0
        self.chats = ChatCounts()
        self.tokens: list[int] = []
        self._tally = tally

    def add(self, batch: Encoded) -> None:
        """The reader is ahead of the batch, so the slices of its records are known."""
        self.empty += batch.empty
        self.checked += batch.checked
        self.chats += batch.chats
        firsts = offsets_of(np.array(self._tally.records, np.int64))[1:]
        bounds = [0, *np.searchsorted(batch.ordinals, firsts).tolist(), len(batch.ordinals)]
        sums = np.diff(batch.offsets[bounds]).tolist()
        self.tokens = [a + b for a, b in zip_longest(self.tokens, sums, fillvalue=0)]


@dataclass(frozen=True)
class Places:
    """Where in the partition's files its records are, for errors. several: a record may be several documents, which are
    what is counted."""

    partition: Partition
    tally: Tally
    several: bool = False

    def of(self, ordinal: int) -> str:
        """The file, and the record's number in it, from 1 (in a slice that begins later: counted from there)."""
        firsts = offsets_of(np.array(self.tally.records, np.int64))
        index = int(np.searchsorted(firsts, ordinal, side="right")) - 1
        piece = self.partition.slices[index]
        if piece.source.format == "packed":
            return f"{piece.source.path}, document {ordinal - int(firsts[index]) + piece.start}"
        after = f" after byte {piece.start}" if piece.start and piece.source.format in ("jsonl", "text") else ""
        noun = "document" if self.several else "record"
        return f"{piece.source.path}, {noun} {ordinal - int(firsts[index]) + 1}{after}"


def counted(
    batches: Iterable[Encoded], counts: Counts, places: Places, vocab_size: int, progress: Progress | None
) -> Iterator[Encoded]:
    """The batches, counted and reported as they pass. Raises InputError at an id beyond the vocabulary."""
    for batch in _placed(batches, places):
        counts.add(batch)
        if len(batch.ids) and batch.ids.max() >= vocab_size:
            at = int(np.argmax(batch.ids >= vocab_size))
            document = int(np.searchsorted(batch.offsets, at, side="right")) - 1
            raise InputError(
                f"{places.of(int(batch.ordinals[document]))}: holds token id {batch.ids[at]}, but the tokenizer's "
                f"vocabulary ends at {vocab_size - 1}; give the tokenizer that made the ids"
            )
        if progress:
            progress(len(batch.ordinals), len(batch.ids))
        yield batch


def _placed(batches: Iterable[Encoded], places: Places) -> Iterator[Encoded]:
    """The batches; a difference between the engines gets its place in the input."""
    try:
        yield from batches
    except engines.DifferenceError as error:
        raise engines.EngineError(f"{places.of(error.document)}: {error.reason}") from error


def plan_block(job: Job, block: Block, rng: np.random.Generator) -> tuple[Plan, Int32Array, Losses, int | None]:
    """The block's rows, where each of its documents ends after truncation, what is lost, and if the strategy knows, how
    many rows no plan can go below.

    Where rows are cut later the plan here is one row a document.
    """
    documents = block.documents
    lengths = documents.segments["length"].copy()
    trained = None
    if documents.trained is not None:
        trained = Trained.of(documents.trained, block.masked, documents.row_offsets)
    kept = overlong.keep(lengths, job.max_length, job.overlong, min_tokens=job.min_tokens, trained=trained)
    pieces = overlong.whole(kept) if job.cut_later else overlong.split(kept, job.max_length)
    strategy = "none" if job.cut_later else job.strategy
    plan, bound = plan_rows(
        strategy,
        _counted(pieces.length, job),
        job.max_length,
        max_segments=job.max_segments,
        rng=rng,
        effort=job.plan_effort,
        seconds=job.plan_seconds,
        traits=None if block.traits is None else block.traits.take(pieces.doc),
        threshold=job.similarity_threshold,
    )
    placed = Plan(pieces.doc[plan.doc], pieces.start[plan.doc], pieces.length[plan.doc], plan.row_offsets)
    return placed, kept.stop, kept.losses, bound


def _counted(lengths: Int32Array, job: Job) -> Int32Array:
    """What segments of these lengths take of a row."""
    return -(-lengths // job.segment_multiple) * job.segment_multiple


def _stage_block(
    job: Job, block: Block, key: tuple[int, int], folder: Path
) -> tuple[BlockReport, Totals, Losses, Likeness]:
    documents = block.documents
    block = replace(block, traits=traits_of(job.strategy, block.traits, documents.tokens, documents.row_offsets))
    plan, stops, losses, bound = plan_block(job, block, generator(job.seed, Stream.TIES, *key))
    if job.order != "plan" and not job.cut_later:
        plan = plan.take_rows(generator(job.seed, Stream.ROWS, *key).permutation(plan.rows))
    digests = write_block(block.documents, plan, stops, folder) if plan.rows else {}
    pieces = np.bincount(plan.doc, minlength=1)
    totals = Totals(
        documents=len(block.documents),
        tokens=len(block.documents.tokens),
        placed_documents=int((pieces > 0).sum()),
        split_documents=int((pieces > 1).sum()),
        max_token_id=int(block.documents.tokens.max(initial=-1)),
        masked_documents=int(block.masked.sum()),
    )
    masked = block.documents.trained is not None
    how = (job.max_length, job.max_segments, job.similarity_threshold, generator(job.seed, Stream.LIKENESS, *key))
    likeness = likeness_of(job.strategy, block.traits, plan, _counted(plan.length, job), *how)
    return BlockReport(folder.name, plan.rows, plan.tokens, masked, digests, bound), totals, losses, likeness


def write_block(source: Rows, plan: Plan, stops: Int32Array, folder: Path) -> dict[str, str]:
    """Gathers the plan's rows, a few at a time, into a staged block. Returns its files' digests."""
    writer = BlockWriter(folder)
    ends = offsets_of(plan.row_lengths())
    first = 0
    while first < plan.rows:
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + CHUNK_TOKENS, side="right")) - 1)
        writer.write(gather(source, plan.take_rows(np.arange(first, last)), stops))
        first = last
    writer.close()
    return writer.digests
