"""Measures packer and writes a report in Markdown: the cost beyond the tokenizer, planning against TRL's, memory.

    python scripts/bench.py [--corpus FILE.jsonl[.zst|.gz] --tokenizer T] [--only PART] [--json FILE] [--write]

Contenders take turns within one run (A B C A B C ...) and medians are compared, so that a busy machine disturbs all
of them alike. Where the tokenizer is the yardstick it is timed before and after each turn, and a turn is divided by
the mean of the two: a slow minute is then slow on both sides. CPU seconds stand beside wall time, for they feel other
jobs less. Without --corpus a corpus is made from `sample_data`, the same at each run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from statistics import mean, median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers

from packer import packing, pipeline, stats, tokenizer
from packer.corpus import ReadOptions
from packer.finish import Output
from packer.metrics import lower_bound
from packer.plan import Int32Array, offsets_of
from packer.pricing import Terms
from packer.schema import Layout
from packer.stage import Job, TokenizerOptions

ROOT = Path(__file__).parents[1]
ARTICLES = ROOT / "sample_data" / "articles.jsonl"
TOKENIZER = ROOT / "sample_data" / "tokenizer"
REPORT = ROOT / "docs" / "benchmarks.md"
PARTS = ("end-to-end", "planning", "memory")
CORPUS_BYTES = 32_000_000
MAX_LENGTH = 2048
BATCH_CHARS = (1 << 20, 1 << 21, 1 << 22, 1 << 24)  # sizes of a tokenizer call to choose from
TRIAL_CHARS = 1 << 23  # of the corpus, for choosing
TRIALS = 3
COUNTS = (100_000, 1_000_000)  # documents to plan
MAX_LENGTHS = (2048, 8192, 32768)
STRATEGIES = ("bfd", "ffd", "first-fit")
LENGTH_MEDIAN, LENGTH_SIGMA = 600, 1.2  # of the lognormal lengths, in tokens, before they are clipped
TRL_ONCE_FROM = 1_000_000  # documents from which one run of TRL's has to do
BLOCKS = (1, 10)
BLOCK_TOKENS = 8_000_000
SEED = 0
# Between the benchmark and the process that is measured: a child's peak counts what its parent held when it began.
PEAK = "import resource, subprocess as s, sys; s.run(sys.argv[1:], check=True, stdout=s.DEVNULL); "
PEAK += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"


@dataclass(frozen=True)
class Cost:
    """Seconds of wall time, and of CPU over all threads and finished children."""

    wall: float
    cpu: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.wall - other.wall, self.cpu - other.cpu)


def now() -> Cost:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Cost(perf_counter(), sum(usage.ru_utime + usage.ru_stime for usage in usages))


def measured(function: Callable[[], object]) -> Cost:
    """What the call costs; freeing what it returns is not in it."""
    start = now()
    kept = function()
    cost = now() - start
    del kept
    return cost


# Corpus


def texts_of(path: Path) -> list[str]:
    data = path.read_bytes()
    if path.suffix == ".zst":
        from backports import zstd

        data = zstd.decompress(data)
    elif path.suffix == ".gz":
        data = gzip.decompress(data)
    return [json.loads(line)["text"] for line in data.split(b"\n") if line]


def generated(seed: int) -> Iterator[str]:
    """Articles without end: all their paragraphs dealt anew, to as many articles of as many paragraphs each."""
    rng = random.Random(seed)
    articles = [text.split("\n\n") for text in texts_of(ARTICLES)]
    paragraphs = [paragraph for article in articles for paragraph in article]
    while True:
        rng.shuffle(articles)
        rng.shuffle(paragraphs)
        dealt = iter(paragraphs)
        for article in articles:
            yield "\n\n".join(next(dealt) for _ in article)


def write_generated(path: Path, size: int) -> None:
    """JSON Lines of about `size` bytes."""
    with path.open("wb") as file:
        for text in generated(SEED):
            file.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
            if file.tell() >= size:
                return


# End to end


def by_characters(texts: Sequence[str], characters: int) -> Iterator[list[str]]:
    """Batches that end with the text that brings them to so many characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def tokenizer_in_a_new_process(corpus: Path, source: str, size: int) -> Cost:
    """As for the runs it is compared with: nothing is warm but what is loaded before the clock starts."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_tokenizer_alone, corpus, source, size).result()


def _tokenizer_alone(corpus: Path, source: str, size: int) -> Cost:
    return tokenizer_alone(tokenizer.load(source).backend, list(by_characters(texts_of(corpus), size)))


def library_in_a_new_process(call: Callable[[Path, str, Path], None], corpus: Path, source: str, out: Path) -> Cost:
    """`pipeline.pack`, with the tokenizer loaded before the clock starts."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_library, call, corpus, source, out).result()


