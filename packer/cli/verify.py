"""`packer verify`."""

from __future__ import annotations

import click

from packer.cli.options import PLACE, run_options
from packer.remote import Place


@click.command(short_help="Prove a data set right, or name the shard, row and rule that is wrong.")
@click.argument("out", type=PLACE)
@click.argument("inputs", metavar="[INPUT...]", nargs=-1)
@click.option("--tokenizer", metavar="T", help="Default: the one named in the manifest.")
@click.option("--chat-template", "template", metavar="FILE|NAME", help="Default: the one named in the manifest.")
@run_options
def verify(out: Place, inputs: tuple[str, ...], tokenizer: str | None, template: str | None, quiet: bool) -> None:
    """Check every rule of the format on the data set OUT; with INPUT also every token, tokenized again."""
    from packer.manifest import Totals
    from packer.report import counted
    from packer.verify import verify as run

    for name, value in (("--tokenizer", tokenizer), ("--chat-template", template)):
        if value and not inputs:
            raise click.UsageError(f"{name} is for comparing with INPUT; name the INPUT too")
    verdict = run(out, inputs, tokenizer=tokenizer, template=template)
    if not quiet:
        totals = sum((part.totals for part in verdict.manifest.parts), Totals())
        shards = counted(len(verdict.manifest.all_shards), "shard")
        packings = len(verdict.manifest.epochs)
        times = f", each document once in each of {packings} packings" if packings > 1 else ""
        click.echo(
            f"right: {shards}, {totals.rows:,} rows, {totals.segments:,} segments, "
            f"{totals.placed_tokens:,} tokens; every checksum, row, document and total holds{times}"
        )
        if verdict.tokens_compared is not None:
            click.echo(f"equal: {verdict.tokens_compared:,} tokens compared with INPUT, tokenized again")
