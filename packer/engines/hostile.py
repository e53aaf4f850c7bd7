"""Strings on which tokenizers that claim to be equal have differed: what a fast engine must get right to be used.

They are the same in every run. Engines have differed in what they take for a letter, a number, a mark or white space
(each knows its own version of Unicode), in where a pattern's alternatives meet, in what normalization moves, and in how
a control token is found in a text.
"""

# ruff: noqa: RUF001  characters that look like others are what this is about

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

VERSION = 2  # of this list: a verdict on an older one is not one on this
SURROGATES = range(0xD800, 0xE000)
WHOLE_PLANES = range(0x20000)  # where scripts, marks, numbers and emoji are
SPARSE_PLANES = ((0x20000, 0x34000), (0xE0000, 0xE01F0), (0xF0000, 0x110000))  # ideographs, tags, private use
RUN = 48  # code points a string

SPACES = (
    "\t\n\x0b\x0c\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u2060"
    "\u3000\ufeff"
)
SCRIPTS = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "٠١٢٣٤٥²³¹½Ⅷ①፩〇",
    " \t\n\r \u3000",
    ".,;:!?-_/\\|@#$%^&*()[]{}<>\"'`~+=",
    "éèüßñçøåæœłžšİıſKÅµ",
    "абвгдежзийклмнопАБВГД",
    "αβγδεζηθΑΒΓΔ",
    "אבגדהוזחטי\u05b0\u05b1",
    "ابتثجحخدذرز\u064b\u064c\u0651",
    "अआइईउकखगघङ\u093f\u094d\u0902",
    "กขคงจฉชซ\u0e31\u0e34\u0e48",
    "你好世界中文字符测试",
    "ひらがなカタカナｶﾀｶﾅ゙",
    "한국어\u1112\u1161\u11ab",
    "😀👍🏽👩\u200d👩\u200d👧🇩🇪❤️",
    "\u0300\u0301\u0302\u0327\u0338\u20d0\ufe0f\u200d\u200c",
    "\x00\x01\x07\x08\x1b\x7f\x80\x9f\ufffd\uffff",
)
CONTRACTIONS = "'s 'S 't 'T 're 'RE 'Re 've 'm 'M 'll 'LL 'lL 'd 'D ’s ʼs 'ſ 'K '' 'x '1 's's 'sth 'llama 'réel"
LINES = (
    "",
    "a\r\nb\r\n\r\nc\r\r\nd\n\r\n",
    "\r\n" * 40,
    "a\x00b\x00\x00 c\x00",
    "def f(x):\n\tif x:\n\t\treturn  x   # \u3000 no\n\n\n",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org 12:30:45 3.14159e-10 1,234,567.89",
    "<0x0A> a<0x41>b <0x84>Gri <0xE4><0xB8><0xAD> <0xff> <0x0> 0x3C <0x3C> <0x20>, as a token of a byte is written",
    "\\u00e9 \\n &amp; <p>text</p> <!-- --> ${x} %s {{y}} [[z]] ``` *** --- ___ ...",
    "Å Å A\u030a ﬁ ﬀ ① ㎏ ﷺ ｆｕｌｌ Ω K Ω q\u0307\u0323 q\u0323\u0307 가 \u1100\u1161 각\u11a8",
)


def strings(added: Sequence[str], pieces: Sequence[str]) -> list[str]:
    """added: texts of the tokenizer's added tokens; pieces: tokens of its vocabulary, as they stand there."""
    dice = random.Random(0)
    found = [*LINES, *CONTRACTIONS.split(" "), CONTRACTIONS]
    found += [f"{base}{one}" for one in CONTRACTIONS.split(" ") for base in ("I", "Ünï", "12", " ", "\n", "!")]
    found += _code_points()
    found += _spaces(dice)
    found += _long_lines(dice)
    found += [_mixture(dice, dice.randrange(1, 120)) for _ in range(800)]
    found += _around(dice, added)
    found += ["".join(dice.choices(pieces, k=6)) for _ in range(200 if pieces else 0)]
    return found


def _code_points() -> Iterator[str]:
    """Every code point where characters are, beside its neighbours, and within letters, numbers, spaces and quotes."""
    sparse = (point for first, last in SPARSE_PLANES for point in range(first, last, 97))
    points = [point for point in (*WHOLE_PLANES, *sparse) if point not in SURROGATES]
    for start in range(0, len(points), RUN):
        run = [chr(point) for point in points[start : start + RUN]]
        yield "".join(run)
        yield "".join(f"x{c}y {c}" if i % 2 else f"1{c}\n{c}'s" for i, c in enumerate(run))


def _spaces(dice: random.Random) -> Iterator[str]:
    for space in SPACES:
        for count in (*range(1, 9), 16, 17, 64, 100):
            yield f"{space * count}a{space * count}1{space * count}.{space * count}"
    for _ in range(300):
        inside = "".join(dice.choices(SPACES, k=dice.randrange(1, 30)))
        yield f"{dice.choice('a1.é中')}{inside}{dice.choice('a1.é中')}"
    yield from (" " * 5000 + "a", "a" + "\n" * 3000, "\t" * 3000, "a" + " \n" * 1000)


def _long_lines(dice: random.Random) -> Iterator[str]:
    """Words longer than any cache or table is made for."""
    for script in SCRIPTS:
        yield "".join(dice.choices(script, k=1500))
    yield from ("a" * 8000, "ab" * 3000, "=" * 4000, "7" * 3000, "é" * 2000, "中" * 2000, "👍" * 500, "a\u0301" * 1000)


def _mixture(dice: random.Random, length: int) -> str:
    scripts = dice.sample(SCRIPTS, 4)
    return "".join("".join(dice.choices(dice.choice(scripts), k=dice.randrange(1, 6))) for _ in range(1 + length // 4))


def _around(dice: random.Random, added: Sequence[str]) -> Iterator[str]:
    """Added tokens whole, cut, doubled, inside words, and among spaces and other tokens."""
    for token in added:
        yield from (
            token,
            token * 2,
            f"a{token}b",
            f" {token} ",
            f"\n{token}\n",
            f"a {token}  {token[:-1]} {token[1:]}",
        )
        yield from (f"{token}'s 1{token}2", token.upper(), f"中{token}é\u0301", f"{token[:2]}{token}{token[-2:]}")
    for _ in range(300 if added else 0):
        yield "".join(dice.choice(added) + _mixture(dice, dice.randrange(0, 20)) for _ in range(dice.randrange(1, 6)))
