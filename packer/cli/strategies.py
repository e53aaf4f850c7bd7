"""Options of `pack` that say how documents are put together."""

from __future__ import annotations

from typing import Any

import click

from packer.cli.options import Number, together
from packer.packing import PLAN_EFFORT, STRATEGIES, missing

strategy_options = together(
    click.option(
        "--strategy",
        type=click.Choice([*STRATEGIES, "bfd_split"]),
        default="bfd",
        show_default=True,
        help="; ".join(f"{name}: {text}" for name, text in STRATEGIES.items()),
    ),
    click.option(
        "--plan-effort",
        type=click.IntRange(0),
        metavar="N",
        help="Of optimal: work that planning a block may take, in parts of a second or less; 0: as bfd. Default: 60.",
    ),
    click.option(
        "--plan-seconds",
        type=Number(0, min_open=True),
        metavar="S",
        help="Of optimal: stop with an error when planning a block takes longer.",
    ),
    click.option("--group-field", metavar="F", help="Only documents with the same string or integer in F share a row."),
    click.option(
        "--embedding-field",
        metavar="F",
        help="Field of vectors that --strategy semantic compares documents by; default: TF-IDF of their tokens.",
    ),
    click.option(
        "--similarity-threshold",
        type=Number(0, 1, min_open=True),
        metavar="S",
        help="--strategy semantic keeps documents of more than this cosine similarity apart; default: 0.9.",
    ),
)


def settle_strategy(values: dict[str, Any]) -> None:
    """What depends on the strategy. `bfd_split` is what TRL calls bfd with long documents split."""
    if values["strategy"] == "bfd_split":
        if values["overlong"] not in (None, "split"):
            raise click.UsageError(
                f"--strategy bfd_split splits long documents, but --overlong is {values['overlong']}"
            )
        values["strategy"], values["overlong"] = "bfd", "split"
    _settle_effort(values)
    _settle_traits(values)


def _settle_effort(values: dict[str, Any]) -> None:
    if values["strategy"] == "optimal":
        if reason := missing("optimal"):
            raise click.UsageError(reason)
        values["plan_effort"] = PLAN_EFFORT if values["plan_effort"] is None else values["plan_effort"]
        return
    for name in ("plan_effort", "plan_seconds"):
        if values[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --strategy optimal")


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
