"""The versions that a data set depends on: the manifest names them, and partitions of others are not gone on with."""

from __future__ import annotations

import numpy
import pyarrow
import tokenizers

from packer import __version__


def versions() -> dict[str, str]:
    return {
        "packer": __version__,
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "tokenizers": tokenizers.__version__,
    }
