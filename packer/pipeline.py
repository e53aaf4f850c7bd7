"""The whole flow of a packing run, from INPUT to a finished data set.

    find sources ─▶ cut into partitions ─▶ stage each (packer.stage) ─▶ finish (packer.finish) ─▶ manifest ─▶ publish

A partition depends on the inputs and the options only, so the same run gives the same bytes however it is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from time import perf_counter

import numpy
import pyarrow
import tokenizers

from packer import __version__, attempts, corpus, cutting, engines, finish, metrics, stage, tokenizer
from packer.chat import Renderer
from packer.commit import Output
from packer.conversation import ChatCounts
from packer.corpus import Partition
from packer.corpus.documents import KEPT_REASONS
from packer.errors import InputError, UsageError
from packer.executors.local import ordered_map
from packer.manifest import InputFile, Manifest, Options, TokenizerFacts, Totals
from packer.packing.overlong import Losses
from packer.rendering import describe
from packer.schema import Layout, Skipped
from packer.shards import arrow_schema
from packer.stage import Job, PartitionReport, Progress


@dataclass(frozen=True)
class Facts:
    """What a run was like; never part of the data set. Seconds of wall time.

    Before staging proper: loading (finding the sources, loading the tokenizer), the fast engine's trial, and waiting
    for its native code to load, during which the sample is encoded already. Sampling is counted over threads."""

    seconds: float
    staging_seconds: float  # all before finishing
    finishing_seconds: float
    left_out: list[str]  # files of folders that were not read
    engine_note: str | None = None  # why the tokenizer's engine is not the one that might be expected
    loading_seconds: float = 0.0
    trial_seconds: float = 0.0
    waiting_seconds: float = 0.0
    sampling_seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    out: Path
    manifest: Manifest
    facts: Facts


def pack(
    inputs: Sequence[str],
    out: Path,
    job: Job,
    layout: Layout,
    output: finish.Output,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Packs INPUT into a data set at `out`. Raises a PackerError, and then leaves `out` as it was."""
    began = perf_counter()
    if job.tokenizer is not None:
        tokenizer.find(job.tokenizer.source)  # a wrong name should show before anything is read
    found = corpus.find_sources(inputs, job.read, out=str(out))
    if job.chat and any(source.schema and source.schema.kind == "messages" for source in found.sources):
        Renderer(job.chat).facts()  # and so should a wrong template
    options, choice = job.tokenizer, None
    if options is not None:
        options, choice = attempts.choose(options, found.sources, job.read.limit)
    start = _Start(began, job.tokenizer, choice)
    partitions = corpus.partition(found.sources, job.read)
    target = Output(out, overwrite=overwrite)
    target.open()
    try:
        reports, choice = attempts.run(
            lambda chosen: _stage_all(replace(job, tokenizer=chosen), partitions, target.folder, progress),
            options,
            choice,
            found.sources,
            target.clear,
        )
        staged = perf_counter()
        facts = _tokenizer_facts(job, choice, sum(report.checked for report in reports))
        manifest = _finish(job, layout, output, partitions, reports, facts, target.folder)
        target.publish(manifest.to_json())
    except BaseException:
        target.abandon()
        raise
    ended = perf_counter()
    return Result(
        out,
        manifest,
        Facts(
            ended - began,
            staged - began,
            ended - staged,
            found.left_out,
            choice.note if choice else None,
            start.loading,
            start.trial,
            start.waiting,
            sum(report.sampling_seconds for report in reports),
        ),
    )


class _Start:
    """Seconds that the beginning of a run took, by what they were for. Made when the engine has been chosen."""

    def __init__(self, began: float, options: stage.TokenizerOptions | None, choice: engines.Choice | None) -> None:
        self._chosen = perf_counter()
        self._loaded: list[float] = []
        self.trial = choice.trial_seconds if choice else 0.0
        self.loading = self._chosen - began - self.trial
        if options is not None and choice is not None and choice.name == "fast":
            engines.when_loaded(tokenizer.find(options.source), lambda: self._loaded.append(perf_counter()))

    @property
    def waiting(self) -> float:
        return max(0.0, self._loaded[0] - self._chosen) if self._loaded else 0.0


