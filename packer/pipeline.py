"""The whole flow of a packing run, from INPUT to a finished data set.

    find sources ─▶ cut into partitions ─▶ stage each (packer.running) ─▶ finish (packer.finish) ─▶ manifest ─▶ publish

A partition depends on the inputs and the options only, so the same run gives the same bytes however it is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow

from packer import (
    attempts,
    corpus,
    cutting,
    engines,
    finish,
    identity,
    metrics,
    running,
    stage,
    stored,
    tokenizer,
    upload,
    writing,
)
from packer.conversation import ChatCounts
from packer.corpus import Partition
from packer.corpus.documents import KEPT_REASONS
from packer.counting import Progress
from packer.errors import EmptyError, UsageError
from packer.executors import Execution
from packer.job import Job, PartitionReport
from packer.manifest import InputFile, Manifest, Options, Split, TokenizerFacts, Totals
from packer.packing.equalized import summed
from packer.packing.overlong import Losses
from packer.remote import Place, place
from packer.rendering import describe
from packer.run_facts import Facts, Start
from packer.schema import VALIDATION, Layout, Skipped
from packer.shards import arrow_schema
from packer.similarity.likeness import Likeness, Similarity
from packer.versions import versions

IN_PROCESS = Execution()


@dataclass(frozen=True)
class Result:
    out: Place
    manifest: Manifest
    facts: Facts


def pack(
    inputs: Sequence[str],
    out: Path | str | Place,
    job: Job,
    layout: Layout,
    output: finish.Output,
    *,
    overwrite: bool = False,
    resume: bool = False,
    staging: Path | None = None,
    execution: Execution = IN_PROCESS,
    progress: Progress | None = None,
) -> Result:
    """Packs INPUT into a data set at `out`. Raises a PackerError, and then leaves `out` as it was, but for hidden
    partitions that are done, from which `resume` goes on. `execution` never changes the result.

    staging: where to work while `out` is a URL; by default in the system's temporary folder.
    """
    began = perf_counter()
    out = place(out)
    if job.tokenizer is not None:
        tokenizer.find(job.tokenizer.source)  # a wrong name should show before anything is read
    found = corpus.find_sources(inputs, job.read, out=str(out))
    packed = stored.check(found.sources, job.tokenizer.source if job.tokenizer else None, job.read)
    rendered_by = running.chat_facts(job, found.sources)  # and so should a wrong template
    choice = None
    if job.tokenizer is not None:
        _, choice = attempts.choose(job.tokenizer, found.sources, job.read.limit)
    start = Start(began, job.tokenizer, choice)
    executor = running.executor_for(execution, job, found.sources, resume=resume)
    target = upload.output(out, overwrite=overwrite, resume=resume, staging=staging)
    partitions: list[Partition] = []
    with running.session(target, partitions):
        sources = stored.put_together(found.sources, target.folder.absolute() / stored.FOLDER, job.read)
        partitions += corpus.partition(sources, job.read)
        staged = running.stage_all(job, choice, rendered_by, sources, partitions, target, executor, progress)
        between = perf_counter()
        facts = packed.tokenizer
        if not packed.only:
            facts = _tokenizer_facts(job, staged.choice, sum(report.checked for report in staged.reports)) or facts
        manifest = _finish(job, layout, output, partitions, staged.reports, facts, packed, target.folder)
        identity.require_unchanged(found.sources)
        manifest = target.publish(manifest)
    ended = perf_counter()
    note = staged.choice.note if staged.choice else None
    times = (ended - began, between - began, ended - between)
    sampling = sum(report.sampling_seconds for report in staged.reports)
    facts_of_run = Facts(
        *times,
        found.left_out,
        note,
        len(partitions),
        staged.resumed,
        start.loading,
        start.trial,
        start.waiting,
        sampling,
        reduce(summed, [report.trades for report in staged.reports], []),
    )
    return Result(out, manifest, facts_of_run)


def window(
    inputs: Sequence[str],
    out: Path | str | Place,
    job: Job,
    layout: Layout,
    output: finish.Output,
    *,
    overwrite: bool = False,
    resume: bool = False,
    staging: Path | None = None,
    execution: Execution = IN_PROCESS,
    progress: Progress | None = None,
) -> Result:
    """Cuts INPUT into windows as `job.window` says, one a row, each one attention sequence. Otherwise as `pack`."""
    if job.window is None:
        raise UsageError("window needs a stride")
    if job.window.stride > job.max_length and not job.window.allow_gaps:
        raise UsageError(
            f"--stride {job.window.stride} is above --context-size {job.max_length}: the tokens between two windows "
            "would be in none of them; --allow-gaps if that is meant"
        )
    layout = replace(layout, boundaries="row" if job.window.scope == "corpus" else "document")
    how: dict[str, Any] = {"overwrite": overwrite, "resume": resume, "staging": staging}
    return pack(inputs, out, job, layout, output, **how, execution=execution, progress=progress)


def _finish(
    job: Job,
    layout: Layout,
    output: finish.Output,
    partitions: Sequence[Partition],
    reports: Sequence[PartitionReport],
    facts: TokenizerFacts | None,
    packed: stored.Stored,
    folder: Path,
) -> Manifest:
    totals = sum((report.totals for report in reports), Totals())
    losses = sum((report.losses for report in reports), Losses())
    chats = sum((report.chats for report in reports), ChatCounts())
    blocks = finish.staged_blocks(folder, reports)
    masked = _masked_documents(reports) > 0 or (job.window is not None and job.window.mask_overlap)
    layout = replace(layout, masked=masked)
    coverage = None
    if job.cut_later and blocks:
        cut = cutting.cut(blocks, job.max_length, job.window, job.seed, shuffle=job.order != "plan")
        blocks, coverage = cut.blocks, cut.coverage if job.window else None
        totals = replace(totals, placed_documents=cut.placed_documents, split_documents=cut.split_documents)
    if not blocks:
        if not totals.documents and (held_documents := sum(report.held.totals.documents for report in reports)):
            raise EmptyError(f"--validation {job.validation}: all of {held_documents} documents are held out")
        raise EmptyError(_nothing(job, totals, losses))
    if job.strategy == "wrapped" and job.overlong is None and layout.masked and layout.boundaries == "row":
        raise UsageError(
            "--strategy wrapped --boundaries row on records with a loss mask needs --overlong split or truncate: "
            "otherwise the rows do not say where a segment ends"
        )
    described = {"tokenizer": facts.fingerprint if facts else "none"}
    packings = writing.write(folder, blocks, layout, output, described, job)
    first = packings[0]
    further = [one.as_epoch(writing.split_of(output.split, n), totals) for n, one in enumerate(packings[1:], 1)]
    totals += first.totals
    held = None
    if job.validation is not None:
        schema = arrow_schema(layout, {"max_length": str(job.max_length), **described})
        held = _held(job, job.validation, layout, output, reports, schema, folder)
    inputs = _inputs(partitions, reports)
    return Manifest(
        command="window" if job.window else "pack",
        split=output.split,
        file_format=output.file_format,
        compression=output.compression,
        layout=layout,
        max_length=job.max_length,
        seed=job.seed,
        options=_options(job, output, chats),
        versions=versions(rendered=chats.documents > chats.pairs, strategy=job.strategy),
        tokenizer=facts,
        inputs=inputs,
        origin=stored.complete(packed, partitions, [file.first_doc for file in inputs]),
        partitions=[report.totals.records for report in reports],
        totals=totals,
        losses=losses,
        chats=chats if chats.documents else None,
        coverage=coverage,
        skipped_records=_skipped(reports),
        lower_bound=first.lower_bound,
        lp_bound=_lp_bound(reports),
        efficiency=first.efficiency,
        packing_factor=first.packing_factor,
        shards=first.shards,
        validation=held,
        groups=first.groups,
        balance=first.balance,
        further_epochs=further,
        similarity=_similarity(job, reports),
    )


def _held(
    job: Job,
    ratio: float,
    layout: Layout,
    output: finish.Output,
    reports: Sequence[PartitionReport],
    schema: pyarrow.Schema,
    folder: Path,
) -> Split:
    """Writes the documents that are held out as a second split."""
    totals = sum((report.held.totals for report in reports), Totals())
    losses = sum((report.held.losses for report in reports), Losses())
    blocks = finish.staged_blocks(folder, reports, held=True)
    if not blocks:
        documents = sum(report.totals.documents for report in reports) + totals.documents
        raise EmptyError(
            f"--validation {ratio}: nothing is held out of {documents} documents; give a larger part, or more documents"
        )
    output = replace(output, split=VALIDATION, balance=None)
    written = finish.write_shards(folder, blocks, layout, output, schema, job.seed, "plan")
    totals += written.totals
    return Split(
        split=VALIDATION,
        ratio=ratio,
        totals=totals,
        losses=losses,
        lower_bound=metrics.lower_bound(totals.placed_tokens, job.max_length),
        efficiency=metrics.efficiency(totals.placed_tokens, totals.rows, job.max_length),
        packing_factor=totals.segments / totals.rows,
        shards=written.shards,
    )


def _lp_bound(reports: Sequence[PartitionReport]) -> int | None:
    """Of all blocks, each planned for itself; None where the strategy knows none."""
    bounds = [block.lp_bound for report in reports for block in report.blocks if block.lp_bound is not None]
    return sum(bounds) if bounds else None


def _similarity(job: Job, reports: Sequence[PartitionReport]) -> Similarity | None:
    if job.strategy != "semantic":
        return None
    embedding, group = job.read.embedding_field, job.read.group_field
    by = f"field {embedding}" if embedding else "groups alone" if group else "TF-IDF of the tokens"
    return Similarity.of(sum((one.likeness for one in reports), Likeness()), by, job.similarity_threshold)


def _masked_documents(reports: Sequence[PartitionReport]) -> int:
    return sum(report.totals.masked_documents + report.held.totals.masked_documents for report in reports)


def _tokenizer_facts(job: Job, choice: engines.Choice | None, checked: int) -> TokenizerFacts | None:
    if job.tokenizer is None or choice is None:
        return None
    loaded, ends = stage.load_tokenizer(job.tokenizer)
    return TokenizerFacts(
        source=loaded.source,
        fingerprint=loaded.fingerprint,
        vocab_size=loaded.vocab_size,
        prefix=list(ends.prefix),
        suffix=list(ends.suffix),
        summary=ends.summary,
        engine=choice.name,
        engine_version=choice.version,
        checked_documents=checked,
    )


def _nothing(job: Job, totals: Totals, losses: Losses) -> str:
    if not totals.documents:
        return (
            f"there is nothing to pack: INPUT holds no document ({totals.records} records, of which {totals.empty} are "
            f"empty and {totals.skipped} were skipped)"
        )
    if (left := totals.documents - losses.documents) and job.window:
        return (
            f"there is no window: none of {left} documents is long enough for --context-size {job.max_length} with "
            f"--tail {job.window.tail} ({losses.documents} more were left out)"
        )
    return (
        f"there is nothing to pack: none of {totals.documents} documents is left ({losses.dropped_documents} too long, "
        f"{losses.short_documents} too short, {losses.untrained_documents} with nothing to train on)"
    )


def _options(job: Job, output: finish.Output, chats: ChatCounts) -> Options:
    ends = job.tokenizer
    return Options(
        read=asdict(job.read),
        bos=ends.bos if ends else None,
        eos=ends.eos if ends else None,
        eos_token=ends.eos_token if ends else None,
        special_in_text=ends.special_in_text if ends else None,
        strategy=job.strategy,
        overlong=job.overlong,
        min_tokens=job.min_tokens,
        max_segments=job.max_segments,
        segment_multiple=job.segment_multiple,
        order=job.order,
        block_tokens=job.block_tokens,
        plan_effort=job.plan_effort,
        rows_per_shard=output.rows_per_shard,
        window=job.window,
        chat=describe(job.chat, chats) if job.chat and chats.documents else None,
        gaps=job.gaps if job.lengths else None,
        equalize=job.equalize,
    )


def _inputs(partitions: Sequence[Partition], reports: Sequence[PartitionReport]) -> list[InputFile]:
    """One entry a source, though it may have been read in several slices."""
    slices = [
        (part.source, records, tokens)
        for partition, report in zip(partitions, reports, strict=False)  # --limit may end before the last
        for part, records, tokens in zip(partition.slices, report.records, report.tokens, strict=True)
    ]
    files = []
    first_doc = 0
    for source, group in groupby(slices, key=lambda item: item[0]):
        counts = list(group)
        documents = sum(records for _, records, _ in counts)
        tokens = sum(n for _, _, n in counts)
        size = source.size if source.remote else None
        files.append(InputFile(source.path, first_doc, documents, tokens, source.commit, size, source.etag))
        first_doc += documents
    return files


def _skipped(reports: Sequence[PartitionReport]) -> list[Skipped]:
    return [one for report in reports for one in report.skipped][:KEPT_REASONS]
