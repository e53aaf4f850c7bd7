"""The page of `packer stats --html`: the figures are there and exact, nothing leaves it, and in a browser it works."""

from __future__ import annotations

import builtins
import html
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import page
from packer.corpus import ReadOptions
from packer.errors import PackerError
from packer.job import TokenizerOptions
from packer.page import charts, tables
from packer.pricing import Model, Terms
from packer.stats import MAX_LENGTHS, Stats, stats, stats_of_lengths

ROOT = Path(__file__).parents[1]
NASTY = "<script>alert(1)</script>.jsonl"
COMMAND = f"packer stats '{NASTY}' --html x.html"


def of_lengths(folder: Path, lengths: Any, max_lengths: Any = MAX_LENGTHS, terms: Terms | None = None) -> Stats:
    folder.mkdir(exist_ok=True)
    file = folder / "lengths.txt"
    file.write_text("".join(f"{length}\n" for length in lengths))
    return stats_of_lengths(file, max_lengths, terms or Terms())


def heavy_tail(count: int) -> Any:
    return np.clip(np.random.default_rng(1).lognormal(5.5, 1.6, count), 1, 3e6).astype(int)


class Read(HTMLParser):
    """What a browser makes of a page: its scripts by id, and the text that is shown without running them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: dict[str, str] = {}
        self.shown: list[str] = []
        self.links: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.text = " ".join(" ".join(self.shown).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id") or tag
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[self._inside] += data
        else:
            self.shown.append(data)


@pytest.fixture(scope="module")
def sample() -> Stats:
    """sample_data, with ranks and a model."""
    tokenizer = TokenizerOptions(str(ROOT / "sample_data" / "tokenizer"))
    terms = Terms(world_size=4, model=Model(768, 12))
    return stats([str(ROOT / "sample_data" / "articles.jsonl")], ReadOptions(), tokenizer, [512, 1024, 4096], terms)


@pytest.fixture(scope="module")
def read(sample: Stats) -> Read:
    return Read(page.render(sample, COMMAND))


def test_the_figures_are_there_without_javascript(sample: Stats, read: Read) -> None:
    expected = [f"{sample.documents:,}", f"{sample.tokens:,}", f"{sample.length.max:,}", html.unescape(COMMAND)]
    expected += sample.recommendation.reason.split("; ")
    for loss in sample.truncation:
        cells = (loss.max_length, loss.documents, tables.share(loss.documents_ratio), loss.tokens)
        expected.append(" ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells))
    assert [text for text in expected if text not in read.text] == []
    for price in sample.strategies:
        assert f"{price.strategy} {tables.share(price.pad_ratio)} {price.rows:,} {tables.above_bound(price)}" in (
            re.sub("> <", "", read.text)
        )
    assert "JavaScript is off" in read.text
    assert "rank tokens (P95)" in read.text
    assert "FLOPs a step" in read.text


def test_columns_without_figures_are_left_out(tmp_path: Path) -> None:
    text = Read(page.render(of_lengths(tmp_path, range(1, 99), [64]), "packer")).text
    assert "above bound" in text
    assert all(word not in text for word in ("rank tokens", "FLOPs", "None", "nan"))


def test_every_column_and_strategy_is_explained(sample: Stats) -> None:
    assert all(column.note.endswith(".") for column in tables.columns(sample))
    assert set(tables.names(sample)) <= set(tables.STRATEGIES)


def test_names_are_text(tmp_path: Path) -> None:
    (tmp_path / "<script>alert(1)<").mkdir(parents=True)
    file = tmp_path / "<script>alert(1)<" / "script>.jsonl"
    file.write_text("".join(f"{n}\n" for n in range(1, 50)))
    text = page.render(stats_of_lengths(file, [16], Terms()), f"packer stats --lengths '{file}' \udcff")
    read = Read(text)
    assert "<script>alert" not in text
    assert f"--lengths '{file}' \\udcff" in read.text
    assert set(read.scripts) == {"style", "data", "plotly", "script"}


def test_json_cannot_end_its_element() -> None:
    assert page._json(["</script><!--"]) == r'["\u003c/script>\u003c!--"]'


def test_nothing_is_loaded(sample: Stats, read: Read) -> None:
    assert read.links == []
    text = page.render(sample, "packer").replace(read.scripts["plotly"], "")
    assert re.findall("https?:|//cdn|@import|url\\(|fetch\\(", text) == []
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'; ")


@pytest.mark.parametrize("count", [1, 2, 400, 30_000])
def test_stops_are_exact_and_few(tmp_path: Path, count: int) -> None:
    lengths = heavy_tail(count)
    data = charts.data(of_lengths(tmp_path, lengths, [100, 1000, 7777]))
    stops = data["stops"]
    assert stops == sorted(set(stops))
    assert len(stops) <= 2000
    assert {100, 1000, 7777, int(lengths.max())} <= set(stops)
    assert {2**n for n in range(31) if stops[0] <= 2**n <= stops[-1]} <= set(stops)
    assert data["longer"] == [str(int((lengths > stop).sum())) for stop in stops]
    assert data["beyond_stop"] == [str(int(np.maximum(lengths - stop, 0).sum())) for stop in stops]
    assert int(data["longer"][-1]) == 0
    assert data["start"] in stops
    assert len(json.dumps(data)) < 60_000


@pytest.mark.parametrize("lengths", [[1], [5] * 9, [1, 2**27], range(1, 300), heavy_tail(30_000)])
def test_bins_hold_every_document(tmp_path: Path, lengths: Any) -> None:
    data = charts.data(of_lengths(tmp_path, lengths, [1 << 20]))
    lengths = np.asarray(lengths, np.int64)
    for bins in (data["linear"], data["log"]):
        edges = np.array(bins["edges"])
        assert np.all(np.diff(edges) > 0)
        assert len(bins["counts"]) == len(edges) - 1 <= 210
        assert bins["counts"] == [int(((lengths >= a) & (lengths < b)).sum()) for a, b in pairwise(edges)]
    assert sum(data["log"]["counts"]) == len(lengths)
    assert sum(data["linear"]["counts"]) + data["beyond"] == len(lengths)
    assert data["beyond"] <= 0.005 * len(lengths) + 1


def test_sums_beyond_int64_stay_exact(sample: Stats) -> None:
    huge = {100: 10**15 + 1, 2_000_000_000: 10**10 + 1}
    data = charts.data(replace(sample, length=replace(sample.length, histogram=huge)))
    at = data["stops"].index(1024)
    assert data["beyond_stop"][at] == str((10**10 + 1) * (2_000_000_000 - 1024))


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "0%"), (1e-9, "<0.01%"), (0.0144, "1.44%"), (0.5, "50.0%"), (0.99999, ">99.9%"), (1, "100%")],
)
def test_share(ratio: float, text: str) -> None:
    assert tables.share(ratio) == text


@pytest.mark.parametrize("missing", ["jinja2", "plotly"])
def test_what_is_missing_is_said(sample: Stats, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PackerError, match=rf"{missing}.*pip install 'packer\[html\]'") as raised:
        page.render(sample, "packer")
    assert "\n" not in str(raised.value)


# --- in a browser ----------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium")
in_browser = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no chromium")]
SIZES = [(375, 800), (1280, 900)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page in a tab. wrong: errors and warnings of its console, and requests for anything but itself."""

    def __init__(self, browser: Any, file: Path, size: tuple[int, int], **options: Any) -> None:
        self.wrong: list[str] = []
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **options)
        self.tab = self.context.new_page()
        self.tab.on("console", lambda message: self.wrong.append(message.text))
        self.tab.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.tab.on("request", lambda request: request.url == file.as_uri() or self.wrong.append(request.url))
        self.tab.goto(file.as_uri())

    def text(self, selector: str) -> str:
        return str(self.tab.inner_text(selector)).strip()

    def axis(self, plot: str, name: str) -> str:
        return str(
            self.tab.evaluate("([plot, name]) => document.getElementById(plot)._fullLayout[name].type", [plot, name])
        )


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Any]:
    """A page, and the lengths it is about."""
    lengths = heavy_tail(5000)
    file = tmp_path / "page #1.html"
    file.write_text(page.render(of_lengths(tmp_path, lengths, terms=Terms(world_size=2)), COMMAND), encoding="utf-8")
    return file, lengths


