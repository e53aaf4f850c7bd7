"""`packer stats`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer import loading
from packer.cli.options import (
    chat_of,
    chat_options,
    input_options,
    read_of,
    run_options,
    tokenizer_of,
    tokenizer_options,
)
from packer.cli.packings import model_of
from packer.remote import canonical, shown_in
from packer.schema import SCOPES, TAILS

if TYPE_CHECKING:
    from packer.windowing import Windowing

POLICIES = ("split", "truncate", "truncate-left", "drop")


@click.command(short_help="Show lengths, and what padding, truncation and packing would cost.")
@click.argument("inputs", metavar="INPUT...", nargs=-1)
@click.option("--tokenizer", metavar="T", help="A tokenizer.json, a folder that holds one, a URL, or a hub name.")
@click.option(
    "--lengths",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Instead of INPUT: one length a line, or {length: count} as JSON.",
)
@click.option(
    "--max-length",
    "max_lengths",
    type=click.IntRange(1, 2**31 - 1),
    multiple=True,
    metavar="N",
    help="To be priced; may be given several times. Default: 512, 1024, ... 32768.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 2**31 - 1),
    default=8,
    show_default=True,
    metavar="B",
    help="Documents or rows a batch.",
)
@click.option(
    "--tokens-per-batch", type=click.IntRange(1, 2**62), metavar="T", help="Of token-budget batches. Default: B * N."
)
@click.option(
    "--budget",
    type=click.Choice(["padded", "sum"]),
    default="padded",
    show_default=True,
    help="What it bounds: tokens with padding, or laid end to end.",
)
@click.option(
    "--pad-to-multiple-of", type=click.IntRange(1, 2**20), default=1, metavar="M", help="Padded lengths are rounded up."
)
@click.option(
    "--world-size",
    type=click.IntRange(1, 2**20),
    default=1,
    show_default=True,
    metavar="W",
    help="Ranks that share a step.",
)
@click.option(
    "--overlong",
    type=click.Choice(POLICIES),
    help="Documents longer than N. Default: truncate where padded, split where packed.",
)
@click.option("--model", metavar="HIDDEN,LAYERS[,FFN]", help="A transformer's size: adds FLOPs and relative time.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of shuffled orders.")
@click.option("--context-size", type=click.IntRange(1, 2**31 - 1), metavar="N", help="Price windows of N tokens ...")
@click.option("--stride", type=click.IntRange(1), metavar="S", help="... every S tokens, as packer window cuts them.")
@click.option("--scope", type=click.Choice(SCOPES), default="document", show_default=True, help="Of the windows.")
@click.option("--tail", type=click.Choice(TAILS), default="keep", show_default=True, help="Of the windows.")
@click.option("--mask-overlap", is_flag=True, help="Of the windows.")
@click.option("--json", "json_file", metavar="FILE|-", help="Write everything as JSON, to FILE or to stdout.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with plots.")
@input_options
@tokenizer_options
@chat_options
@run_options
def stats(
    inputs: tuple[str, ...],
    tokenizer: str | None,
    lengths: Path | None,
    json_file: str | None,
    html_file: Path | None,
    quiet: bool,
    **values: Any,
) -> None:
    """Tokenize INPUT, and show its lengths and the price of each way of batching it. Writes no shards.

    INPUT as for pack: a file, a folder, a glob, hf:NAME, or - for JSON Lines on stdin. With --lengths nothing is
    tokenized.
    """
    _check_sources(inputs, tokenizer, lengths)
    for path in (Path(json_file) if json_file and json_file != "-" else None, html_file):
        if path and not path.absolute().parent.is_dir():
            raise click.UsageError(f"{path}: its folder does not exist")
        if path and str(path.resolve()) in {canonical(one) for one in (*inputs, str(lengths or "."))}:
            raise click.UsageError(f"{path} is INPUT itself: name another file to write to")
    if html_file:
        from packer import page

        page.require()  # what is missing should show before anything is read
    loading.guess_ahead(tokenizer, inputs, values["engine"])
    from packer import stats as measuring
    from packer.cli.progress import progress_bar
    from packer.pricing import Terms

    read, options, chat = read_of(values), tokenizer_of(tokenizer, values), chat_of(tokenizer, values)
    max_lengths = sorted(set(values.pop("max_lengths"))) or measuring.MAX_LENGTHS
    windows = _windows(values)
    terms = Terms(model=model_of(values.pop("model")), **values)
    if lengths is not None:
        found = measuring.stats_of_lengths(lengths, max_lengths, terms, windows=windows)
    else:
        with progress_bar(quiet) as progress:
            found = measuring.stats(inputs, read, options, max_lengths, terms, progress, windows=windows, chat=chat)
    command = shown_in(shlex.join(["packer", *sys.argv[1:]]), *sys.argv[1:])
    if html_file:
        html_file.write_text(page.render(found, command), encoding="utf-8", errors="backslashreplace")
    if json_file:
        text = json.dumps({**found.to_json(), "command": command}, allow_nan=False)
        if json_file == "-":
            click.echo(text)
        else:
            Path(json_file).write_text(text + "\n", encoding="utf-8")
    if not quiet and json_file != "-":
        from packer import terminal

        click.echo(terminal.render(found))


def _check_sources(inputs: tuple[str, ...], tokenizer: str | None, lengths: Path | None) -> None:
    if lengths is not None and (inputs or tokenizer):
        raise click.UsageError("--lengths stands instead of INPUT and --tokenizer: give one or the other")
    if lengths is None and not inputs:
        raise click.UsageError("give INPUT with --tokenizer, or --lengths FILE")


def _windows(values: dict[str, Any]) -> tuple[int, Windowing] | None:
    """Takes the options of windows out of `values`."""
    from packer.windowing import Windowing

    size, stride = values.pop("context_size"), values.pop("stride")
    chosen = {name: values.pop(name) for name in ("scope", "tail", "mask_overlap")}
    if (size is None) != (stride is None):
        raise click.UsageError("--context-size and --stride together price windows: give both")
    return None if size is None else (size, Windowing(stride, allow_gaps=True, **chosen))
