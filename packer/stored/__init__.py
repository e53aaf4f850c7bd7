"""Data sets of packer's own, read back: their rows by group, their documents in order, and both as an INPUT.

groups   rows as stored, whole columns at a time
tables   documents put together again from the rows, in the order of the input
inputs   a data set as INPUT of another run
"""

from packer.stored.inputs import FOLDER, Stored, check, complete, put_together

__all__ = ["FOLDER", "Stored", "check", "complete", "put_together"]