def pytest_params(*values: Any) -> Any:
    return [pytest.param(value, marks=in_browser) for value in values]


@pytest.mark.parametrize("size", pytest_params(*SIZES))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_and_fits(browser: Any, saved: tuple[Path, Any], size: tuple[int, int], scheme: str) -> None:
    opened = Opened(browser, saved[0], size, color_scheme=scheme, has_touch=size[0] < 500)
    tab = opened.tab
    for plot in ("lengths", "truncation", "padding"):
        tab.wait_for_selector(f"#{plot} .main-svg")
        box = tab.locator(f"#{plot} .main-svg").first.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
    for value in ("linear", "log"):
        tab.check(f"input[name=x][value={value}]", force=True)
        for other in ("linear", "log"):
            tab.check(f"input[name=y][value={other}]", force=True)
            assert opened.axis("lengths", "yaxis") == other
            assert tab.is_visible("#overflow") == (value == "linear")
            assert tab.locator("#lengths .bars path").count() > 20
        tab.check(f"input[name=pad][value={value}]", force=True)
        assert opened.axis("padding", "yaxis") == value
    assert tab.evaluate("document.documentElement.scrollWidth") == size[0]
    assert tab.locator(".at:visible").count() == 1
    tab.select_option("#choose", "512")
    assert "512" in opened.text(".at:visible h3")
    assert opened.wrong == []
    opened.context.close()