def window(
    inputs: Sequence[str],
    out: Path,
    job: Job,
    layout: Layout,
    output: finish.Output,
    *,
    overwrite: bool = False,
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
    return pack(inputs, out, job, layout, output, overwrite=overwrite, progress=progress)


def _stage_all(
    job: Job, partitions: Sequence[Partition], folder: Path, progress: Progress | None
) -> list[PartitionReport]:
    def work(partition: Partition, limit: int | None = None) -> PartitionReport:
        own = job if limit is None else replace(job, read=replace(job.read, limit=limit))
        return stage.stage(own, partition, finish.partition_folder(folder, partition.index), progress)

    left = job.read.limit
    if left is None:
        return list(ordered_map(work, partitions))
    reports: list[PartitionReport] = []
    for partition in partitions:  # one after another: each gets what those before it have left
        if left:
            reports.append(work(partition, left))
            left -= reports[-1].totals.records
    return reports


def _finish(
    job: Job,
    layout: Layout,
    output: finish.Output,
    partitions: Sequence[Partition],
    reports: Sequence[PartitionReport],
    facts: TokenizerFacts | None,
    folder: Path,
) -> Manifest:
    totals = sum((report.totals for report in reports), Totals())
    losses = sum((report.losses for report in reports), Losses())
    chats = sum((report.chats for report in reports), ChatCounts())
    blocks = finish.staged_blocks(folder, reports)
    masked = totals.masked_documents > 0 or (job.window is not None and job.window.mask_overlap)
    layout = replace(layout, masked=masked)
    coverage = None
    if job.cut_later and blocks:
        cut = cutting.cut(blocks, job.max_length, job.window, job.seed, shuffle=job.order != "plan")
        blocks, coverage = cut.blocks, cut.coverage if job.window else None
        totals = replace(totals, placed_documents=cut.placed_documents, split_documents=cut.split_documents)
    if not blocks:
        raise InputError(_nothing(job, totals, losses))
    if job.strategy == "wrapped" and job.overlong is None and layout.masked and layout.boundaries == "row":
        raise UsageError(
            "--strategy wrapped --boundaries row on records with a loss mask needs --overlong split or truncate: "
            "otherwise the rows do not say where a segment ends"
        )
    described = {"max_length": str(job.max_length), "tokenizer": facts.fingerprint if facts else "none"}
    schema = arrow_schema(layout, described)
    shards, written = finish.write_shards(folder, blocks, layout, output, schema, job.seed, job.order)
    totals += written
    return Manifest(
        command="window" if job.window else "pack",
        split=output.split,
        file_format=output.file_format,
        compression=output.compression,
        layout=layout,
        max_length=job.max_length,
        seed=job.seed,
        options=_options(job, output, chats),
        versions=_versions(chats),
        tokenizer=facts,
        inputs=_inputs(partitions, reports),
        totals=totals,
        losses=losses,
        chats=chats if chats.documents else None,
        coverage=coverage,
        skipped_records=_skipped(reports),
        lower_bound=metrics.lower_bound(totals.placed_tokens, job.max_length),
        efficiency=metrics.efficiency(totals.placed_tokens, totals.rows, job.max_length),
        packing_factor=totals.segments / totals.rows,
        shards=shards,
    )


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
        rows_per_shard=output.rows_per_shard,
        window=job.window,
        chat=describe(job.chat, chats) if job.chat and chats.documents else None,
    )


def _versions(chats: ChatCounts) -> dict[str, str]:
    found = {
        "packer": __version__,
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "tokenizers": tokenizers.__version__,
    }
    if chats.documents > chats.pairs:  # a template was rendered
        found |= {name: version(name) for name in ("transformers", "jinja2")}
    return found


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
        files.append(InputFile(source.path, first_doc, documents, sum(n for _, _, n in counts), source.commit))
        first_doc += documents
    return files


def _skipped(reports: Sequence[PartitionReport]) -> list[Skipped]:
    return [one for report in reports for one in report.skipped][:KEPT_REASONS]
