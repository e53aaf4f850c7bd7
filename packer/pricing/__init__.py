"""What training on documents of given lengths would cost: padded, in batches by length, or packed. Lengths in, no text.

    corpus    the lengths: a histogram, and where the order is known, chunks of it
    padded    static, dynamic, bucketed and token-budget batches
    packed    every packing strategy
    ranks     batches dealt to ranks: how unequal their work is
    flops     tokens and attention to FLOPs, for a model's size

Nothing is guessed: batches are made and rows are planned by the same functions that training and `packer pack` use, and
then counted. Only where the order is unknown, or a strategy takes its time for each document and there are too many,
a sample stands for all, and the price says `estimated`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packer.pricing.corpus import Corpus, Price, Terms, compared
from packer.pricing.flops import Model
from packer.pricing.packed import packed
from packer.pricing.padded import padded

__all__ = ["Corpus", "Model", "Price", "Terms", "prices"]


def prices(corpus: Corpus, max_lengths: Sequence[int], terms: Terms) -> Iterator[Price]:
    """The price of each strategy at each max_length, one after another."""
    for max_length in max_lengths:
        yield from compared([*padded(corpus, max_length, terms), *packed(corpus, max_length, terms)])