@pytest.mark.parametrize("size", pytest_params(*SIZES))
def test_the_slider_tells_the_exact_figures(browser: Any, saved: tuple[Path, Any], size: tuple[int, int]) -> None:
    file, lengths = saved
    opened = Opened(browser, file, size)
    tab = opened.tab
    tab.wait_for_selector("#padding .main-svg")

    def check() -> int:
        stop = int(opened.text("#at").replace(",", ""))
        longer, beyond = int((lengths > stop).sum()), int(np.maximum(lengths - stop, 0).sum())
        assert opened.text("#longer") == f"{longer:,}"
        assert opened.text("#beyond") == f"{beyond:,}"
        assert opened.text("#longer-share") == tables.share(longer / len(lengths))
        assert opened.text("#beyond-share") == tables.share(beyond / lengths.sum())
        line = tab.evaluate("document.getElementById('truncation').layout.shapes[0].x0")
        assert 2**line == pytest.approx(stop)
        return stop

    seen = [check()]
    for place in range(0, int(tab.get_attribute("#stop", "max")), 50):
        tab.locator("#stop").fill(str(place))
        seen.append(check())
    assert seen[1:] == sorted(set(seen[1:]))
    for max_length in MAX_LENGTHS:
        tab.click(f"[data-stop='{max_length}']")
        assert check() == max_length
    tab.focus("#stop")
    tab.keyboard.press("ArrowRight")
    assert check() > MAX_LENGTHS[-1]
    tab.click("#less")
    tab.click("#less")
    assert check() < MAX_LENGTHS[-1]
    assert opened.wrong == []
    opened.context.close()


@pytest.mark.parametrize("size", pytest_params(SIZES[0]))
def test_a_finger_on_a_chart_scrolls_the_page(browser: Any, saved: tuple[Path, Any], size: tuple[int, int]) -> None:
    opened = Opened(browser, saved[0], size, has_touch=True, is_mobile=True)
    tab = opened.tab
    tab.wait_for_selector("#padding .main-svg")
    touch = opened.context.new_cdp_session(tab)
    for plot in ("lengths", "truncation", "padding"):
        tab.locator(f"#{plot}").scroll_into_view_if_needed()
        box = tab.locator(f"#{plot}").bounding_box()
        before = tab.evaluate("scrollY")
        for step in range(10):
            point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] * 0.7 - 20 * step}
            kind = "touchMove" if step else "touchStart"
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        tab.wait_for_function("before => scrollY > before + 50", arg=before, timeout=5000)
    opened.context.close()


@pytest.mark.parametrize("lengths", pytest_params([1], [7] * 40, [1, 2**27]))
def test_odd_corpora_open(browser: Any, tmp_path: Path, lengths: list[int]) -> None:
    file = tmp_path / "page.html"
    file.write_text(page.render(of_lengths(tmp_path, lengths, [1 << 20]), COMMAND), encoding="utf-8")
    opened = Opened(browser, file, SIZES[0])
    opened.tab.wait_for_selector("#padding .main-svg")
    for name in ("x", "y", "pad"):
        for value in ("linear", "log"):
            opened.tab.check(f"input[name={name}][value={value}]", force=True)
    assert opened.wrong == []
    opened.context.close()


@pytest.mark.parametrize("size", pytest_params(SIZES[0]))
def test_without_javascript(browser: Any, saved: tuple[Path, Any], size: tuple[int, int]) -> None:
    opened = Opened(browser, saved[0], size, java_script_enabled=False)
    assert "JavaScript is off" in opened.text("noscript")
    assert opened.tab.locator(".at:visible").count() == len(MAX_LENGTHS)
    assert opened.tab.locator("#stop:visible").count() == 0
    assert opened.wrong == []
    opened.context.close()
