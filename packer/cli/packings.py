"""Options of `pack` for rows of several lengths, several packings, and steps of even work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from packer.cli.options import together
from packer.packing import GAPS

if TYPE_CHECKING:
    from packer.balancing import Balance
    from packer.pricing import Model

balance_options = together(
    click.option(
        "--world-size",
        type=click.IntRange(1),
        metavar="W",
        help="With --order balanced: steps of even work for W.",
    ),
    click.option(
        "--rows-per-batch", type=click.IntRange(1), metavar="B", help="Rows of a rank in each such step; default: 1."
    ),
    click.option(
        "--balance-cost",
        type=click.Choice(["attention", "tokens", "flops"]),
        help="What is even: the sum of squared sequence lengths (default), tokens, or the FLOPs of --model.",
    ),
    click.option("--model", metavar="HIDDEN,LAYERS[,FFN]", help="A transformer's size, for --balance-cost flops."),
)

packings_options = together(
    click.option(
        "--gaps",
        type=click.Choice([*GAPS]),
        default="fill",
        show_default=True,
        help="Of several row lengths, what becomes of the room that longer rows leave. "
        + "; ".join(f"{name}: {text}" for name, text in GAPS.items()),
    ),
    click.option(
        "--equalize",
        type=click.Choice(["attention"]),
        help="With --strategy bfd: rows of like sum of squared lengths, for at most 1% more rows.",
    ),
    click.option(
        "--epochs",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        metavar="E",
        help="Write E packings of the same documents, of which the reader takes another in each epoch.",
    ),
)


def settle_packings(values: dict[str, Any]) -> None:
    """Several row lengths, several packings, rows of like cost. `max_length` becomes the longest."""
    strategy, lengths = values["strategy"], sorted({*values["max_length"]})
    values["max_length"], values["lengths"] = lengths[-1], tuple(lengths) if len(lengths) > 1 else ()
    if len(lengths) > 1 and strategy == "wrapped":
        raise click.UsageError("--strategy wrapped fills rows of one length: give one --max-length")
    if values["equalize"] and (strategy != "bfd" or len(lengths) > 1):
        raise click.UsageError("--equalize is for --strategy bfd with one --max-length")
    if values["epochs"] > 1 and strategy in ("wrapped", "none"):
        raise click.UsageError(f"--strategy {strategy} makes the same rows each time: leave out --epochs")
    related = "--strategy semantic" if strategy == "semantic" else "--group-field" if values["group_field"] else None
    by_lengths = {
        "several --max-length": len(lengths) > 1,
        "--epochs": values["epochs"] > 1,
        "--equalize": bool(values["equalize"]),
    }
    for name, given in by_lengths.items():
        if related and given:
            raise click.UsageError(f"{name} and {related}: one goes by lengths alone, the other by more; leave one out")


def balance_of(values: dict[str, Any]) -> Balance | None:
    """Takes the options of balanced steps out of `values`."""
    from packer.balancing import Balance

    names = {name: "--" + name.replace("_", "-") for name in ("world_size", "rows_per_batch", "balance_cost", "model")}
    world_size, rows, cost, model = (values.pop(name, None) for name in names)
    given = [
        names[name] for name, value in zip(names, (world_size, rows, cost, model), strict=True) if value is not None
    ]
    if not given:
        return None
    if values["order"] != "balanced":
        raise click.UsageError(f"{given[0]} is for --order balanced")
    if world_size is None:
        raise click.UsageError(f"{given[0]} needs --world-size: the ranks whose work is to be even")
    if (cost == "flops") != (model is not None):
        raise click.UsageError("--balance-cost flops and --model go together")
    sized = model_of(model)
    flops = (sized.per_token, sized.per_square) if sized else None
    return Balance(world_size, rows or 1, cost or "attention", flops)


def model_of(text: str | None) -> Model | None:
    """A transformer's size as `--model` gives it."""
    from packer.pricing import Model

    if text is None:
        return None
    parts = text.split(",")
    if len(parts) not in (2, 3) or not all(
        re.fullmatch(r"0*[1-9][0-9]{0,8}", part.strip(), re.ASCII) for part in parts
    ):
        raise click.UsageError(f"--model {text!r}: give HIDDEN,LAYERS or HIDDEN,LAYERS,FFN, as in 4096,32,14336")
    return Model(*map(int, parts))
