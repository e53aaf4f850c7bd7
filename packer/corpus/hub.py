"""`hf:NAME[:CONFIG][@SPLIT]`: a data set streamed through `datasets`, which only this module imports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from packer.corpus import schema as schemas
from packer.corpus.batches import Block
from packer.corpus.chat_columns import without_nulls
from packer.corpus.records import BadRecordError, Reading
from packer.corpus.sources import ReadOptions, Source
from packer.errors import InputError, PackerError, UsageError

HEAD = 100  # records looked at for the schema


@dataclass(frozen=True)
class Name:
    """What an argument names. "hf:allenai/c4:en@validation" -> Name("allenai/c4", "en", "validation")"""

    name: str
    config: str | None
    split: str

    @classmethod
    def parse(cls, argument: str) -> Name:
        rest, _, split = argument.removeprefix("hf:").partition("@")
        name, _, config = rest.partition(":")
        if not name:
            raise UsageError(f"{argument}: must be hf:NAME[:CONFIG][@SPLIT]")
        return cls(name, config or None, split or "train")

    @property
    def is_local(self) -> bool:
        return os.path.isdir(self.name)


def find(argument: str, options: ReadOptions) -> Source:
    """The source, with the commit that the hub names now, so that the reading is of that one."""
    name = Name.parse(argument)
    commit = None
    if not name.is_local:
        _datasets()  # says what to install before anything is asked of the network
        with _failures(argument):
            from huggingface_hub import HfApi

            commit = HfApi().dataset_info(name.name).sha
    location = os.path.abspath(name.name) if name.is_local else ""
    source = Source(argument, location, "hub", None, 0, None, commit)
    head = ((f"row {number}", record) for number, record in enumerate(islice(_records(source), HEAD)))
    return replace(source, schema=schemas.of_records(head, argument, options))


def read(reading: Reading) -> Iterator[Block]:
    """Blocks of one record each. Rows are numbered from 0, as `datasets` numbers them."""
    schema = reading.schema
    convert, rendered = reading.converter(), schema.rendered
    for number, record in enumerate(_records(reading.source)):
        document: Any = None
        try:
            document = convert({k: without_nulls(v) for k, v in record.items()} if rendered else record)
        except BadRecordError as error:
            reading.bad(f"row {number}", str(error))
        yield reading.block_of([document])


def _records(source: Source) -> Iterator[Any]:
    datasets = _datasets()
    name = Name.parse(source.path)
    path = source.location or name.name
    with _failures(source.path):
        stream = datasets.load_dataset(path, name.config, split=name.split, streaming=True, revision=source.commit)
        yield from stream


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise UsageError("hf: inputs need the datasets package: pip install 'packer[hf]'") from None
    datasets.disable_progress_bars()
    return datasets


@contextmanager
def _failures(argument: str) -> Iterator[None]:
    """One line for whatever goes wrong: `datasets`, the hub's client and the network each have their own errors."""
    try:
        yield
    except PackerError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{argument}: cannot be read through datasets: {lines[0]}") from error
