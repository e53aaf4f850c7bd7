"""`packer window`."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

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
from packer.remote import Place
from packer.schema import SCOPES, TAILS

SIZE = click.IntRange(1, 2**31 - 1)


@click.command(short_help="Cut documents into overlapping windows, every S tokens.")
@data_options
@click.option("--context-size", type=SIZE, metavar="N", help="Tokens a window holds.")
@click.option("--max-length", type=SIZE, metavar="N", help="The same as --context-size.")
@click.option("--stride", type=click.IntRange(1), metavar="S", help="Tokens from one window's start to the next.")
@click.option("--overlap", type=click.IntRange(0), metavar="K", help="The same as --stride N-K.")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="document",
    show_default=True,
    help="Windows over each document, or over all of them joined into one stream.",
)
@click.option(
    "--tail",
    type=click.Choice(TAILS),
    default="keep",
    show_default=True,
    help="After the last window with all labels: keep what is left as a shorter one, drop it, or align one to the end.",
)
@click.option("--mask-overlap", is_flag=True, help="Train no label that an earlier window already had.")
@click.option("--allow-gaps", is_flag=True, help="Allow S above N: the tokens between windows are in none.")
@labels_option("shifted")
@output_options
@input_options
@tokenizer_options
@chat_options
@run_options
def window(inputs: tuple[str, ...], tokenizer: str | None, out: Place, **values: Any) -> None:
    """Tokenize INPUT and cut it into windows of N tokens every S tokens, one a row, as shards in OUT.

    The labels are the next tokens: a window whose labels are all real needs N + 1 tokens. INPUT is as for packer pack.
    Windows that overlap are stored in the order of the input unless --order says otherwise, for then the files are
    a third as large; packer.torch shuffles them when they are read.
    """
    from packer.windowing import Windowing

    size = _one_of(values, "context_size", "max_length")
    stride = _one_of(values, "stride", "overlap")
    if stride == "overlap" and values["overlap"] >= values[size]:
        raise click.UsageError(f"--overlap {values['overlap']} must be below the window's {values[size]} tokens")
    step = values[size] - values["overlap"] if stride == "overlap" else values["stride"]
    values["max_length"] = values[size]
    if step < values[size] and click.get_current_context().get_parameter_source("order") is ParameterSource.DEFAULT:
        values["order"] = "plan"
    chosen = {name: values.pop(name) for name in ("scope", "tail", "mask_overlap", "allow_gaps")}
    for name in ("context_size", "stride", "overlap"):
        del values[name]
    values |= {"strategy": "window", "overlong": "split", "max_segments": None, "boundaries": "document"}
    make("window", inputs, out, tokenizer, values | {"window": Windowing(step, **chosen)})


def _one_of(values: dict[str, Any], name: str, other: str) -> str:
    """Which of two options that say the same was given; the command line wins over a file."""
    ctx = click.get_current_context()
    given = [option for option in (name, other) if values[option] is not None]
    here = [option for option in given if ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE]
    given = here or given
    first, second = (f"--{option.replace('_', '-')}" for option in (name, other))
    if not given:
        raise click.UsageError(f"Missing option '{first}' (or '{second}').", ctx)
    if len(given) > 1:
        raise click.UsageError(f"{first} and {second} say the same: give one of them", ctx)
    return given[0]
