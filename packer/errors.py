"""Every failure a user can meet, as one tree.

    PackerError                 exit code 1: the work could not be done
    ├── InputError              an input cannot be what it claims (file, and line, row or offset)
    │   ├── RecordError         one bad record; `--on-error skip` counts these and goes on
    │   └── EmptyError          no document is left
    ├── TokenizerError          the tokenizer cannot be loaded or cannot do what was asked
    ├── DatasetError            a packed data set is broken: shard, row and rule
    ├── OutputError             the output folder cannot be written or must not be replaced
    │   └── ResumeError         what an unfinished run left there is of other settings or inputs
    └── ExecutorError           workers died, or a cluster cannot do the work
    UsageError                  exit code 2: the request itself makes no sense

A message is one line: what was being done, where, and what to do. The command line prints it and nothing else;
`--debug` adds the traceback.
"""

from __future__ import annotations


class PackerError(Exception):
    """Base of the errors that the command line turns into one line on stderr."""

    exit_code = 1


class UsageError(PackerError):
    """Options that contradict each other or name what does not exist."""

    exit_code = 2


class InputError(PackerError):
    """An input that cannot be read as what it claims to be."""


class RecordError(InputError):
    """One bad record. `reason` is the part of the message that says what is wrong with it.

    `where` is the place inside its file, such as "line 17", "row 4" or "record 3".
    """

    def __init__(self, path: str, where: str, reason: str) -> None:
        self.path, self.where, self.reason = path, where, reason
        super().__init__(f"{path}, {where}: {reason} (--on-error skip leaves such records out and counts them)")

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, str, str]]:
        return type(self), (self.path, self.where, self.reason)


class EmptyError(InputError):
    """An input of which nothing is left to pack."""


class TokenizerError(PackerError):
    """A tokenizer that cannot be loaded, or lacks what was asked of it."""


class DatasetError(PackerError):
    """A packed data set that breaks its own contract."""


class OutputError(PackerError):
    """An output folder that cannot be written, or that packer must not replace."""


class ResumeError(OutputError):
    """What an unfinished run left was made with other settings, or of other inputs."""


class ExecutorError(PackerError):
    """Workers that were killed again and again, or a cluster that cannot do the work."""
