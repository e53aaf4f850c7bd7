"""Proof that a data set is right, or the shard, row and rule that is wrong.

    files      the manifest, sizes and checksums, nothing missing and nothing extra
    rows       what must hold within a row: one rule, one function, one line in a table
    documents  what must hold across rows: each document's segments tile it exactly once, in every packing; totals
    windows    the same for windows: each where the options put it, once; its labels; totals
    balance    the work of ranks in the steps as they are stored
    splits     every document in one split only
    source     every token against INPUT, tokenized again

The rules are written from the contract (docs/format.md), apart from the code that makes rows: a fault there is not
repeated here. Memory is bounded by a row group and by a fixed number of documents at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packer import manifest as manifests
from packer.manifest import Manifest
from packer.remote import Place, place
from packer.verify import balance as balance
from packer.verify import documents as documents
from packer.verify import files as files
from packer.verify import rows as rows
from packer.verify import source as source
from packer.verify import splits as splits
from packer.verify import windows as windows


@dataclass(frozen=True)
class Verdict:
    """What was proved. tokens_compared: tokens that were compared with INPUT, None without one."""

    manifest: Manifest
    tokens_compared: int | None


def verify(
    out: str | Place, inputs: Sequence[str] = (), *, tokenizer: str | None = None, template: str | None = None
) -> Verdict:
    """Checks the data set at `out`; with `inputs` also every token. tokenizer, template: where they lie elsewhere than
    the manifest says. Raises DatasetError at the first broken rule."""
    out = place(out)
    manifest = manifests.load(out)
    files.check(out, manifest)
    for split in manifest.parts:
        found = rows.check(out, split)
        if split.options.window is None:
            documents.check(out, split, found)
        else:
            windows.check(out, split, found)
        balance.check(out, split)
    documents.check_whole(manifest)
    splits.check(out, manifest)
    compared = source.check(out, manifest, inputs, tokenizer, template) if inputs else None
    return Verdict(manifest, compared)
