"""`packer pack`."""

from __future__ import annotations

from typing import Any

import click

from packer.cli.options import (
    chat_options,
    data_options,
    input_options,
    labels_option,
    output_options,
    run_options,
    tokenizer_options,
)
from packer.cli.output import make
from packer.packing import OVERLONG, PLAN_EFFORT, STRATEGIES, missing
from packer.remote import Place
from packer.schema import BOUNDARIES, VALIDATION


@click.command(short_help="Pack documents into full training rows.")
@data_options
@click.option("--max-length", type=click.IntRange(1, 2**31 - 1), required=True, metavar="N", help="Tokens a row holds.")
@click.option(
    "--strategy",
    type=click.Choice([*STRATEGIES, "bfd_split"]),
    default="bfd",
    show_default=True,
    help="; ".join(f"{name}: {text}" for name, text in STRATEGIES.items()),
)
@click.option(
    "--plan-effort",
    type=click.IntRange(0),
    metavar="N",
    help="Of optimal: work that planning a block may take, in steps that take about a second; 0: as bfd. Default: 60.",
)
@click.option(
    "--plan-seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Of optimal: stop with an error when planning a block takes longer.",
)
@click.option(
    "--overlong",
    type=click.Choice(OVERLONG),
    help="Documents longer than N; default: split, or truncate where a record has a loss mask.",
)
@click.option("--max-segments", type=click.IntRange(1), metavar="K", help="At most K segments in a row.")
@click.option(
    "--segment-multiple",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="M",
    help="Leave room to pad each segment to a multiple of M, as the reader's segment_multiple does.",
)
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="R",
    help="Hold out this part of the documents, by a hash of their tokens, as a second split, one document a row.",
)
@click.option("--group-field", metavar="F", help="Only documents with the same string or integer in F share a row.")
@click.option(
    "--embedding-field",
    metavar="F",
    help="Field of vectors that --strategy semantic compares documents by; default: TF-IDF of their tokens.",
)
@click.option(
    "--similarity-threshold",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="S",
    help="--strategy semantic keeps documents of more than this cosine similarity apart; default: 0.9.",
)
@labels_option("aligned")
@click.option(
    "--boundaries", type=click.Choice(BOUNDARIES), default="document", show_default=True, help="What attends."
)
@output_options
@input_options
@tokenizer_options
@chat_options
@run_options
def pack(inputs: tuple[str, ...], tokenizer: str | None, out: Place, **values: Any) -> None:
    """Tokenize INPUT and pack its documents into rows of at most N tokens, as shards in OUT.

    INPUT is a file (jsonl, json, parquet, arrow, csv, tsv, text; also compressed), a folder, a glob, a `datasets`
    folder, a packer data set, the URL of any of these in a store (s3://...), hf:NAME[:CONFIG][@SPLIT], or - for JSON
    Lines on stdin.
    """
    _settle(values)
    make("pack", inputs, out, tokenizer, values)


def _settle(values: dict[str, Any]) -> None:
    """Options that depend on one another. `bfd_split` is what TRL calls bfd with long documents split."""
    if values["strategy"] == "bfd_split":
        if values["overlong"] not in (None, "split"):
            raise click.UsageError(
                f"--strategy bfd_split splits long documents, but --overlong is {values['overlong']}"
            )
        values["strategy"], values["overlong"] = "bfd", "split"
    if values["strategy"] == "optimal":
        if reason := missing("optimal"):
            raise click.UsageError(reason)
        values["plan_effort"] = PLAN_EFFORT if values["plan_effort"] is None else values["plan_effort"]
    for name in ("plan_effort", "plan_seconds"):
        if values["strategy"] != "optimal" and values[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --strategy optimal")
    if values["validation"] and values["split"] == VALIDATION:
        raise click.UsageError("--validation makes a split of that name: give another --split")
    multiple = values["segment_multiple"]
    if values["max_length"] % multiple:
        raise click.UsageError(f"--max-length {values['max_length']} is no multiple of --segment-multiple {multiple}")
    if values["strategy"] == "wrapped" and multiple > 1:
        raise click.UsageError("--segment-multiple leaves room in rows, and --strategy wrapped leaves none")
    _settle_traits(values)
    if values["strategy"] == "wrapped" and values["max_segments"]:
        raise click.UsageError("--max-segments cannot hold for --strategy wrapped, which fills rows whatever they hold")


def _settle_traits(values: dict[str, Any]) -> None:
    """What documents are put together by. A threshold that is not given is the job's own."""
    strategy, threshold = values["strategy"], values.pop("similarity_threshold")
    if values["embedding_field"] and strategy != "semantic":
        raise click.UsageError(f"--embedding-field is for --strategy semantic, not for {strategy}")
    if values["group_field"] and strategy in ("wrapped", "optimal"):
        why = "joins all documents" if strategy == "wrapped" else "plans all documents of a block together"
        raise click.UsageError(f"--group-field cannot hold for --strategy {strategy}, which {why}")
    if threshold is not None:
        if strategy != "semantic":
            raise click.UsageError(f"--similarity-threshold is for --strategy semantic, not for {strategy}")
        if values["group_field"] and not values["embedding_field"]:
            raise click.UsageError("--similarity-threshold needs vectors, and with --group-field alone there are none")
        values["similarity_threshold"] = threshold
