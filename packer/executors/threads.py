"""How many threads the libraries may use in a process that shares its machine with others.

Set before their first use, inside the process itself: each reads its variable once.
"""

from __future__ import annotations

import os

IO_THREADS = 2  # of pyarrow, in each process: reading is not what a worker waits for


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(threads: int) -> dict[str, str]:
    """The variables for a process that may use so many threads. A user's own RAYON_NUM_THREADS holds."""
    rayon = os.environ.get("RAYON_NUM_THREADS") or str(threads)
    return {
        "RAYON_NUM_THREADS": rayon,
        "TOKENIZERS_PARALLELISM": "false" if rayon == "1" else "true",
        "OMP_NUM_THREADS": str(threads),
    }


def limit(threads: int) -> None:
    """Sets them in this process, and pyarrow's threads."""
    import pyarrow

    os.environ.update(environment(threads))
    pyarrow.set_cpu_count(threads)
    pyarrow.set_io_thread_count(IO_THREADS)
