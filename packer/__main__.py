"""`packer`, and `python -m packer`: a process of its own."""

from __future__ import annotations

import atexit
import os
import sys

from packer.cli import main


def run() -> None:
    """Ends the process when all is said and written: to take apart a tokenizer and hundreds of modules one by one
    takes 0.1 s, and a thread that still loads one would be waited for."""
    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()  # an error of these is raised, and shown, as ever
        sys.stderr.flush()
        atexit._run_exitfuncs()
        os._exit(int(ended.code or 0))


if __name__ == "__main__":
    run()
