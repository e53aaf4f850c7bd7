"""The summary of a run, for a person; and its facts, for a machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from packer import chat_summary, packings_summary
from packer.manifest import Manifest, TokenizerFacts
from packer.pipeline import Result
from packer.similarity.likeness import Similarity
from packer.windowing import Coverage, Windowing

LABEL_WIDTH = 12


def counted(count: int, noun: str) -> str:
    """1, "shard" -> "1 shard"; 1234, "shard" -> "1,234 shards"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def summary(result: Result) -> str:
    """What came out, what it lost, and how full the rows are."""
    return "\n".join(
        f"{label:<{LABEL_WIDTH}} {text}" if text else label
        for label, text in [*data_lines(result), *_run_lines(result)]
    )


def data_lines(result: Result) -> list[tuple[str, str]]:
    manifest, totals = result.manifest, result.manifest.totals
    window, coverage = manifest.options.window, manifest.coverage
    lines = [
        ("documents", f"{totals.documents:,} with {_tokens(totals.tokens)}{_left_out_records(manifest)}"),
        *(_window_lines(manifest, window, coverage) if window and coverage else _row_lines(manifest)),
        ("lost", _lost(manifest)),
        ("trained", f"{totals.loss_tokens:,} of {_tokens(totals.placed_tokens)}, labels {manifest.layout.labels}"),
    ]
    if manifest.chats:
        lines[1:1] = chat_summary.lines(manifest.chats, manifest.options.chat)
    if held := manifest.validation:
        text = f"{counted(held.totals.documents, 'document')} with {_tokens(held.totals.tokens)}, "
        lost = f"; {_tokens(held.losses.tokens)} lost" if held.losses.tokens else ""
        lines.append(("held out", f"{text}split {held.split}, {counted(held.totals.rows, 'row')}{lost}"))
    if manifest.tokenizer:
        given = manifest.options
        asked = bool(given.bos or given.eos or given.eos_token)
        text = chat_summary.added(manifest.tokenizer.summary, totals.documents, manifest.chats, asked=asked)
        lines.append(("added", text))
    return lines


def _row_lines(manifest: Manifest) -> list[tuple[str, str]]:
    totals = manifest.totals
    cut = f"{counted(totals.split_documents, 'document')} cut"
    if totals.split_documents and totals.masked_documents:
        cut += " (what comes after a cut is trained without what came before it)"
    return [
        ("rows", f"{totals.rows:,} of at most {manifest.max_length:,} tokens, by {manifest.options.strategy}"),
        ("full", f"{manifest.efficiency:.2%}, {_above_bound(manifest)}"),
        *packings_summary.length_lines(manifest.groups),
        ("segments", f"{totals.segments:,}, {manifest.packing_factor:.1f} a row, {cut}"),
        *([("alike", similarity_as_text(manifest.similarity))] if manifest.similarity else []),
        *packings_summary.balance_lines(manifest.balance),
        *packings_summary.epoch_lines(manifest),
    ]


def similarity_as_text(found: Similarity) -> str:
    more = f"{found.rows:,} rows, {found.best_fit_rows:,} by best fit alone"
    if found.in_row is None or found.random is None or found.near_duplicates_per_row is None:
        return more
    near = f"{found.near_duplicates_per_row:.2f} pairs a row above {found.threshold:g}"
    return f"{found.in_row:.3f} in a row, {found.random:.3f} at random, by {found.by}; {near}; {more}"


def _window_lines(manifest: Manifest, window: Windowing, coverage: Coverage) -> list[tuple[str, str]]:
    return [
        ("windows", f"{coverage.windows:,} of at most {manifest.max_length:,} tokens, {windows_as_text(window)}"),
        ("full", f"{manifest.efficiency:.2%}"),
        ("tokens", coverage_as_text(coverage)),
        ("predicted", predictions_as_text(coverage)),
    ]


def windows_as_text(window: Windowing) -> str:
    where = "each document" if window.scope == "document" else "the corpus as one stream"
    masked = ", overlap masked" if window.mask_overlap else ""
    return f"every {window.stride:,} over {where}, tail {window.tail}{masked}"


def coverage_as_text(coverage: Coverage) -> str:
    return (
        f"{coverage.tokens:,} in windows, {coverage.distinct_tokens:,} distinct: "
        f"each {coverage.duplication:.2f} times; {coverage.unseen_tokens:,} in no window"
    )


def predictions_as_text(coverage: Coverage) -> str:
    least, most = coverage.predictions_min, coverage.predictions_max
    often = counted(most, "time") if least == most else f"{least:,} to {most:,} times"
    return f"{counted(coverage.predictions, 'label')}; each token {often}, {coverage.predictions_mean:.2f} on average"


