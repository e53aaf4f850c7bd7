"""Data sets of packer's own, read back: their rows by group, their documents in order, and both as an INPUT.

groups   rows as stored, whole columns at a time
tables   documents put together again from the rows, in the order of the input
inputs   a data set as INPUT of another run
"""
