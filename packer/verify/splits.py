"""Documents held out for validation: each document in one split only, and in the one where its content belongs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from packer.manifest import Manifest
from packer.remote import Place
from packer.stored.groups import all_groups, raise_at


def check(out: Place, manifest: Manifest) -> None:
    """Raises DatasetError at the first document that is in both splits."""
    if manifest.validation is not None:
        with tempfile.TemporaryDirectory(prefix="packer-verify-") as folder:
            split_of(out, manifest, Path(folder))


def split_of(out: Place, manifest: Manifest, folder: Path) -> NDArray[np.uint8]:
    """The split of each document, in a temporary file: uint8 (records,), its number from 1, 0 where none holds it."""
    marks = np.memmap(folder / "splits", np.uint8, "w+", shape=(manifest.totals.records,))
    for number, split in [(1, packing) for packing in manifest.epochs] + [(2, held) for held in manifest.splits[1:]]:
        for group in all_groups(out, split):
            documents = group.flat["doc_ids"]
            wrong = (marks[documents] != 0) & (marks[documents] != number)
            if wrong.any():
                at = int(np.argmax(wrong))
                raise_at(group, group.row_of("doc_ids")[at], f"document {documents[at]} is in another split too")
            marks[documents] = number
    return marks
