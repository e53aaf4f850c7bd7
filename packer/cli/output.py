"""What `pack` and `window` have in common: from their options to a finished data set, its summary and its report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer import loading
from packer.cli.options import DEBUG, TRAIT_FIELDS, chat_of, contains, read_of, tokenizer_of
from packer.cli.packings import balance_of
from packer.remote import Place

if TYPE_CHECKING:
    from packer.finish import Output
    from packer.job import Job
    from packer.schema import Layout


def make(command: str, inputs: tuple[str, ...], out: Place, tokenizer: str | None, values: dict[str, Any]) -> None:
    """Calls the function of `packer.pipeline` that is named like the command. values: all other options by name, and
    what else `packer.job.Job` and `packer.schema.Layout` need."""
    loading.guess_ahead(tokenizer, inputs, values["engine"])
    from packer import pipeline, report
    from packer.cli.progress import progress_bar
    from packer.executors import Execution
    from packer.finish import Output
    from packer.job import Job
    from packer.schema import Layout

    report_file, quiet, dry_run = (values.pop(name) for name in ("report", "quiet", "dry_run"))
    how = {name: values.pop(name) for name in ("overwrite", "resume", "staging")}
    debug = bool(click.get_current_context().meta[DEBUG])
    execution = Execution(**{name: values.pop(name) for name in ("executor", "workers", "ray_address")}, debug=debug)
    if execution.ray_address and execution.executor != "ray":
        raise click.UsageError("--ray-address is for --executor ray")
    if report_file and (contains(out, report_file) or not report_file.parent.is_dir()):
        raise click.UsageError(f"--report {report_file}: must be in a folder that exists, and not in OUT")
    if not re.fullmatch(r"\w+(\.\w+)*", values["split"]):
        raise click.UsageError(f"--split {values['split']!r} is no name: letters, digits, _ and . only")
    layout = Layout(**{name: values.pop(name) for name in ("labels", "boundaries", "positions", "columns")})
    balance = balance_of(values)
    compression = values.pop("compression") or ("zstd" if values["file_format"] == "parquet" else "none")
    output = Output(
        compression=compression,
        balance=balance,
        **{name: values.pop(name) for name in ("split", "file_format", "rows_per_shard")},
    )
    own = [name for name in ("partition_bytes", *TRAIT_FIELDS) if name in values]
    read, chat = read_of(values, own), chat_of(tokenizer, values)
    job = Job(read=read, tokenizer=tokenizer_of(tokenizer, values), chat=chat, **values)
    if dry_run:
        _estimate(inputs, out, job, layout, output, quiet, report_file)
        return
    with progress_bar(quiet) as progress:
        function = getattr(pipeline, command)
        result = function(inputs, out, job, layout, output, execution=execution, progress=progress, **how)
    if not quiet:
        click.echo(report.summary(result))
    if report_file:
        report_file.write_text(json.dumps(report.facts(result), indent=1) + "\n", encoding="utf-8")


def _estimate(
    inputs: tuple[str, ...], out: Place, job: Job, layout: Layout, output: Output, quiet: bool, report_file: Path | None
) -> None:
    from packer import dryrun

    found = dryrun.estimate(inputs, out, job, layout, output)
    if not quiet:
        click.echo(dryrun.table(found))
    if report_file:
        report_file.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