def _library(call: Callable[[Path, str, Path], None], corpus: Path, source: str, out: Path) -> Cost:
    tokenizer.load(source)
    return measured(partial(call, corpus, source, out))


def tokenizer_alone(backend: tokenizers.Tokenizer, batches: Sequence[list[str]]) -> Cost:
    """`encode_batch_fast` and nothing else: its results are dropped, their ids never taken out."""
    calls = (partial(backend.encode_batch_fast, batch, add_special_tokens=False) for batch in batches)
    return sum(map(measured, calls), Cost(0, 0))


def best_batch(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> int:
    """The size of call that is fastest in a few quick trials."""
    some = next(by_characters(texts, TRIAL_CHARS))
    seconds: dict[int, list[float]] = {size: [] for size in BATCH_CHARS}
    for _ in range(TRIALS):
        for size, walls in seconds.items():
            walls.append(tokenizer_alone(backend, list(by_characters(some, size))).wall)
    return min(seconds, key=lambda size: min(seconds[size]))


def pack_command(corpus: Path, source: str, out: Path, *more: str) -> list[str]:
    options = ["--tokenizer", source, "--max-length", str(MAX_LENGTH), "--out", str(out), *more]
    return [sys.executable, "-m", "packer", "pack", str(corpus), *options]


def run_pack(corpus: Path, source: str, out: Path) -> None:
    subprocess.run(pack_command(corpus, source, out), check=True, stdout=subprocess.DEVNULL)


def run_window(corpus: Path, source: str, out: Path) -> None:
    """End to end: the stride is the size."""
    options = ["--tokenizer", source, "--context-size", str(MAX_LENGTH), "--overlap", "0", "--out", str(out)]
    command = [sys.executable, "-m", "packer", "window", str(corpus), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run_stats(corpus: Path, source: str, out: Path) -> None:  # noqa: ARG001  stats writes nothing
    command = [sys.executable, "-m", "packer", "stats", str(corpus), "--tokenizer", source]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def call_stats(corpus: Path, source: str, out: Path) -> None:  # noqa: ARG001
    """What the command calls, with its defaults."""
    stats.stats([str(corpus)], ReadOptions(), TokenizerOptions(source), stats.MAX_LENGTHS, Terms())


def call_pack(corpus: Path, source: str, out: Path) -> None:
    """What the command calls, with its defaults."""
    job = Job(
        read=ReadOptions(),
        tokenizer=TokenizerOptions(source),
        strategy="bfd",
        max_length=MAX_LENGTH,
        overlong=None,
        min_tokens=0,
        max_segments=None,
        seed=SEED,
        order="shuffle",
        block_tokens=32 << 20,
    )
    pipeline.pack([str(corpus)], out, job, Layout(), Output("train", "parquet", "zstd", None))


def end_to_end(corpus: Path, source: str, rounds: int) -> dict[str, Any]:
    backend = tokenizer.load(source).backend
    texts = texts_of(corpus)
    size = best_batch(backend, texts)
    contenders: dict[str, Callable[[Path, str, Path], Cost]] = {
        "packer pack": lambda *arguments: measured(partial(run_pack, *arguments)),
        "pipeline.pack": partial(library_in_a_new_process, call_pack),
        "packer window": lambda *arguments: measured(partial(run_window, *arguments)),
        "packer stats": lambda *arguments: measured(partial(run_stats, *arguments)),
        "stats.stats": partial(library_in_a_new_process, call_stats),
    }
    alone = [tokenizer_in_a_new_process(corpus, source, size)]
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    ratios: dict[str, list[Cost]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        for _ in range(rounds):
            for name, run in contenders.items():
                cost = run(corpus, source, out)
                if out.exists():
                    totals = json.loads((out / "manifest.json").read_bytes())["totals"]
                    rmtree(out)
                alone.append(tokenizer_in_a_new_process(corpus, source, size))
                costs[name].append(cost)
                wall, cpu = (mean(getattr(turn, clock) for turn in alone[-2:]) for clock in ("wall", "cpu"))
                ratios[name].append(Cost(cost.wall / wall, cost.cpu / cpu))
    return {
        "documents": len(texts),
        "megabytes": sum(len(text.encode()) for text in texts) / 1e6,
        "tokens": totals["tokens"],
        "batch_characters": size,
        "rounds": rounds,
        "costs": {name: [asdict(cost) for cost in of] for name, of in ({"tokenizer alone": alone} | costs).items()},
        "ratios": {name: [asdict(ratio) for ratio in of] for name, of in ratios.items()},
    }


def end_to_end_report(result: dict[str, Any], label: str) -> str:
    rows = []
    fastest = min(cost["wall"] for cost in result["costs"]["tokenizer alone"])
    for name, costs in result["costs"].items():
        ratios = result["ratios"].get(name)
        walls = [cost["wall"] for cost in costs]
        rows.append(
            [
                f"`{name}`" if ratios else name,
                spread(walls),
                f"{result['tokens'] / median(walls) / 1e6:.2f} M",
                spread([ratio["wall"] for ratio in ratios]) if ratios else "1",
                f"{min(walls) / fastest:.3f}",
                spread([cost["cpu"] for cost in costs]),
                spread([ratio["cpu"] for ratio in ratios]) if ratios else "1",
            ]
        )
    return f"""## End to end: {label}

{result["documents"]:,} documents, {result["megabytes"]:.1f} MB of text, {result["tokens"]:,} tokens,
`--max-length {MAX_LENGTH}`, other options at their defaults; {result["rounds"]} rounds.
`packer pack` is the whole process, from the start of Python to the committed data set; so is `packer window`, with
`--overlap 0`, and `packer stats` to the printed figures; `pipeline.pack` and `stats.stats` are the same calls inside a
process that has imported them and loaded the tokenizer. The tokenizer alone is `encode_batch_fast` on the same
texts, in a process of its own that has loaded both, {result["batch_characters"] / 2**20:.0f} M characters a call
(the fastest of
{", ".join(f"{size >> 20}" for size in BATCH_CHARS)} M in a trial), with the same threads; ids are not taken out of its
results. A ratio is a run's time by the mean of the tokenizer's just before and just after
it; beside it the fastest run by the tokenizer's fastest. Figures are medians over the rounds, with their range.

{table(["", "wall, s", "tokens/s", "ratio", "fastest, ratio", "CPU, s", "CPU, ratio"], rows)}
"""


# Planning


def lognormal_lengths(count: int, max_length: int) -> Int32Array:
    drawn = np.random.default_rng(SEED).lognormal(math.log(LENGTH_MEDIAN), LENGTH_SIGMA, count)
    return np.clip(np.rint(drawn), 1, max_length).astype(np.int32)


def hollow_lists(lengths: Int32Array) -> pa.Table:
    """Lists of these lengths whose elements take no memory, so that TRL copies no token: planning is what is left."""
    offsets = offsets_of(lengths)
    values = pa.nulls(int(offsets[-1]))
    return pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)})


