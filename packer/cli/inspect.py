"""`packer inspect`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from packer.cli.options import run_options


@click.command(short_help="Show what is in a data set, and one row of it.")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--row", type=click.IntRange(0), default=0, show_default=True, metavar="K", help="Counted over all shards."
)
@click.option("--decode", is_flag=True, help="Show text, with untrained tokens told apart.")
@click.option("--tokenizer", metavar="T", help="Default: the one named in the manifest.")
@click.option("--split", metavar="NAME", help="Of which row K is; default: the main one.")
@run_options
def inspect(out: Path, split: str | None, row: int, decode: bool, tokenizer: str | None, quiet: bool) -> None:
    """Show the totals of the data set OUT, then row K: its segments, where they come from, what is trained."""
    from packer import inspection, manifest

    facts = manifest.load(out)
    shown = facts.of(split)
    if not quiet:
        for line in inspection.totals_lines(out, facts):
            click.echo(line)
        click.echo()
    group, place = inspection.find_row(out, shown, row)
    decoder = inspection.decoder(facts, tokenizer) if decode else None
    for line in inspection.show_row(group, place, row, decode=decoder, mark=_mark):
        click.echo(line)
    if not sys.stdout.isatty():
        click.echo("\n[in brackets: not trained]")


def _mark(text: str, trained: bool) -> str:
    """Untrained text is dim on a terminal and in brackets elsewhere."""
    if trained:
        return text
    return click.style(text, dim=True) if sys.stdout.isatty() else f"[{text}]"
