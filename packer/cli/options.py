"""Options that several commands share, each defined once, and the answers to options of other tools."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from packer.executors import EXECUTORS
from packer.packing import ORDERS
from packer.remote import Place, place
from packer.schema import COLUMNS, COMPRESSIONS, FORMATS, LABELS, POSITIONS

if TYPE_CHECKING:
    from packer.chat import ChatOptions
    from packer.corpus import ReadOptions
    from packer.job import TokenizerOptions


DEBUG = "packer.debug"  # among what click keeps with a command
F = TypeVar("F", bound=Callable[..., Any])

FIELDS = ("text_field", "messages_field", "prompt_field", "completion_field")
TRAIT_FIELDS = ("embedding_field", "group_field")
OTHER_TOOLS = {
    "--append-eod": "packer appends EOS by default; --eos insists on it",
    "--seq-length": "it is --max-length here",
    "--seq-len": "it is --max-length here",
    "--sequence-len": "it is --max-length here",
    "--sequence-length": "it is --max-length here",
    "--max-seq-length": "it is --max-length here",
    "--concat-tokens": "it is --strategy wrapped --max-length N here",
    "--json-keys": "it is --text-field here",
    "--dataset-text-field": "it is --text-field here",
    "--assistant-only-loss": "it is --loss assistant here, the default for chats",
    "--completion-only-loss": "it is --loss completion here, the default for prompts with a completion",
    "--train-on-inputs": "it is --loss all here",
    "--mask-prompt": "a prompt is masked by default here; --loss all trains it too",
    "--chat-template-kwargs": "it is --template-arg K=V here",
    "--output-prefix": "it is --out here",
    "--input": "inputs are named without an option here: packer pack INPUT...",
    "--tokenizer-model": "it is --tokenizer here",
    "--tokenizer-name-or-path": "it is --tokenizer here",
    "--eos-text": "it is --eos-token here",
    "--context-length": "it is --context-size of packer window here, or --max-length of packer pack",
    "--window-size": "it is --context-size of packer window here",
    "--doc-stride": "it is --overlap of packer window here (--stride is the step from one window to the next)",
    "--step": "it is --stride of packer window here",
}


def wording(error: click.UsageError) -> str:
    """What click says; of an option known from another tool, what it is called here."""
    if isinstance(error, click.NoSuchOption) and (advice := OTHER_TOOLS.get(error.option_name.replace("_", "-"))):
        return f"there is no option {error.option_name}: {advice}"
    return error.format_message()


class PlaceType(click.Path):
    """A folder: a path, or the URL of one in a store."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return place(value if isinstance(value, str) else Path(str(super().convert(value, param, ctx))))


PLACE = PlaceType()


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
    several = {p.name for p in ctx.command.params if p.multiple}
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        if key not in names:
            raise click.UsageError(f"--config {path}: {ctx.command_path} has no option {key!r}", ctx)
        value = (not value) if key.startswith("no-") else value
        defaults[str(names[key])] = [value] if names[key] in several and not isinstance(value, list) else value
    ctx.default_map = defaults


