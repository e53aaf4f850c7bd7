"""Reading a data set for training: NumPy and pyarrow only.

    files    shards as groups of rows, opened lazily in each process
    batch    rows to flat arrays: label conventions, padding, fixed shapes
    epochs   which rows come next on this rank, and how to go on from where a run ended

`packer.torch` makes tensors and loops of it.

    >>> dataset = PackedDataset("OUT")
    >>> row = dataset[0]  # "input_ids", "labels", "position_ids" int64 (T,), "cu_seqlens" int32 (A+1,), ...
"""

from packer.reader.dataset import PackedDataset, Row
from packer.reader.epochs import Epochs

__all__ = ["Epochs", "PackedDataset", "Row"]
