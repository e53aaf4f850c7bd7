"""One partition, from its records to staged blocks: a function of the job and the partition, and of nothing else.

    read ─▶ encode ─▶ collect a block ─▶ plan ─▶ gather rows in their block's final order ─▶ staging files
                                      └─ behind, while the next block is read and encoded

A block is the bounded set of documents that is planned at once. Planning far more documents at once than a batch of
the reader is what makes rows full: at a thousand documents a plan, 0.25% (2k) to 2.6% (32k) of rows are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from packer import engines, holdout, rendering, tokenizer
from packer.blocks import Block, Collector
from packer.chat import ChatOptions
from packer.corpus import Partition, PartitionReader
from packer.counting import Counts, Places, Progress, counted
from packer.encoding import ChatEnds, Encoded, encode
from packer.errors import InputError
from packer.interleave import Stream, generator
from packer.job import BlockReport, Held, Job, PartitionReport, TokenizerOptions
from packer.manifest import Totals
from packer.packing import by_length, equalized, overlong, varied
from packer.packing.equalized import Trade
from packer.packing.overlong import Kept, Losses, OverlongError, Pieces, Trained
from packer.plan import Int32Array, Plan
from packer.planning import plan_rows, strategy_of
from packer.relating import likeness_of, traits_of
from packer.similarity.likeness import Likeness
from packer.staging import sync, write_block
from packer.threads import Behind

AHEAD = 0.25  # of a block, collected while the one before it is not written yet


def stage(
    job: Job, partition: Partition, folder: Path, behind: Behind, progress: Progress | None = None
) -> Callable[[], PartitionReport]:
    """Stages the partition's blocks as folders below a new `folder`, synced: reads and encodes all of it, and leaves
    planning and writing to `behind`. Returns what waits for that, and then gives the report."""
    folder.mkdir()
    engine, ends, vocab_size = engine_of(job.tokenizer)
    render, chat_ends = chats_of(job.tokenizer, job.chat)
    reader = PartitionReader(partition, job.read, render)
    counts = Counts(reader.tally)
    places = Places(partition, reader.tally, several=bool(job.chat and job.chat.turns == "each"))
    watch = watch_of(job.tokenizer, job.seed, partition.index)
    encoded = counted(encode(reader, engine, ends, chat_ends, watch), counts, places, vocab_size, progress)
    main, aside = Stager(job, partition.index, folder, places, behind), None
    if job.validation is not None:
        held_job = replace(job, strategy="none", window=None, order="plan", lengths=(), epochs=1, equalize=None)
        aside = Stager(held_job, partition.index, folder, places, behind, "held")
    for batch in encoded:
        if aside is not None and job.validation is not None:
            batch, held = holdout.parted(batch, job.validation, job.seed)
            aside.add(held)
        main.add(batch)
    if render:
        render.check(counts.chats)
    main.end()
    if aside is not None:
        aside.end()

    def report() -> PartitionReport:
        kept, held_out = main.staged(), aside.staged() if aside else Held()
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
            kept.trades,
            kept.likeness,
        )

    return report


class Stager:
    """Documents on their way to staged blocks, named after `name` and their number. One block at most is with `behind`,
    and the next one is then collected up to a part only, so that memory is bounded by little more than a block."""

    def __init__(
        self, job: Job, partition: int, folder: Path, places: Places, behind: Behind, name: str = "block"
    ) -> None:
        self._job, self._partition, self._folder, self._places, self._name = job, partition, folder, places, name
        self._collector = Collector(job.block_tokens)
        self._behind = behind
        self._given: list[Future[Held]] = []

    def add(self, batch: Encoded) -> None:
        self._behind.look()
        for block in self._collector.add(batch):
            self._give(block)
        if self._collector.tokens > self._job.block_tokens * AHEAD:
            self._behind.wait()

    def end(self) -> None:
        """No more documents come."""
        for block in self._collector.rest():
            self._give(block)

    def staged(self) -> Held:
        """What was staged, when it is. Raises what was wrong with it."""
        return sum((held.result() for held in self._given), Held())

    def _give(self, block: Block) -> None:
        self._behind.wait()
        self._given.append(self._behind.give(partial(self._stage, block, len(self._given))))

    def _stage(self, block: Block, index: int) -> Held:
        key, name = (self._partition, index), f"{self._name}-{index:05d}"
        try:
            return _stage_block(self._job, block, key, self._folder / name, self._behind.check)
        except OverlongError as error:
            place = self._places.of(int(block.documents.segments["doc"][error.document]))
            raise InputError(
                f"{place}: has {error.length} tokens, more than --max-length {self._job.max_length} (--overlong "
                "error); another --overlong splits or truncates it"
            ) from None


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


def plan_block(job: Job, block: Block, rng: np.random.Generator) -> tuple[Plan, Int32Array, Losses]:
    """The block's rows, where each of its documents ends after truncation, and what is lost.

    Where rows are cut later the plan here is one row a document.
    """
    pieces, kept = _pieces(job, block)
    return _planned(job, block, pieces, 0, rng, None).plans[0], kept.stop, kept.losses


def _pieces(job: Job, block: Block) -> tuple[Pieces, Kept]:
    """What is to be placed."""
    documents = block.documents
    lengths = documents.segments["length"].copy()
    trained = None
    if documents.trained is not None:
        trained = Trained.of(documents.trained, block.masked, documents.row_offsets)
    kept = overlong.keep(lengths, job.max_length, job.overlong, min_tokens=job.min_tokens, trained=trained)
    return overlong.whole(kept) if job.cut_later else overlong.split(kept, job.max_length), kept


@dataclass(frozen=True)
class _Planned:
    """One packing of a block. plans: by row length; trades: what equalizing gives; bound: rows that none can go below,
    where the strategy knows."""

    plans: list[Plan]
    trades: list[Trade] = field(default_factory=list)
    bound: int | None = None


def _planned(
    job: Job, block: Block, pieces: Pieces, epoch: int, rng: np.random.Generator, watch: Callable[[], None] | None
) -> _Planned:
    counted, trades, bound = _counted(pieces.length, job), list[Trade](), None
    effort: dict[str, Any] = {"effort": job.plan_effort, "seconds": job.plan_seconds, "watch": watch}
    how: dict[str, Any] = {"max_segments": job.max_segments, "rng": rng}
    if job.equalize and not epoch:
        plan, trades = equalized.traded(counted, job.max_length, **how)
        plans = [plan]
    elif epoch or job.lengths:
        strategy = strategy_of("equalized" if job.equalize else job.strategy, **effort)
        plans = by_length.pack(
            varied.of(strategy) if epoch else strategy, counted, job.row_lengths, gaps=job.gaps, **how
        )
    else:
        name, traits = "none" if job.cut_later else job.strategy, block.traits and block.traits.take(pieces.doc)
        threshold = job.similarity_threshold
        plan, bound = plan_rows(name, counted, job.max_length, **how, **effort, traits=traits, threshold=threshold)
        plans = [plan]
    placed = [
        Plan(pieces.doc[plan.doc], pieces.start[plan.doc], pieces.length[plan.doc], plan.row_offsets) for plan in plans
    ]
    return _Planned(placed, trades, bound)


def _counted(lengths: Int32Array, job: Job) -> Int32Array:
    """What segments of these lengths take of a row."""
    return -(-lengths // job.segment_multiple) * job.segment_multiple


def _stage_block(job: Job, block: Block, key: tuple[int, int], folder: Path, watch: Callable[[], None]) -> Held:
    """A folder for each packing and row length that has rows, `folder` for the first. watch: called between steps, and
    what it raises ends this."""
    documents = block.documents
    block = replace(block, traits=traits_of(job.strategy, block.traits, documents.tokens, documents.row_offsets))
    pieces, kept = _pieces(job, block)
    reports: list[BlockReport] = []
    trades: list[Trade] = []
    likeness = Likeness()
    placed = np.zeros(len(block.documents), np.int64)
    masked = block.documents.trained is not None
    for epoch in range(job.epochs):
        ties = generator(job.seed, Stream.TIES, *key, *((epoch,) if epoch else ()))
        made = _planned(job, block, pieces, epoch, ties, watch)
        trades += made.trades
        for length, plan in enumerate(made.plans):
            own = (epoch, length) if epoch or length else ()
            if job.order != "plan" and not job.cut_later:
                plan = plan.take_rows(generator(job.seed, Stream.ROWS, *key, *own).permutation(plan.rows))
            if not epoch:
                placed += np.bincount(plan.doc, minlength=len(placed))
            if not plan.rows:
                continue
            watch()
            path = folder.with_name("-".join(map(str, (folder.name, *own))))
            digests = write_block(block.documents, plan, kept.stop, path)
            report = BlockReport(path.name, plan.rows, plan.tokens, masked, digests, epoch, length, made.bound)
            reports.append(report)
            if job.strategy == "semantic":
                rng = generator(job.seed, Stream.LIKENESS, *key)
                how = (job.max_length, job.max_segments, job.similarity_threshold, rng)
                likeness += likeness_of(job.strategy, block.traits, plan, _counted(plan.length, job), *how)
    totals = Totals(
        documents=len(block.documents),
        tokens=len(block.documents.tokens),
        placed_documents=int((placed > 0).sum()),
        split_documents=int((placed > 1).sum()),
        max_token_id=int(block.documents.tokens.max(initial=-1)),
        masked_documents=int(block.masked.sum()),
    )
    return Held(totals, kept.losses, reports, trades, likeness)
