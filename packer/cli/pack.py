"""`packer pack`."""

from __future__ import annotations

from typing import Any

import click

from packer.cli.options import (
    Number,
    chat_options,
    data_options,
    input_options,
    labels_option,
    output_options,
    run_options,
    tokenizer_options,
)
from packer.cli.output import make
from packer.cli.packings import balance_options, packings_options, settle_packings
from packer.cli.strategies import settle_strategy, strategy_options
from packer.packing import OVERLONG
from packer.remote import Place
from packer.schema import BOUNDARIES, VALIDATION


@click.command(short_help="Pack documents into full training rows.")
@data_options
@click.option(
    "--max-length",
    type=click.IntRange(1, 2**31 - 1),
    required=True,
    multiple=True,
    metavar="N",
    help="Tokens a row holds. Given several times: a document goes to the shortest rows that hold it.",
)
@strategy_options
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
    type=Number(0, 1, min_open=True, max_open=True),
    metavar="R",
    help="Hold out this part of the documents, by a hash of their tokens, as a second split, one document a row.",
)
@labels_option("aligned")
@click.option(
    "--boundaries", type=click.Choice(BOUNDARIES), default="document", show_default=True, help="What attends."
)
@output_options
@packings_options
@balance_options
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
    """Options that depend on one another."""
    settle_strategy(values)
    settle_packings(values)
    if values["validation"] and values["split"] == VALIDATION:
        raise click.UsageError("--validation makes a split of that name: give another --split")
    multiple = values["segment_multiple"]
    for length in values["lengths"] or (values["max_length"],):
        if length % multiple:
            raise click.UsageError(f"--max-length {length} is no multiple of --segment-multiple {multiple}")
    if values["strategy"] == "wrapped" and multiple > 1:
        raise click.UsageError("--segment-multiple leaves room in rows, and --strategy wrapped leaves none")
    if values["strategy"] == "wrapped" and values["max_segments"]:
        raise click.UsageError("--max-segments cannot hold for --strategy wrapped, which fills rows whatever they hold")
