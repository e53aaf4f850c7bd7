"""The hostile strings: the same everywhere, every character in them, no more than a trial can take."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from packer.engines import hostile

ADDED, PIECES = ["<|end|>", "<s>", "é"], ["Ġthe", "▁a", "<0x0A>"]


@pytest.fixture(scope="module")
def strings() -> list[str]:
    return hostile.strings(ADDED, PIECES)


def digest(strings: list[str]) -> str:
    return hashlib.sha256("\0\0".join(strings).encode()).hexdigest()


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_same_in_every_process(strings: list[str], seed: str) -> None:
    code = (
        "import hashlib; from packer.engines import hostile; "
        f"print(hashlib.sha256('\\0\\0'.join(hostile.strings({ADDED!r}, {PIECES!r})).encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(strings) == digest(hostile.strings(ADDED, PIECES))


def test_every_character_of_two_planes(strings: list[str]) -> None:
    met = set().union(*strings)
    assert {chr(point) for point in range(0x20000) if not 0xD800 <= point < 0xE000} <= met
    assert {"\U00020000", "\U000e0001", "\U000f0000", "\U00100000"} & met
    "".join(strings).encode()  # no surrogate


def test_what_has_told_engines_apart(strings: list[str]) -> None:
    text = "\n\n".join(strings)
    for part in (
        "\r\n",
        "\0",
        "a\u0301",
        "'ll",
        "\u2019s",
        "\u180e",
        " " * 5000,
        "a" * 8000,
        "中" * 2000,
        "\u1112\u1161",
    ):
        assert part in text
    for token in ADDED:
        for around in (f"a{token}b", f" {token} ", f"\n{token}\n", token * 2, f"1{token}2"):
            assert around in text
    assert any("Ġthe" in string and "▁a" in string for string in strings)


def test_bounded(strings: list[str]) -> None:
    assert 5_000 < len(strings) < 20_000
    assert sum(map(len, strings)) < 2 << 20
    assert max(map(len, strings)) <= 8_000
    many = hostile.strings([f"<unused{i}>" for i in range(2000)], PIECES)
    assert sum(map(len, many)) < 4 << 20


def test_without_added_tokens_or_pieces() -> None:
    strings = hostile.strings([], [])
    assert len(strings) > 5_000
    assert "" in strings
