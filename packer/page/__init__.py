"""What `packer stats` found, as one page of HTML: figures, charts and a slider. It loads nothing and sends nothing.
The page of `packer inspect` is `rows`.

    Stats ──charts──▶ bins, curves and slider stops, as JSON ──┐
          ──tables──▶ figures as text ─────────────────────────┴─ page.html.j2 (page.css, page.js inside) ─▶ str

Plotly draws the charts: sharp at any size and on paper, readable by touch, and kept by a company with the library
inside its wheel. It is 4.9 MB, of which 2.0 MB are left: the page carries it deflated and unpacks it when opened.
Without JavaScript the figures and tables are all there. Rejected: Bokeh (a quarter of the size, as well kept, but it
draws pixels, and brings Tornado, Pillow and four more packages), Altair (needs `eval`), Matplotlib (pictures that
cannot move or reflow).
"""

from __future__ import annotations

import base64
import json
import zlib
from importlib import resources
from typing import TYPE_CHECKING, Any

from packer.errors import PackerError

if TYPE_CHECKING:
    from markupsafe import Markup

    from packer.stats import Stats


def require(*, charts: bool = True) -> None:
    """Raises PackerError if what a page is made with is not installed; only those of `stats` have charts."""
    try:
        import jinja2  # noqa: F401

        if charts:
            import plotly.offline  # noqa: F401
    except ImportError as error:
        raise PackerError(f"--html needs {error.name}, which is not installed: pip install 'packer[html]'") from None


def render(stats: Stats, command: str) -> str:
    """The whole page. `command` is shown as what made it."""
    require()
    from packer.page import charts, tables

    return fill(
        "page.html.j2",
        command=command,
        css=verbatim(_file("page.css")),
        js=verbatim(_file("page.js")),
        data=verbatim(_json(charts.data(stats))),
        plotly=verbatim(_plotly()),
        tables=tables,
        stats=stats,
    )


def fill(template: str, **values: Any) -> str:
    """A template of this package with its values, which are escaped but for those that are `verbatim`."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = environment.from_string(_file(template)).render(**values)
    return html.encode("utf-8", "backslashreplace").decode()  # file names may hold bytes that are no text


def verbatim(text: str) -> Markup:
    """Text that is HTML already."""
    from markupsafe import Markup

    return Markup(text)


def _file(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that can stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _plotly() -> str:
    """The library, deflated, in base64."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(zlib.compress(get_plotlyjs().encode(), 9)).decode()