def together(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


class Number(click.FloatRange):
    """A number within a range, which NaN is not, though no comparison says so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


run_options = together(
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        callback=_load_config,
        is_eager=True,
        expose_value=False,
        help="Take options from a TOML file; those given here win.",
    ),
    click.option("--quiet", is_flag=True, help="No progress bar and no summary."),
    click.option(
        "--debug",
        is_flag=True,
        callback=lambda ctx, _, value: ctx.meta.update({DEBUG: value}),
        expose_value=False,
        help="Show a traceback with an error, and what a cluster's workers print.",
    ),
)

data_options = together(
    click.argument("inputs", metavar="INPUT...", nargs=-1, required=True),
    click.option("--tokenizer", metavar="T", help="A tokenizer.json, a folder that holds one, a URL, or a hub name."),
    click.option("--out", type=PLACE, required=True, help="Folder for the data set, here or in a store."),
    click.option(
        "--staging",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="Where to work while OUT is a URL; default: the system's temporary folder.",
    ),
    click.option(
        "--overwrite", is_flag=True, help="Replace a data set of packer's at OUT, when the new one is finished."
    ),
    click.option("--dry-run", is_flag=True, help="Estimate rows, memory, disk and time from a sample; write nothing."),
    click.option("--resume", is_flag=True, help="Go on from the partitions that an unfinished run left at OUT."),
    click.option(
        "--workers",
        type=click.IntRange(1),
        metavar="N",
        help="Processes, or tasks of a cluster, at once; default: this process, whose tokenizer uses every core.",
    ),
    click.option(
        "--executor",
        type=click.Choice([*EXECUTORS]),
        default="local",
        show_default=True,
        help="Where partitions are worked on. " + "; ".join(f"{name}: {text}" for name, text in EXECUTORS.items()),
    ),
    click.option(
        "--ray-address",
        metavar="A",
        help="HOST:PORT of a running cluster's head, auto, or local: one for this run (default).",
    ),
    click.option("--min-tokens", type=click.IntRange(0), default=0, metavar="K", help="Leave out shorter documents."),
)


def labels_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--labels", type=click.Choice(LABELS), default=default, show_default=True, help="Whether the model shifts."
    )


output_options = together(
    click.option(
        "--positions", type=click.Choice(POSITIONS), default="segment", show_default=True, help="Where they restart."
    ),
    click.option(
        "--columns", type=click.Choice(COLUMNS), default="full", show_default=True, help="Leave out the derivable."
    ),
    click.option("--format", "file_format", type=click.Choice([*FORMATS]), default="parquet", show_default=True),
    click.option("--compression", type=click.Choice(COMPRESSIONS), help="Default: zstd for parquet, none for arrow."),
    click.option(
        "--rows-per-shard", type=click.IntRange(1), metavar="N", help="Default: equal shards of about 64 M tokens."
    ),
    click.option("--split", default="train", show_default=True, metavar="NAME", help="Name in the shards' file names."),
    click.option(
        "--order",
        type=click.Choice([*ORDERS]),
        default="shuffle",
        show_default=True,
        help="Order of the rows. " + "; ".join(f"{name}: {text}" for name, text in ORDERS.items()),
    ),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
    click.option(
        "--block-tokens", type=click.IntRange(1), default=32 << 20, show_default=True, help="Planned at once."
    ),
    click.option(
        "--partition-bytes", type=click.IntRange(1), default=256 << 20, show_default=True, help="Input cut size."
    ),
    click.option(
        "--report", type=click.Path(path_type=Path), metavar="FILE", help="Also write the run's facts as JSON."
    ),
)

input_options = together(
    click.option(
        "--schema",
        type=click.Choice(["text", "messages", "prompt_completion", "alpaca", "input_ids"]),
        help="Kind of records; found from their fields. messages: chats, ShareGPT's too.",
    ),
    click.option("--text-field", metavar="NAME", help="Field that holds the text; found among text, content."),
    click.option(
        "--messages-field", metavar="NAME", help="Field that holds a chat; found among messages, conversations."
    ),
    click.option("--prompt-field", metavar="NAME", help="Field that holds a prompt; found as prompt."),
    click.option("--completion-field", metavar="NAME", help="Its completion; found among completion, response."),
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
    click.option("--allow-lossy", is_flag=True, help="Read a packer data set though it lost tokens of its documents."),
)

chat_options = together(
    click.option(
        "--chat-template", metavar="FILE|NAME", help="A Jinja file, or one of the tokenizer's own. Default: its own."
    ),
    click.option(
        "--template-arg",
        "template_args",
        multiple=True,
        metavar="K=V",
        help="A variable for the template, V as JSON or text; may be given several times.",
    ),
    click.option("--template-date", metavar="YYYY-MM-DD", help="What a template that asks for the date is told."),
    click.option(
        "--loss",
        type=click.Choice(["all", "completion", "assistant", "last"]),
        help="What is trained of chats: what the assistant wrote, its last turn, ... Default: assistant for chats, "
        "completion for prompts with one.",
    ),
    click.option(
        "--turns",
        type=click.Choice(["all", "each"]),
        default="all",
        show_default=True,
        help="One document of a chat, or one of each of the assistant's turns, as inference sees it.",
    ),
)

tokenizer_options = together(
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
    click.option(
        "--tokenizer-engine",
        "engine",
        type=click.Choice(["auto", "hf", "fast"]),
        default="auto",
        show_default=True,
        help="What computes the ids, which are the same: auto takes the fast one where that pays and is proved equal.",
    ),
)


def contains(out: Place, file: Path) -> bool:
    """Whether a file that is to be written lies in a data set."""
    return isinstance(out, Path) and out.absolute() in file.absolute().parents


def tokenizer_of(source: str | None, values: dict[str, Any]) -> TokenizerOptions | None:
    """Takes the tokenizer's options out of `values`."""
    from packer.job import TokenizerOptions

    chosen = {name: values.pop(name) for name in ("bos", "eos", "eos_token", "special_in_text", "engine")}
    if source is None:
        return None
    if chosen["eos_token"] and chosen["eos"] is False:
        raise click.UsageError("--eos-token and --no-eos contradict each other")
    return TokenizerOptions(source, **chosen)


def chat_of(tokenizer: str | None, values: dict[str, Any]) -> ChatOptions | None:
    """Takes the options of chats out of `values`; without a tokenizer there can be none."""
    from packer.chat import ChatOptions, parse_template_args

    chosen = {name: values.pop(name) for name in ("template_date", "loss", "turns")}
    template, template_args = values.pop("chat_template"), parse_template_args(values.pop("template_args"))
    return None if tokenizer is None else ChatOptions(tokenizer, template, template_args, **chosen)


def read_of(values: dict[str, Any], names: Sequence[str] = ()) -> ReadOptions:
    """Takes the reading options out of `values`."""
    from packer.corpus import ReadOptions

    shared = ("schema", *FIELDS, "split_text", "on_error", "max_record_bytes", "limit", "allow_lossy")
    return ReadOptions(**{name: values.pop(name) for name in (*shared, *names)})