def trl_contenders(lengths: Int32Array, max_length: int) -> dict[str, Callable[[], int]]:
    """TRL's public entry, and the function that it maps; each returns its rows."""
    import datasets
    from trl.data_utils import _pack_bfd, pack_dataset

    datasets.disable_progress_bars()
    examples = hollow_lists(lengths)
    dataset = datasets.Dataset(examples)
    whole = {"batch_size": len(lengths)}
    return {
        "TRL pack_dataset": lambda: len(pack_dataset(dataset, max_length, strategy="bfd", map_kwargs=whole)),
        "TRL _pack_bfd": lambda: len(_pack_bfd(examples, max_length)),
    }


def packer_contender(strategy: str, lengths: Int32Array, max_length: int) -> Callable[[], int]:
    pack = packing.load(strategy)
    return lambda: pack(lengths, max_length, rng=np.random.default_rng(SEED)).rows


def plan_once(count: int, max_length: int, rounds: int) -> dict[str, Any]:
    lengths = lognormal_lengths(count, max_length)
    trl = trl_contenders(lengths, max_length)
    contenders = {name: packer_contender(name, lengths, max_length) for name in STRATEGIES} | trl
    costs: dict[str, list[Cost]] = {name: [] for name in contenders}
    rows: dict[str, int] = {}
    for turn in range(rounds):
        for name, run in contenders.items():
            if turn and name in trl and count >= TRL_ONCE_FROM:
                continue
            start = now()
            rows[name] = run()
            costs[name].append(now() - start)
    bound = lower_bound(int(lengths.sum(dtype=np.int64)), max_length)
    return {
        "documents": count,
        "max_length": max_length,
        "lower_bound": bound,
        "rows": rows,
        "costs": {name: [asdict(cost) for cost in of] for name, of in costs.items()},
    }


