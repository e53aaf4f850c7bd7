"""Packs one corpus with every strategy, and compares the rows: a table in Markdown, and a plot.

    python scripts/bench_strategies.py [--corpus FILE --tokenizer T --label L] [--limit N] [--max-length N]
                                       [--documents N] [--rounds R] [--write] [--plot]

Without --corpus the documents are made from `sample_data`. Beside them stand --documents made-up ones with lengths
uniform in 0.26 to 0.45 of the max length, which do not fill rows by themselves. With OPENBLAS_NUM_THREADS=1 the time of
`semantic` does not depend on the number of cores.
"""

from __future__ import annotations

import argparse
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from benchmarks import page, plot
from benchmarks.inputs import ROOT, TOKENIZER, write_generated
from benchmarks.strategies import CONTENDERS, LONGEST, RANKS, SHORTEST, Figures, measure, write_uniform

PAGE = ROOT / "docs" / "strategies.md"
PLOT = ROOT / "docs" / "strategies.svg"
CORPUS_BYTES = 8_000_000
HEAD = ["strategy", "rows", "full", "documents cut", "attention kept"]
HEAD += [f"busiest of {ranks}" for ranks in RANKS]
HEAD += ["likeness in a row", "near-duplicates", "time / bfd"]
READING = """\
Documents that are longer than a row are cut by every strategy, others only by `wrapped`. The second set is made up:
half of a document's tokens are those of one of 40 topics. Balanced order is that for 64 ranks.

- *attention kept*: sum of squared segment lengths over that of the documents, cut where they must be. What is missing
  is context that tokens have lost.
- *busiest of N*: its sum of squared lengths over the mean of the N ranks, each with a row a step in stored order; mean
  over the steps. At 1.5 ranks wait for a third of the time that attention takes.
- *likeness*: mean cosine similarity of two documents of a row (TF-IDF); *near-duplicates*: pairs of a row above 0.9.
- *time*: processor seconds from token ids to the finished data set, least of the rounds.
"""


def main() -> None:
    arguments = parsed()
    results = run(arguments)
    section = section_of(results, arguments)
    print(section)
    if arguments.write:
        page.write([section], PAGE)
    if arguments.plot:
        PLOT.write_text(drawn(results), encoding="utf-8")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--tokenizer", default=str(TOKENIZER))
    parser.add_argument("--label", default="generated articles", help="what the corpus is, for the table and the plot")
    parser.add_argument("--limit", type=int, help="documents of the corpus")
    parser.add_argument("--megabytes", type=float, default=CORPUS_BYTES / 1e6, help="of text, without --corpus")
    parser.add_argument("--documents", type=int, default=10_000, help="made up, beside the corpus")
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="into docs/strategies.md")
    parser.add_argument("--plot", action="store_true", help="draw docs/strategies.svg")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Figures by what the documents are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = arguments.corpus
        if not corpus:
            corpus = folder / "generated.jsonl"
            write_generated(corpus, int(arguments.megabytes * 1e6))
        uniform = folder / "uniform.parquet"
        write_uniform(uniform, arguments.documents, arguments.max_length)
        read = ["--tokenizer", arguments.tokenizer]
        read += ["--limit", str(arguments.limit)] if arguments.limit else []
        length, rounds = arguments.max_length, arguments.rounds
        return {
            arguments.label: measure(corpus, read, length, rounds, folder),
            f"lengths uniform in {SHORTEST} to {LONGEST} of a row": measure(uniform, [], length, rounds, folder),
        }


def section_of(results: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> str:
    lines = [f"## All of them, measured\n\n{READING}"]
    if arguments.plot:
        lines.append(f"![Rows by each strategy]({PLOT.name})\n")
    for label, result in results.items():
        totals = result["totals"]
        lines.append(
            wrapped(
                f"**{label[0].upper()}{label[1:]}**: {totals.documents:,} documents with {totals.tokens:,} tokens, "
                f"rows of {arguments.max_length:,}. {result['longer']:,} documents are longer than a row. "
                f"{result['bound']:,} full rows would hold all tokens."
            )
        )
        base = result["figures"]["bfd"].seconds
        lines.append(page.table(HEAD, [cells_of(name, one, base) for name, one in result["figures"].items()]) + "\n")
    return "\n".join([*lines, wrapped(page.machine(command_of(arguments)))])


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False) + "\n"


def cells_of(name: str, one: Figures, base: float) -> list[str]:
    return [
        f"`{name}`",
        f"{one.rows:,}",
        f"{one.full:.2%}",
        f"{one.cut:,}",
        f"{one.attention:.1%}",
        *("" if value is None else f"{value:.3f}" for value in one.busiest.values()),
        "" if one.in_row is None else f"{one.in_row:.3f}",
        "" if one.near is None else f"{one.near:,}",
        f"{one.seconds / base:.2f}",
    ]


def drawn(results: dict[str, dict[str, Any]]) -> str:
    """Four figures of each strategy: the shorter the better, but for likeness."""
    sets = list(results.values())

    def of(name: str) -> list[list[float | None]]:
        figures: list[Figures] = [one["figures"][name] for one in sets]
        return [
            [100 * (1 - one.full) for one in figures],
            [100 * one.cut / every["totals"].documents for one, every in zip(figures, sets, strict=True)],
            [one.busiest[RANKS[0]] for one in figures],
            [one.in_row for one in figures],
        ]

    titles = ["empty, %", "documents cut, %", f"busiest of {RANKS[0]} / mean", "likeness in a row"]
    return plot.panels("Rows by each strategy", titles, list(results), {name: of(name) for name in CONTENDERS})


def command_of(arguments: argparse.Namespace) -> str:
    """As it was given, without paths."""
    options = ["--corpus CORPUS"] if arguments.corpus else [f"--megabytes {arguments.megabytes:g}"]
    options += ["--tokenizer TOKENIZER"] if arguments.tokenizer != str(TOKENIZER) else []
    options += [f"--limit {arguments.limit}"] if arguments.limit else []
    numbers = f"--documents {arguments.documents} --max-length {arguments.max_length} --rounds {arguments.rounds}"
    return " ".join(["python scripts/bench_strategies.py", *options, numbers])


if __name__ == "__main__":
    main()
