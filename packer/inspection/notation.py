r"""A segment's text in plain characters, so that no text can pass for what it is not.

    ⟨<|user|>⟩Two\n
    fish?⟨<|assistant|>⟩⟦Yes: \⟦so\⟧.⟨<|end|>⟩⟧

    ⟦ ⟧   trained                  in ASCII [ ]
    ⟨ ⟩   a control token          in ASCII { }; #7 in it is the id of a token that has no text
    \     before a sign or another \ : that character itself; \n \r \t are what they are in Python; \x1b is a character
          below \x80, from there on a byte that is no part of a character; \u0085, \U000e0001 are characters that would
          not show
    a line ends after each \n of the text; that end and the four blanks of the next line are no text

Backslashes, and the four signs where they are text, always have a backslash before them. So the notation reads back to
the exact bytes of the text and, for each, whether it is trained: the tests do that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from packer.inspection.pieces import Unit

LINES = re.compile("[^\n]*\n|[^\n]+")
NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True)
class Signs:
    """What encloses trained text and control tokens, and the encoding that has to hold all that is written."""

    trained: tuple[str, str]
    control: tuple[str, str]
    encoding: str


def signs_for(encoding: str) -> Signs:
    """Those that the encoding has."""
    if _can_write("⟦⟧⟨⟩", encoding):
        return Signs(("⟦", "⟧"), ("⟨", "⟩"), encoding)
    return Signs(("[", "]"), ("{", "}"), encoding)


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def escape_of(c: str, encoding: str = "utf-8") -> str | None:
    r"""How a character is shown that cannot show itself; None for one that can.   '\x1b' -> '\\x1b', 'é' -> None"""
    code = ord(c)
    if c in NAMED:
        return NAMED[c]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no part of a character (`surrogateescape`)
        return f"\\x{code - 0xDC00:02x}"
    if c.isprintable() and _can_write(c, encoding):
        return None
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def escaped(text: str, encoding: str = "utf-8") -> str:
    r"""Characters that cannot show themselves as escapes, all others as they are.   'a\n\x1b' -> 'a\\n\\x1b'"""
    return "".join(escape_of(c, encoding) or c for c in text)


def lines(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """The units line by line: a line ends after a newline of the text; a unit with one inside is cut there."""
    line: list[Unit] = []
    for unit in units:
        for text in LINES.findall(unit.text) if unit.kind == "text" else [unit.text]:
            line.append(replace(unit, text=text))
            if unit.kind == "text" and text.endswith("\n"):
                yield line
                line = []
    if line:
        yield line


def text_lines(units: Iterable[Unit], signs: Signs) -> Iterator[str]:
    """The text in the notation, line by line. A trained stretch that goes on is opened anew in each line."""
    for line in lines(units):
        stretches = groupby(line, key=lambda unit: unit.trained)
        yield "".join(
            _bracketed(trained, "".join(_written(unit, signs) for unit in same), signs) for trained, same in stretches
        )


def id_line(ids: Sequence[int], trained: Sequence[bool], shown: int, signs: Signs) -> str:
    """The first ids, with trained stretches enclosed as in the text."""
    pairs = list(zip(ids[:shown], trained[:shown], strict=True))
    stretches = groupby(pairs, key=lambda pair: pair[1])
    text = " ".join(_bracketed(flag, " ".join(str(i) for i, _ in same), signs) for flag, same in stretches)
    return text + (f" ... {len(ids) - shown} more" if len(ids) > shown else "")


def _bracketed(trained: bool, text: str, signs: Signs) -> str:
    return text.join(signs.trained) if trained else text


def _written(unit: Unit, signs: Signs) -> str:
    own = {"\\", *signs.trained, *signs.control}
    text = "".join(f"\\{c}" if c in own else escape_of(c, signs.encoding) or c for c in unit.text)
    if unit.kind == "text":
        return text
    if unit.kind == "control" and text.startswith("#"):
        text = f"\\{text}"  # no id
    return text.join(signs.control)
