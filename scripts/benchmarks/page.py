"""Sections of docs/benchmarks.md, and of other pages."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from benchmarks.inputs import ROOT

REPORT = ROOT / "docs" / "benchmarks.md"
LIBRARIES = ("numpy", "pyarrow", "tokenizers", "fastokens", "transformers", "datasets", "trl", "datatrove", "litdata")


def spread(values: Sequence[float], digits: int = 2) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def versions() -> dict[str, str]:
    """Of the libraries that are installed."""
    found = {"Python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine(command: str) -> str:
    """Where the figures come from. Paths are left out: they say nothing elsewhere."""
    named = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"`{command}` on {os.cpu_count()} cores, {named}.\n"


def with_section(page: str, section: str) -> str:
    """The page with this section in place of the one of the same heading, or at its end."""
    heading = section.partition("\n")[0]
    head, *sections = page.split("\n## ")
    sections = [f"## {old}".strip() for old in sections]
    if heading in (found := [old.partition("\n")[0] for old in sections]):
        sections[found.index(heading)] = section.strip()
    else:
        sections.append(section.strip())
    return "\n\n".join([head.strip(), *sections]) + "\n"


def write(sections: Sequence[str], path: Path = REPORT) -> None:
    page = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
    for section in sections:
        page = with_section(page, section)
    path.write_text(page, encoding="utf-8")
