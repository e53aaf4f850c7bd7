"""`packer pack`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from packer.cli.options import input_options, read_of, run_options, tokenizer_of, tokenizer_options
from packer.packing import ORDERS, OVERLONG, STRATEGIES
from packer.schema import BOUNDARIES, COLUMNS, COMPRESSIONS, FORMATS, LABELS, POSITIONS


@click.command(short_help="Pack documents into full training rows.")
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option("--tokenizer", metavar="T", help="A tokenizer.json, a folder that holds one, or a hub name.")
@click.option("--max-length", type=click.IntRange(1, 2**31 - 1), required=True, metavar="N", help="Tokens a row holds.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the data set.")
@click.option("--overwrite", is_flag=True, help="Replace a data set of packer's at OUT, when the new one is finished.")
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
@click.option("--min-tokens", type=click.IntRange(0), default=0, metavar="K", help="Leave out shorter documents.")
@click.option("--max-segments", type=click.IntRange(1), metavar="K", help="At most K segments in a row.")
@click.option(
    "--labels", type=click.Choice(LABELS), default="aligned", show_default=True, help="Whether the model shifts."
)
@click.option(
    "--boundaries", type=click.Choice(BOUNDARIES), default="document", show_default=True, help="What attends."
)
@click.option(
    "--positions", type=click.Choice(POSITIONS), default="segment", show_default=True, help="Where they restart."
)
@click.option(
    "--columns", type=click.Choice(COLUMNS), default="full", show_default=True, help="Leave out the derivable."
)
@click.option("--format", "file_format", type=click.Choice([*FORMATS]), default="parquet", show_default=True)
@click.option("--compression", type=click.Choice(COMPRESSIONS), help="Default: zstd for parquet, none for arrow.")
@click.option(
    "--rows-per-shard", type=click.IntRange(1), metavar="N", help="Default: equal shards of about 64 M tokens."
)
@click.option("--split", default="train", show_default=True, metavar="NAME", help="Name in the shards' file names.")
@click.option("--order", type=click.Choice(ORDERS), default="shuffle", show_default=True, help="Order of the rows.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--block-tokens", type=click.IntRange(1), default=32 << 20, show_default=True, help="Planned at once.")
@click.option("--partition-bytes", type=click.IntRange(1), default=256 << 20, show_default=True, help="Input cut size.")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="Also write the run's facts as JSON.")
@input_options
@tokenizer_options
@run_options
def pack(inputs: tuple[str, ...], tokenizer: str | None, out: Path, **values: Any) -> None:
    """Tokenize INPUT and pack its documents into rows of at most N tokens, as shards in OUT.

    INPUT is a file (jsonl, json, parquet, arrow, csv, tsv, text; also compressed), a folder, a glob, a `datasets`
    folder, hf:NAME[:CONFIG][@SPLIT], or - for JSON Lines on stdin.
    """
    from packer import pipeline, report
    from packer.cli.progress import progress_bar
    from packer.finish import Output
    from packer.schema import Layout
    from packer.stage import Job

    report_file, quiet = values.pop("report"), values.pop("quiet")
    _settle(values)
    if report_file and (out.absolute() in report_file.absolute().parents or not report_file.parent.is_dir()):
        raise click.UsageError(f"--report {report_file}: must be in a folder that exists, and not in OUT")
    layout = Layout(**{name: values.pop(name) for name in ("labels", "boundaries", "positions", "columns")})
    compression = values.pop("compression") or ("zstd" if values["file_format"] == "parquet" else "none")
    output = Output(
        compression=compression, **{name: values.pop(name) for name in ("split", "file_format", "rows_per_shard")}
    )
    job = Job(
        read=read_of(values, ["partition_bytes"]),
        tokenizer=tokenizer_of(tokenizer, values),
        **{name: values.pop(name) for name in list(values) if name != "overwrite"},
    )
    with progress_bar(quiet) as progress:
        result = pipeline.pack(inputs, out, job, layout, output, progress=progress, **values)
    if not quiet:
        click.echo(report.summary(result))
    if report_file:
        report_file.write_text(json.dumps(report.facts(result), indent=1) + "\n", encoding="utf-8")


def _settle(values: dict[str, Any]) -> None:
    """Options that depend on one another. `bfd_split` is what TRL calls bfd with long documents split."""
    if values["strategy"] == "bfd_split":
        if values["overlong"] not in (None, "split"):
            raise click.UsageError(
                f"--strategy bfd_split splits long documents, but --overlong is {values['overlong']}"
            )
        values["strategy"], values["overlong"] = "bfd", "split"
    if not re.fullmatch(r"\w+(\.\w+)*", values["split"]):
        raise click.UsageError(f"--split {values['split']!r} is no name: letters, digits, _ and . only")
    if values["strategy"] == "wrapped" and values["max_segments"]:
        raise click.UsageError("--max-segments cannot hold for --strategy wrapped, which fills rows whatever they hold")
