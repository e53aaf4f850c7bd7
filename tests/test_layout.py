"""The rooms of the house: imports run strictly downward, and the doors load nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import packer

ROOT = Path(packer.__file__).parent

# From the ground up: a module imports only from lines above its own, or from its own package.
ROOMS = [
    "errors schema plan threads conversation",
    "lengths interleave windowing similarity",
    "metrics",
    "packing rows batching balancing",
    "pricing sampling relating",
    "recommending",
    "remote memory",
    "corpus typed tokenizer staging alignment versions loading",
    "engines identity chat",
    "encoding shards cutting",
    "planning",
    "manifest rendering chat_summary holdout blocks counting",
    "reader stored packings_summary job",
    "torch",
    "stage executors length_file",
    "committed attempts run_facts",
    "commit",
    "measuring upload",
    "stats",
    "finish running",
    "writing",
    "pipeline dryrun",
    "verify",
    "report terminal",
    "inspection",
    "page",
    "cli",
]
PURE = {name for line in ROOMS[:6] for name in line.split()} - {"threads"}  # NumPy only, no files, no clock


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "packer"


def imports(path: Path) -> set[str]:
    """Modules that a file imports anywhere, function bodies included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module == "packer" else {node.module}
    return found


def modules() -> dict[str, Path]:
    paths = sorted(ROOT.rglob("*.py"))
    return {".".join(("packer", *path.relative_to(ROOT).with_suffix("").parts)): path for path in paths}


def test_every_module_has_a_room() -> None:
    known = {name for line in ROOMS for name in line.split()} | {"__init__", "__main__"}
    assert {room(name) for name in modules()} <= known


def test_imports_run_downward() -> None:
    level = {name: i for i, line in enumerate(ROOMS) for name in line.split()}
    wrong = []
    for name, path in modules().items():
        own = room(name)
        if own in ("__init__", "__main__"):
            continue
        for imported in imports(path):
            other = room(imported) if imported.startswith("packer") else own
            if other != own and other in level and level[other] >= level[own]:
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_no_cycles_within_a_package() -> None:
    names = modules()
    graph = {name: {i for i in imports(path) if i in names and i != name} for name, path in names.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above, name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_pure_rooms_touch_nothing_but_numpy_and_one_a_solver() -> None:
    allowed = set(sys.stdlib_module_names) - {"os", "pathlib", "time", "datetime", "random", "io", "subprocess"}
    for name, path in modules().items():
        if room(name) in PURE:
            tops = {i.split(".")[0] for i in imports(path)}
            solver = {"highspy"} if name.startswith("packer.packing.cutting_stock.") else set()
            assert tops <= allowed | {"numpy", "packer"} | solver, name


def test_only_the_command_line_imports_click() -> None:
    assert [n for n, p in modules().items() if "click" in imports(p) and room(n) != "cli"] == []


def test_the_command_line_loads_nothing_heavy() -> None:
    heavy = ["numpy", "pyarrow", "tokenizers", "datasets", "torch", "transformers", "tqdm", "orjson", "highspy"]
    code = f"import sys, packer.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_changes_no_environment() -> None:
    code = (
        "import os; before = dict(os.environ); import packer.pipeline, packer.verify; print(dict(os.environ) == before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