def planning(rounds: int) -> dict[str, Any]:
    for name in STRATEGIES:  # what is imported or compiled at the first call is not planning
        packer_contender(name, lognormal_lengths(1000, MAX_LENGTH), MAX_LENGTH)()
    return {
        "rounds": rounds,
        "plans": [plan_once(count, length, rounds) for count in COUNTS for length in MAX_LENGTHS],
    }


def planning_report(result: dict[str, Any]) -> str:
    times, fills = [], []
    for plan in result["plans"]:
        begin = [f"{plan['documents']:,}", f"{plan['max_length']:,}"]
        seconds, cpu = (
            {name: median(cost[clock] for cost in of) for name, of in plan["costs"].items()}
            for clock in ("wall", "cpu")
        )
        whole, inner = "TRL pack_dataset", "TRL _pack_bfd"
        times.append(
            [
                *begin,
                *(f"{seconds[name]:.2f} s" for name in (whole, inner)),
                *(f"{seconds[name] * 1e3:,.0f} ms" for name in STRATEGIES),
                *(f"{of[name] / of['bfd']:,.0f}" for name in (whole, inner) for of in (seconds, cpu)),
            ]
        )
        above = [plan["rows"][name] - plan["lower_bound"] for name in ("TRL _pack_bfd", *STRATEGIES)]
        fills.append([*begin, f"{plan['lower_bound']:,}", *(f"+{rows:,}" for rows in above)])
    head = ["documents", "max length"]
    ratios = ["`pack_dataset` / bfd", "same, CPU", "`_pack_bfd` / bfd", "same, CPU"]
    return f"""## Planning, against TRL

Lengths are lognormal (median {LENGTH_MEDIAN} tokens, sigma {LENGTH_SIGMA}), clipped to the max length.
Ours: lengths in, plan out. TRL's: `pack_dataset(..., strategy="bfd")` with all documents in one batch, and
`_pack_bfd`, the function that it maps, called by itself: truncation, the segment tree, the output's offsets. Both are
given lists whose elements take no memory, so neither side copies a token. Medians of {result["rounds"]} rounds; of one
for TRL from {TRL_ONCE_FROM:,} documents on.

{table([*head, "TRL `pack_dataset`", "TRL `_pack_bfd`", *STRATEGIES, *ratios], times)}

Rows, above the lower bound ceil(tokens / max length):

{table([*head, "lower bound", "TRL", *STRATEGIES], fills)}
"""


# Memory


def sample_block_bytes() -> int:
    """Bytes of generated JSON Lines that hold a little less than a block's tokens."""
    backend = tokenizer.load(str(TOKENIZER)).backend
    encodings = backend.encode_batch_fast(texts_of(ARTICLES), add_special_tokens=False)
    bytes_per_token = ARTICLES.stat().st_size / sum(len(encoding) + 1 for encoding in encodings)
    return int(0.9 * BLOCK_TOKENS * bytes_per_token)


def peak_megabytes(command: Sequence[str]) -> float:
    run = subprocess.run([sys.executable, "-S", "-c", PEAK, *command], check=True, capture_output=True, text=True)
    return int(run.stdout) * 1024 / 1e6


