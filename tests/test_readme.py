"""Every block of README.md is run: commands print what it shows, Python runs, make targets exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
README = (REPO / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_every_block_is_of_a_kind_that_is_run() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "console", "python"}


def test_commands_print_what_is_shown(tmp_path: Path) -> None:
    """In order and in one folder, as a reader would. A line's `...` at its end stands for anything."""
    (tmp_path / "sample_data").symlink_to(REPO / "sample_data")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = 0
    for kind, body in BLOCKS:
        if kind == "console":
            command, _, expected = body.partition("\n")
            done = subprocess.run(
                command.removeprefix("$ "),
                shell=True,
                cwd=tmp_path,
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            pattern = ".*".join(re.escape(part) for part in re.split(r"(?<=  )\.\.\.$", expected, flags=re.MULTILINE))
            assert re.fullmatch(pattern, done.stdout), done.stdout
        elif kind == "python":
            subprocess.run([sys.executable, "-c", body], cwd=tmp_path, timeout=120, check=True)
        run += 1
    assert run == len(BLOCKS) >= 5


def test_make_targets_exist() -> None:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    for kind, body in BLOCKS:
        for line in body.splitlines() if kind == "sh" else ():  # all else is console, and run above
            target = re.match(r"make (\S+)", line)
            assert target, line
            assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), line


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (REPO / target).exists(), target


@pytest.mark.slow
def test_make_demo_on_a_bare_copy(tmp_path: Path) -> None:
    """Needs the package registry: it makes its own virtual environment."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, tmp_path / name)
    done = subprocess.run(["make", "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "as few rows as can be" in done.stdout
    assert "tokens compared with INPUT" in done.stdout
    assert "segment 0: document" in done.stdout
    assert sorted(p.name for p in (tmp_path / "demo").iterdir()) == ["data", "manifest.json"]


def test_links_within_the_documentation_lead_somewhere() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in (REPO / "docs").glob("*.md")}
    for path, text in pages.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            found = path.parent / name if name else path
            assert found.exists(), f"{path.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor in slugs, f"{path.name}: {target}"