def _above_bound(manifest: Manifest) -> str:
    if manifest.lp_bound is not None:
        above = manifest.totals.rows - manifest.lp_bound
        bound = f"the linear program's bound of {manifest.lp_bound:,}"
        return f"{counted(above, 'row')} above {bound}" if above else f"as few rows as can be: {bound}"
    above = manifest.totals.rows - manifest.lower_bound
    return f"{counted(above, 'row')} above the bound of {manifest.lower_bound:,}" if above else "as few rows as can be"


def _tokens(count: int) -> str:
    return f"{count:,} tokens"


def _left_out_records(manifest: Manifest) -> str:
    totals = manifest.totals
    parts = [f"{counted(totals.skipped, 'bad record')} skipped"] if totals.skipped else []
    if totals.empty:
        parts.append(f"{totals.empty:,} empty left out")
    return f" ({', '.join(parts)})" if parts else ""


def _lost(manifest: Manifest) -> str:
    losses = manifest.losses
    reasons = (
        ("truncated", losses.truncated_documents, losses.truncated_tokens, losses.truncated_trained_tokens),
        ("dropped as too long", losses.dropped_documents, losses.dropped_tokens, losses.dropped_trained_tokens),
        ("left out as too short", losses.short_documents, losses.short_tokens, losses.short_trained_tokens),
        (
            "dropped with nothing to train on",
            losses.untrained_documents,
            losses.untrained_tokens,
            losses.untrained_trained_tokens,
        ),
    )
    parts = [
        f"{_tokens(tokens)}{f' ({trained:,} to train)' if trained else ''}: {n:,} documents {what}"
        for what, n, tokens, trained in reasons
        if n
    ]
    if manifest.coverage and manifest.coverage.unseen_tokens:
        whole = manifest.totals.documents - losses.documents - manifest.totals.placed_documents
        parts.append(
            f"{_tokens(manifest.coverage.unseen_tokens)} in no window" + (f", {whole:,} documents whole" * bool(whole))
        )
    return "; ".join(parts) or "nothing: every token is in a row"


def _run_lines(result: Result) -> list[tuple[str, str]]:
    manifest, facts = result.manifest, result.facts
    size = sum(shard.bytes for packing in manifest.epochs for shard in packing.shards)
    count = sum(len(packing.shards) for packing in manifest.epochs)
    speed = f"; {manifest.totals.tokens / max(facts.staging_seconds, 1e-9):,.0f} tokens/s" if not facts.resumed else ""
    lines = [
        (
            "written",
            f"{result.out}: {size / 1e6:,.1f} MB of {manifest.file_format} in {counted(count, 'shard')}",
        ),
        ("time", f"{facts.seconds:.1f} s, of which {facts.finishing_seconds:.1f} s writing{speed}"),
    ]
    lines += packings_summary.trade_lines(facts.trades, manifest.max_length)
    if facts.resumed:
        lines.append(("resumed", f"{facts.resumed:,} of {facts.partitions:,} partitions were done already"))
    if engine := engine_as_text(manifest.tokenizer, facts.engine_note):
        lines.append(("engine", engine))
    for record in manifest.skipped_records[:3]:
        lines.append(("skipped", f"{record.path}, {record.where}: {record.reason}"))
    if facts.left_out:
        named = ", ".join(facts.left_out[:5]) + (" ..." if len(facts.left_out) > 5 else "")
        lines.append(("not read", f"{counted(len(facts.left_out), 'file')}: {named}"))
    return lines


def engine_as_text(tokenizer: TokenizerFacts | None, note: str | None) -> str | None:
    """What computed the ids, where that is not simply the reference."""
    if tokenizer is None or (tokenizer.engine == "hf" and note is None):
        return None
    checked = counted(tokenizer.checked_documents, "document")
    return tokenizer.engine_version + (f" ({note})" if note else f"; {checked} compared with tokenizers, all equal")


def facts(result: Result) -> dict[str, Any]:
    """The run's facts, with the manifest's figures, as JSON values."""
    manifest = result.manifest
    return {
        "out": str(result.out),
        **asdict(result.facts),
        "totals": asdict(manifest.totals),
        "losses": asdict(manifest.losses),
        "chats": asdict(manifest.chats) if manifest.chats else None,
        "chat": manifest.options.chat,
        "coverage": asdict(manifest.coverage) if manifest.coverage else None,
        "efficiency": manifest.efficiency,
        "lower_bound": manifest.lower_bound,
        "lp_bound": manifest.lp_bound,
        "packing_factor": manifest.packing_factor,
        "shards": len(manifest.shards),
        "groups": [asdict(group) for group in manifest.groups],
        "balance": asdict(manifest.balance) if manifest.balance else None,
        "further_epochs": [asdict(epoch) for epoch in manifest.further_epochs],
        "validation": asdict(manifest.validation) if manifest.validation else None,
        "similarity": asdict(manifest.similarity) if manifest.similarity else None,
    }