def memory(rounds: int) -> dict[str, Any]:
    block_bytes = sample_block_bytes()
    more = ["--block-tokens", str(BLOCK_TOKENS), "--partition-bytes", str(block_bytes + 100_000)]
    peaks: dict[int, list[float]] = {blocks: [] for blocks in BLOCKS}
    tokens: dict[int, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        for blocks in BLOCKS:
            write_generated(Path(folder, f"{blocks}.jsonl"), blocks * block_bytes)
        for _ in range(rounds):
            for blocks, found in peaks.items():
                command = pack_command(Path(folder, f"{blocks}.jsonl"), str(TOKENIZER), out, *more)
                found.append(peak_megabytes(command))
                tokens[blocks] = json.loads((out / "manifest.json").read_bytes())["totals"]["tokens"]
                rmtree(out)
        start = [sys.executable, "-c", "import packer.pipeline"]
        return {"rounds": rounds, "peaks": peaks, "tokens": tokens, "imports": peak_megabytes(start)}


def memory_report(result: dict[str, Any]) -> str:
    medians = {blocks: median(peaks) for blocks, peaks in result["peaks"].items()}
    rows = [
        [
            f"{blocks}",
            f"{result['tokens'][blocks]:,}",
            f"{peak:.0f} MB ({min(result['peaks'][blocks]):.0f} to {max(result['peaks'][blocks]):.0f})",
            f"{peak / medians[BLOCKS[0]]:.2f}",
        ]
        for blocks, peak in medians.items()
    ]
    return f"""## Memory

Peak resident memory of the `packer pack` process over generated text with the sample tokenizer,
`--block-tokens {BLOCK_TOKENS}`, a partition a block; medians of {result["rounds"]} runs each, taking turns.
Importing the library alone takes {result["imports"]:.0f} MB.

{table(["blocks", "tokens", "peak: median (range)", "ratio"], rows)}
"""


# Report


def spread(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def machine_report(arguments: argparse.Namespace) -> str:
    """Where the figures come from. Paths are left out: they say nothing elsewhere."""
    names = ("numpy", "pyarrow", "tokenizers", "datasets", "trl")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    options = [f"--only {part}" for part in [arguments.only] if part]
    options += ["--corpus CORPUS --tokenizer TOKENIZER"] if arguments.corpus else []
    command = " ".join(["python scripts/bench.py", *options, f"--rounds {arguments.rounds}"])
    return f"`{command}` on {os.cpu_count()} cores, Python {platform.python_version()}, {versions}.\n"


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


def run(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Figures by part, and the report's sections."""
    results: dict[str, Any] = {}
    sections = []
    parts = [arguments.only] if arguments.only else PARTS
    if "end-to-end" in parts:
        with tempfile.TemporaryDirectory() as folder:
            corpus = arguments.corpus or Path(folder, "generated.jsonl")
            if arguments.corpus is None:
                write_generated(corpus, CORPUS_BYTES)
            results["end-to-end"] = end_to_end(corpus, arguments.tokenizer, arguments.rounds)
        sections.append(end_to_end_report(results["end-to-end"], arguments.label))
    if "planning" in parts:
        results["planning"] = planning(arguments.rounds)
        sections.append(planning_report(results["planning"]))
    if "memory" in parts:
        results["memory"] = memory(arguments.rounds)
        sections.append(memory_report(results["memory"]))
    return results, [f"{section}\n{machine_report(arguments)}" for section in sections]


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description="Measure packer; print a report in Markdown.")
    result.add_argument("--corpus", type=Path, metavar="FILE", help="JSON Lines with a text field; also .zst, .gz")
    result.add_argument("--tokenizer", default=str(TOKENIZER), metavar="T", help="default: that of sample_data")
    result.add_argument("--label", default="generated text, sample tokenizer", help="name of the corpus in the report")
    result.add_argument("--only", choices=PARTS, help="measure one part")
    result.add_argument("--rounds", type=int, default=5, help="turns of each contender (default: %(default)s)")
    result.add_argument("--json", type=Path, metavar="FILE", help="also write all figures as JSON")
    result.add_argument("--write", action="store_true", help="put the sections into docs/benchmarks.md")
    return result


def main() -> None:
    arguments = parser().parse_args()
    results, sections = run(arguments)
    print("\n".join(sections))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        page = REPORT.read_text(encoding="utf-8") if REPORT.exists() else "# Benchmarks\n"
        for section in sections:
            page = with_section(page, section)
        REPORT.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
