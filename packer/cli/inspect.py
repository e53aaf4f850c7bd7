"""`packer inspect`."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.cli.options import PLACE, contains, run_options
from packer.remote import Place, shown_in

if TYPE_CHECKING:
    from packer.inspection import Vocabulary
    from packer.manifest import Manifest


def _ranges(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[range]:
    """K is one row, K:L are those up to but without L."""
    ranges = []
    for value in values:
        match = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", value, re.ASCII)
        if not match:
            raise click.BadParameter(f"{value!r} is neither a number nor a range such as 4:8")
        first = int(match[1])
        ranges.append(range(first, first + 1 if match[2] is None else int(match[2])))
        if not ranges[-1]:
            raise click.BadParameter(f"{value!r} holds no row")
    return ranges


@click.command(short_help="Show what is in a data set, and rows of it.")
@click.argument("out", type=PLACE)
@click.option(
    "--row",
    "rows",
    callback=_ranges,
    multiple=True,
    default=["0"],
    show_default="0",
    metavar="K|K:L",
    help="Counted over all shards; K:L is K up to L - 1; may be given several times.",
)
@click.option("--decode", is_flag=True, help="Show text, trained tokens and control tokens told apart.")
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the rows as a page to share, as text if there is a tokenizer, instead of showing them here.",
)
@click.option("--tokenizer", metavar="T", help="Default: the one named in the manifest.")
@click.option("--split", metavar="NAME", help="Of which row K is; default: the main one.")
@click.option("--epoch", type=click.IntRange(0), default=0, help="Of several packings, the one that this epoch reads.")
@run_options
def inspect(
    out: Place,
    split: str | None,
    epoch: int,
    rows: list[range],
    decode: bool,
    html_file: Path | None,
    tokenizer: str | None,
    quiet: bool,
) -> None:
    """Show the totals of the data set OUT, then row K: its segments, where they come from, what is trained."""
    from packer import inspection, manifest

    facts = manifest.load(out)
    shown = facts.of(split).at(epoch)
    numbers = inspection.numbers(out, shown, rows)
    if html_file:
        _check(html_file, out)
        decode = facts.tokenizer is not None or tokenizer is not None or decode
    vocabulary = inspection.vocabulary(facts, tokenizer) if decode else None
    if not quiet:
        for line in inspection.totals_lines(out, facts):
            click.echo(line)
        click.echo()
    if html_file:
        _write(html_file, out, shown, numbers, vocabulary, quiet)
    else:
        _show(out, shown, numbers, vocabulary)


def _check(file: Path, out: Place) -> None:
    """What is wrong with the file should show before anything is read."""
    from packer import page

    if contains(out, file) or not file.absolute().parent.is_dir():
        raise click.UsageError(f"--html {file}: must be in a folder that exists, and not in OUT")
    page.require(charts=False)


def _show(out: Place, facts: Manifest, numbers: list[int], vocabulary: Vocabulary | None) -> None:
    from rich.console import Console

    from packer import inspection
    from packer.inspection.screen import Screen

    screen = Screen(Console(highlight=False), vocabulary)
    size_of = {shard.path: part.max_length for part in facts.by_length for shard in part.shards}
    for row in inspection.read_rows(out, facts, numbers):
        for line in screen.row(row, size_of[row.shard]):
            click.echo(line, color=screen.coloured)
        click.echo()
    click.echo(screen.legend(), color=screen.coloured)


def _write(
    file: Path, out: Place, facts: Manifest, numbers: list[int], vocabulary: Vocabulary | None, quiet: bool
) -> None:
    from packer import inspection
    from packer.page import rows as page

    text = page.render(
        str(out),
        facts,
        inspection.read_rows(out, facts, numbers),
        vocabulary,
        shown_in(shlex.join(["packer", *sys.argv[1:]]), *sys.argv[1:]),
    )
    file.write_text(text, encoding="utf-8")
    if not quiet:
        click.echo(f"{len(numbers)} {'row' if len(numbers) == 1 else 'rows'} written to {file}")
