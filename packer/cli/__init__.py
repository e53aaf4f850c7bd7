"""The command line: click only. Each command resolves its options and calls one library function of the same name.

Importing this loads nothing heavy, and neither does `--help`: what does the work is imported when a command runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType

import click

from packer import __version__
from packer.cli.inspect import inspect
from packer.cli.options import wording
from packer.cli.pack import pack
from packer.cli.stats import stats
from packer.cli.verify import verify
from packer.cli.window import window
from packer.errors import PackerError
from packer.remote import remove_copies

INTERRUPTED, TERMINATED = 130, 143


class Interrupted(BaseException):
    """SIGINT or SIGTERM: passes through everything, cleaning up on its way, and ends the process with its code."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="packer")
def cli() -> None:
    """Tokenize a corpus and pack it into exact, full training rows."""


for command in (stats, pack, window, verify, inspect):
    cli.add_command(command)


def main(args: Sequence[str] | None = None) -> None:
    """Entry point and the one error boundary: a known failure is one line on stderr and an exit code."""
    arguments = list(sys.argv[1:] if args is None else args)
    for number, exit_code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
        signal.signal(number, partial(_interrupt, exit_code))
    try:
        code = cli.main(arguments, prog_name="packer", standalone_mode=False)
    except Interrupted as interrupted:
        _say("interrupted", *getattr(interrupted, "__notes__", ()))
        sys.stderr.flush()
        remove_copies()
        os._exit(interrupted.args[0])  # at once: a thread may be deep in a tokenizer call
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        if "--debug" in arguments:
            raise
        _say(*_described(error))
        sys.exit(_exit_code(error))
    sys.exit(code or 0)


def _interrupt(exit_code: int, number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # cleaning up is not to be interrupted
    raise Interrupted(exit_code)


def _described(error: Exception) -> tuple[str, ...]:
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "packer"
        return (wording(error), f"see {where} --help")
    if isinstance(error, click.ClickException):
        return (error.format_message(),)
    if isinstance(error, PackerError):
        return (str(error), *getattr(error, "__notes__", ()))
    if isinstance(error, OSError):
        name = f": {error.filename}" if error.filename else ""
        return (f"{error.strerror or error}{name}", *getattr(error, "__notes__", ()))
    return (f"unexpected {type(error).__name__}: {error}", "run again with --debug and report the traceback")


def _exit_code(error: Exception) -> int:
    if isinstance(error, click.ClickException | PackerError):
        return error.exit_code
    return 1


def _say(*parts: str) -> None:
    click.echo("packer: " + "; ".join(" ".join(part.split()) for part in parts), err=True)
