"""The versions that a data set depends on: the manifest names them, and partitions of others are not gone on with."""

from __future__ import annotations

from importlib.metadata import version

import numpy
import pyarrow
import tokenizers

from packer import __version__


def versions(*, rendered: bool = False, strategy: str = "bfd") -> dict[str, str]:
    """rendered: whether a chat template was; strategy: which planned the rows."""
    found = {
        "packer": __version__,
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "tokenizers": tokenizers.__version__,
    }
    if rendered:
        found |= {name: version(name) for name in ("transformers", "jinja2")}
    if strategy == "optimal":
        found["highspy"] = version("highspy")
    return found
