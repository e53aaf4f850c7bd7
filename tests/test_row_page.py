"""The page of `packer inspect --html`: rows as they are stored, texts that stay texts, and in a browser it works."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from packer import inspection, manifest
from packer.cli import main
from packer.inspection import Row, Vocabulary
from packer.page import rows as page

TOKENIZER = Path(__file__).parents[1] / "sample_data" / "tokenizer"
NASTY = "</script><script>alert(1)</script>\n<!-- &amp; \x1b\u202e'\"{{ 7 * 7 }}{% x %}"


@dataclass
class Shown:
    """A segment's <pre>: its text as copying gives it, the characters of it that are marked, its tokens' counts."""

    text: str = ""
    marked: str = ""
    counts: list[int] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)


class Read(HTMLParser):
    """What a browser makes of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.segments: list[Shown] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self._inside = ""
        self._depth: list[str] = []
        self._json = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.links += [str(values[name]) for name in ("src", "href", "srcset", "action", "data") if name in values]
        if tag == "pre" and "tokens" in str(values.get("class")):
            self.segments.append(Shown())
            self._inside = "pre"
        elif self._inside == "pre":
            if tag in ("mark", "span"):
                self.segments[-1].counts.append(int(values.get("data-n") or 1))
            self._depth.append(tag)
        elif tag == "script":
            self._inside, self._json = "script", str(values.get("type"))

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""
        elif self._inside == "pre":
            assert self._depth.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._inside == "pre":
            self.segments[-1].text += data
            if "mark" in self._depth:
                self.segments[-1].marked += data
        elif self._inside == "script" and self._json == "application/json":
            self.segments[-1].figures = json.loads(data)


@dataclass
class Packed:
    out: Path
    manifest: manifest.Manifest
    rows: list[Row]

    def page(self, vocabulary: Vocabulary | None, command: str = "packer inspect") -> str:
        return page.render(str(self.out), self.manifest, self.rows, vocabulary, command)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """A row of a nasty text with an emoji, of which the second half is trained, and of one that is all trained."""
    folder = tmp_path_factory.mktemp("page")
    encode = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).encode
    first = [encode(NASTY).ids, encode(" 🦊 answer\n\twith a tab<|endoftext|>").ids]
    second = encode("plain text " * 40).ids
    lines = [
        {"input_ids": first[0] + first[1], "loss_mask": [0] * len(first[0]) + [1] * len(first[1])},
        {"input_ids": second, "loss_mask": [1] * len(second)},
    ]
    source = folder / "<b>in & out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SystemExit) as ended:
        main(["pack", str(source), "--max-length", "512", "--out", str(folder / "set"), "--quiet"])
    assert not ended.value.code
    facts = manifest.load(folder / "set")
    return Packed(folder / "set", facts, list(inspection.read_rows(folder / "set", facts, [0])))


def test_it_shows_the_rows(packed: Packed, vocabulary: Vocabulary) -> None:
    read = Read(packed.page(vocabulary))
    assert len(read.segments) == len(packed.rows[0].segments) == 2
    for shown, segment in zip(read.segments, packed.rows[0].segments, strict=True):
        assert sum(shown.counts) == len(segment.ids) == len(shown.figures["ids"])
        assert shown.figures["ids"] == segment.ids.tolist()
        assert shown.figures["labels"] == segment.labels.tolist()
        assert (shown.figures["offset"], shown.figures["position"]) == (segment.offset, segment.position)
    by_document = {
        segment.document: shown for shown, segment in zip(read.segments, packed.rows[0].segments, strict=True)
    }
    answer = " 🦊 answer\n\twith a tab<|endoftext|>"
    assert by_document[0].text == NASTY.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e") + answer
    assert by_document[0].marked == answer
    assert by_document[1].text == "plain text " * 40
    assert by_document[1].text.endswith(by_document[1].marked)
    assert 0 < len(by_document[1].marked) < len(by_document[1].text)


def test_ids_without_a_tokenizer(packed: Packed) -> None:
    text = packed.page(None)
    for shown, segment in zip(Read(text).segments, packed.rows[0].segments, strict=True):
        assert [int(word) for word in shown.text.split()] == segment.ids.tolist()
        assert [int(word) for word in shown.marked.split()] == segment.ids[segment.trained].tolist()
    assert "control token" not in text


