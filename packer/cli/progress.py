"""The progress bar: on a terminal only, on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yields what is to be told of documents and tokens done, or None where no bar is shown."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    documents = 0
    with tqdm(unit=" tokens", unit_scale=True, desc="tokenizing", dynamic_ncols=True, leave=False) as bar:

        def progress(more_documents: int, more_tokens: int) -> None:
            nonlocal documents
            documents += more_documents
            bar.set_postfix_str(f"{documents:,} documents", refresh=False)
            bar.update(more_tokens)

        yield progress
