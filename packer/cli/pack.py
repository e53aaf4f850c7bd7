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
from packer.cli.packings import balance_options, packings_options
from packer.packing import OVERLONG, STRATEGIES
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
@click.option(
    "--strategy",
    type=click.Choice([*STRATEGIES, "bfd_split"]),
    default="bfd",
    show_default=True,
    help="; ".join(f"{name}: {text}" for name, text in STRATEGIES.items()),
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
    """Options that depend on one another. `bfd_split` is what TRL calls bfd with long documents split."""
    if values["strategy"] == "bfd_split":
        if values["overlong"] not in (None, "split"):
            raise click.UsageError(
                f"--strategy bfd_split splits long documents, but --overlong is {values['overlong']}"
            )
        values["strategy"], values["overlong"] = "bfd", "split"
    if values["validation"] and values["split"] == VALIDATION:
        raise click.UsageError("--validation makes a split of that name: give another --split")
    multiple, lengths = values["segment_multiple"], sorted({*values["max_length"]})
    for length in lengths:
        if length % multiple:
            raise click.UsageError(f"--max-length {length} is no multiple of --segment-multiple {multiple}")
    values["max_length"], values["lengths"] = lengths[-1], tuple(lengths) if len(lengths) > 1 else ()
    if len(lengths) > 1 and values["strategy"] == "wrapped":
        raise click.UsageError("--strategy wrapped fills rows of one length: give one --max-length")
    if values["equalize"] and (values["strategy"] != "bfd" or len(lengths) > 1):
        raise click.UsageError("--equalize is for --strategy bfd with one --max-length")
    if values["epochs"] > 1 and values["strategy"] in ("wrapped", "none"):
        raise click.UsageError(f"--strategy {values['strategy']} makes the same rows each time: leave out --epochs")
    if values["strategy"] == "wrapped" and multiple > 1:
        raise click.UsageError("--segment-multiple leaves room in rows, and --strategy wrapped leaves none")
    if values["strategy"] == "wrapped" and values["max_segments"]:
        raise click.UsageError("--max-segments cannot hold for --strategy wrapped, which fills rows whatever they hold")