def test_texts_stay_texts(packed: Packed, vocabulary: Vocabulary) -> None:
    command = "packer inspect '<script>alert(2)</script>' \udcff"
    text = packed.page(vocabulary, command)
    read = Read(text)
    assert "<script>alert" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "{{ 7 * 7 }}" in read.segments[0].text + read.segments[1].text
    assert read.tags.count("script") == len(read.segments) + 1
    assert "<b>in" not in text
    assert "&lt;b&gt;in &amp; out.jsonl, record 0" in text
    assert html.escape("packer inspect '<script>alert(2)</script>'").replace("&#x27;", "&#39;") + " \\udcff" in text


def test_nothing_is_loaded(packed: Packed, vocabulary: Vocabulary) -> None:
    text = packed.page(vocabulary)
    assert all(link.startswith("#row-0-") for link in Read(text).links)
    assert re.findall("https?:|//cdn|@import|url\\(|fetch\\(", text) == []
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'; ")


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 9, "0%"), (9, 9, "100%"), (1, 10**6, "0.01%"), (10**6 - 1, 10**6, "99.99%"), (1, 2, "50.0%")],
)
def test_share(part: int, whole: int, text: str) -> None:
    assert page._share(part, whole) == text


def test_command(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["inspect", str(packed.out), *arguments])
        done = capsys.readouterr()
        return int(ended.value.code or 0), done.out + done.err

    code, said = run("--html", "x.html", "--tokenizer", str(TOKENIZER))
    assert (code, said.splitlines()[-1]) == (0, "1 row written to x.html")
    assert len(Read(Path("x.html").read_text(encoding="utf-8")).segments) == 2
    assert "answer" in "".join(shown.marked for shown in Read(Path("x.html").read_text(encoding="utf-8")).segments)
    assert run("--html", "ids.html", "--quiet") == (0, "")
    assert "answer" not in "".join(shown.text for shown in Read(Path("ids.html").read_text(encoding="utf-8")).segments)
    for wrong in ("nowhere/x.html", str(packed.out / "x.html")):
        code, said = run("--html", wrong)
        assert code == 2
        assert "must be in a folder that exists, and not in OUT" in said
    for wrong, reason in (("3:3", "holds no row"), ("1:", "neither"), ("0:9", "has rows 0 to 0"), ("x", "neither")):
        code, said = run("--row", wrong)
        assert (code, reason in said) == (2, True), said


# --- in a browser ----------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium")
in_browser = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [pytest.param(width, marks=in_browser) for width in (375, 1280)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_and_tells(
    browser: Any, packed: Packed, vocabulary: Vocabulary, tmp_path: Path, width: int, scheme: str
) -> None:
    file = tmp_path / "row #1.html"
    file.write_text(packed.page(vocabulary), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("dialog", lambda dialog: wrong.append(dialog.message))
    tab.on("request", lambda request: request.url == file.as_uri() or wrong.append(request.url))
    tab.goto(file.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    for number, segment in enumerate(packed.rows[0].segments):
        pre = tab.locator("pre.tokens").nth(number)
        pre.focus()
        seen: list[list[int]] = []
        for at in range(pre.locator("> *").count()):
            last = at >= 12  # after these only the last one
            element = pre.locator("> *").nth(-1 if last else at)
            element.scroll_into_view_if_needed()
            element.hover()
            tab.wait_for_selector("#tip:visible")
            trained = element.evaluate("element => element.tagName") == "MARK"
            assert tab.inner_text("#tip b") == ("trained" if trained else "not trained")
            rows = tab.locator("#tip tr:has(td)").all_inner_texts()
            seen += [[int(cell) for cell in row.split()] for row in rows]
            box = tab.locator("#tip").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert trained == bool(segment.trained[seen[-1][4] - segment.offset])
            tab.keyboard.press("Escape")
            assert tab.is_hidden("#tip")
            if last:
                break
        for i, label, position, in_document, in_row in seen:
            k = in_row - segment.offset
            assert (i, label) == (segment.ids[k], segment.labels[k])
            assert (position, in_document) == (segment.position + k, segment.start + k)
        assert seen[-1][4] == segment.offset + len(segment.ids) - 1
    tab.focus("pre.tokens >> nth=0")
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
        tab.wait_for_timeout(100)
    assert tab.locator("pre.tokens >> nth=0").locator("> *").nth(2).evaluate("element => element.className") == "at"
    tab.check("#edges")
    tab.click(".copy >> nth=0")
    assert tab.inner_text(".copy >> nth=0") == "Copied"
    copied = tab.evaluate("getSelection().toString()")
    assert copied.split() == Read(packed.page(vocabulary)).segments[0].text.split()
    assert wrong == []
    context.close()
