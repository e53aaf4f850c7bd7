"""Executors: an ordered map of a pure function over partitions. Which one runs never changes the result."""
