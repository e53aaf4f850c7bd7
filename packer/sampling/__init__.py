"""Which rows come in which batch of which rank: pure NumPy, a function of seed, epoch and options.

    order     the rows of an epoch, in the order in which they are to be read
    steps     that order cut into steps, and each step dealt to the ranks: by rows, by tokens, balanced
    schedule  when rows of each length are read, where there are several
    mixing    several data sets as one order, by shares of tokens
    progress  what was taken so far, and what is left of the epoch, also under other options

The order never depends on ranks or workers. A step takes the next `world_size` batches of it, so as many rows in all
give the same steps whether two ranks take four rows each or four ranks two. Every rank has a batch in every step.
"""

from packer.sampling.mixing import mixed
from packer.sampling.order import Order, epoch_order
from packer.sampling.progress import Progress, Taken, left_of
from packer.sampling.schedule import Lengths
from packer.sampling.steps import Sampling, Steps, Work, plan_steps

__all__ = [
    "Lengths",
    "Order",
    "Progress",
    "Sampling",
    "Steps",
    "Taken",
    "Work",
    "epoch_order",
    "left_of",
    "mixed",
    "plan_steps",
]
