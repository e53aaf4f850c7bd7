"""`--dry-run`: what a run would give and cost, from a sample of its input. Nothing is written, and OUT is not touched.

    sample     beginnings of files, evenly spread, tokenized as a run would
    estimate   from the sample to the whole: documents, tokens, rows, memory, disk, time
    table      the same for a person

A packer data set is not sampled: its manifest says how much it holds.
"""

from packer.dryrun.estimate import Estimate, Figure, estimate
from packer.dryrun.table import table

__all__ = ["Estimate", "Figure", "estimate", "table"]
