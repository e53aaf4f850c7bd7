"""Options that several commands share, each defined once, and the answers to options of other tools."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from packer.corpus import ReadOptions
    from packer.stage import TokenizerOptions

F = TypeVar("F", bound=Callable[..., Any])

OTHER_TOOLS = {
    "--append-eod": "packer appends EOS by default; --eos insists on it",
    "--seq-length": "it is --max-length here",
    "--seq-len": "it is --max-length here",
    "--sequence-len": "it is --max-length here",
    "--sequence-length": "it is --max-length here",
    "--max-seq-length": "it is --max-length here",
    "--concat-tokens": "it is --strategy wrapped --max-length N here",
    "--json-keys": "it is --text-field here",
    "--output-prefix": "it is --out here",
    "--input": "inputs are named without an option here: packer pack INPUT...",
    "--tokenizer-model": "it is --tokenizer here",
    "--tokenizer-name-or-path": "it is --tokenizer here",
    "--eos-text": "it is --eos-token here",
}


def wording(error: click.UsageError) -> str:
    """What click says; of an option known from another tool, what it is called here."""
    if isinstance(error, click.NoSuchOption) and (advice := OTHER_TOOLS.get(error.option_name.replace("_", "-"))):
        return f"there is no option {error.option_name}: {advice}"
    return error.format_message()


def _load_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Options from a TOML file become the command's defaults: the command line wins."""
    if path is None:
        return
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--config {path}: {error}", ctx) from error
    own = content.pop(str(ctx.info_name), {})
    if not isinstance(own, dict):
        raise click.UsageError(f"--config {path}: {ctx.info_name} must be a table, [{ctx.info_name}]", ctx)
    values = {key: value for key, value in content.items() if not isinstance(value, dict)} | own
    names = {
        name.lstrip("-"): p.name for p in ctx.command.params for name in (*p.opts, *p.secondary_opts, p.name or "")
    }
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            raise click.UsageError(f"--config {path}: {ctx.command_path} has no option {key!r}", ctx)
        defaults[str(names[key])] = (not value) if key.startswith("no-") else value
    ctx.default_map = defaults


def _together(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


run_options = _together(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        callback=_load_config,
        is_eager=True,
        expose_value=False,
        help="Take options from a TOML file; those given here win.",
    ),
    click.option("--quiet", is_flag=True, help="No progress bar and no summary."),
    click.option("--debug", is_flag=True, expose_value=False, help="Show a traceback with an error."),
)

input_options = _together(
    click.option(
        "--schema", type=click.Choice(["text", "input_ids"]), help="Kind of records; found from their fields."
    ),
    click.option("--text-field", metavar="NAME", help="Field that holds the text; found among text, content."),
    click.option(
        "--split-text",
        type=click.Choice(["file", "line", "paragraph"]),
        default="file",
        show_default=True,
        help="What one document is in a text file.",
    ),
    click.option(
        "--on-error",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="A bad record stops the run, or is counted and left out.",
    ),
    click.option(
        "--max-record-bytes", type=click.IntRange(1), default=1 << 30, show_default=True, help="A longer record is bad."
    ),
    click.option(
        "--limit", type=click.IntRange(1), metavar="N", help="Only the first N records, for trying things out."
    ),
)

tokenizer_options = _together(
    click.option(
        "--bos/--no-bos", default=None, help="Begin documents with BOS; default: as the tokenizer does itself."
    ),
    click.option("--eos/--no-eos", default=None, help="End documents with EOS; default: if the tokenizer names one."),
    click.option("--eos-token", metavar="TOKEN", help="The token to end documents with."),
    click.option(
        "--special-in-text",
        type=click.Choice(["parse", "literal"]),
        default="parse",
        show_default=True,
        help="Whether a control token written in a text becomes that token or stays text.",
    ),
)


def tokenizer_of(source: str | None, values: dict[str, Any]) -> TokenizerOptions | None:
    """Takes the tokenizer's options out of `values`."""
    from packer.stage import TokenizerOptions

    chosen = {name: values.pop(name) for name in ("bos", "eos", "eos_token", "special_in_text")}
    if source is None:
        return None
    if chosen["eos_token"] and chosen["eos"] is False:
        raise click.UsageError("--eos-token and --no-eos contradict each other")
    return TokenizerOptions(source, **chosen)


def read_of(values: dict[str, Any], names: Sequence[str] = ()) -> ReadOptions:
    """Takes the reading options out of `values`."""
    from packer.corpus import ReadOptions

    shared = ("schema", "text_field", "split_text", "on_error", "max_record_bytes", "limit")
    return ReadOptions(**{name: values.pop(name) for name in (*shared, *names)})
