"""Measures packer beside the raw tokenizer call and what users do otherwise; writes a report in Markdown.

    python scripts/bench.py [--corpus FILE|FOLDER ... --tokenizer T --label L] [--only PART] [--json FILE] [--write]

Contenders take turns within one run (A B C A B C ...) and medians are compared, so that a busy machine disturbs all
of them alike. CPU seconds stand beside wall time, for they feel other jobs less. Without --corpus a corpus is made from
`sample_data`, the same at each run. See `benchmarks` for the parts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import chats, end_to_end, memory, page, planning, plot
from benchmarks.contest import Results
from benchmarks.inputs import ROOT, TOKENIZER, corpus_of, write_chats, write_generated

PARTS = ("end-to-end", "chats", "planning", "memory")
CORPUS_BYTES = 32_000_000
PLOT = ROOT / "docs" / "speed.svg"
PLOTTED = {
    "packer pack --format arrow": "packer, Arrow",
    "packer pack": "packer, Parquet",
    "datasets + TRL": "datasets + TRL",
    "datatrove, without packing": "datatrove (does not pack)",
    "litData, without packing": "litData (does not pack)",
    "as Megatron, without packing": "as Megatron (does not pack)",
}


def run(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Figures by part, and the report's sections."""
    results: dict[str, Any] = {}
    sections = []
    parts = arguments.only or PARTS
    with tempfile.TemporaryDirectory() as folder:
        if "end-to-end" in parts:
            given = arguments.corpus
            if not given:
                given = [Path(folder, "generated.jsonl")]
                write_generated(given[0], arguments.megabytes * 1_000_000)
            corpus = corpus_of(given, Path(folder))
            results["end-to-end"] = end_to_end.measure(
                corpus, arguments.tokenizer, arguments.rounds, arguments.slow_rounds, arguments.contenders
            )
            sections.append(end_to_end.report(results["end-to-end"], f"End to end: {arguments.label}"))
        if "chats" in parts:
            path = Path(folder, "chats.jsonl")
            write_chats(path, chats.COUNT, chats.CHARACTERS)
            source = arguments.tokenizer
            rounds, slow = arguments.rounds, min(arguments.rounds, arguments.slow_rounds + 1)
            results["chats"] = chats.measure(corpus_of([path], Path(folder)), source, rounds, slow)
            sections.append(chats.report(results["chats"], f"Short chats: {Path(source).name} tokenizer"))
    if "planning" in parts:
        results["planning"] = planning.measure(arguments.rounds)
        sections.append(planning.report(results["planning"]))
    if "memory" in parts:
        results["memory"] = memory.measure(arguments.rounds)
        sections.append(memory.report(results["memory"]))
    return results, [f"{section}\n{page.machine(command_of(arguments))}" for section in sections]


def command_of(arguments: argparse.Namespace) -> str:
    """As it was given, without paths."""
    options = [f"--only {' '.join(arguments.only)}"] if arguments.only else []
    options += ["--corpus CORPUS"] if arguments.corpus else []
    options += ["--tokenizer TOKENIZER"] if arguments.tokenizer != str(TOKENIZER) else []
    options += [f"--contenders {' '.join(map(repr, arguments.contenders))}"] if arguments.contenders else []
    rounds = f"--rounds {arguments.rounds} --slow-rounds {arguments.slow_rounds}"
    return " ".join(["python scripts/bench.py", *options, rounds])


def bars_of(result: dict[str, Any], label: str) -> str | None:
    """The plot of MB/s, fastest first; None where there is nothing to compare."""
    found: Results = result["results"]
    values = [
        (name, result["megabytes"] / found.typical(key), key.startswith("packer"))
        for key, name in PLOTTED.items()
        if found.of(key)
    ]
    if len(values) < 2:
        return None
    values.sort(key=lambda value: -value[1])
    return plot.bars(f"MB of text a second, whole process: {label}", values)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description="Measure packer; print a report in Markdown.")
    result.add_argument(
        "--corpus",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="JSON Lines with a text field; also .zst, .gz",
    )
    result.add_argument("--tokenizer", default=str(TOKENIZER), metavar="T", help="a folder (default: sample_data's)")
    result.add_argument("--label", default="generated text, sample tokenizer", help="name of the corpus in the report")
    result.add_argument("--only", choices=PARTS, nargs="+", help="measure these parts")
    result.add_argument(
        "--contenders", nargs="+", default=[], metavar="WORD", help="end to end: those whose name holds one of these"
    )
    result.add_argument("--megabytes", type=int, default=CORPUS_BYTES // 1_000_000, help="of generated text")
    result.add_argument("--rounds", type=int, default=5, help="turns of each contender (default: %(default)s)")
    result.add_argument("--slow-rounds", type=int, default=1, help="... of the slow ones (default: %(default)s)")
    result.add_argument("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
    result.add_argument("--write", action="store_true", help="put the sections into docs/benchmarks.md")
    result.add_argument("--plot", action="store_true", help="draw docs/speed.svg from the end-to-end part")
    return result


def main() -> None:
    arguments = parser().parse_args()
    results, sections = run(arguments)
    print("\n".join(sections))
    if arguments.json:
        text = json.dumps(results, indent=1, default=lambda value: value.to_json())
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if arguments.write:
        page.write(sections)
    if arguments.plot and (drawn := bars_of(results["end-to-end"], arguments.label)):
        PLOT.write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()
