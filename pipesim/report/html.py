"""A report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from pathlib import Path

import jinja2
from markupsafe import Markup

from pipesim.report import figures, plots, viewer
from pipesim.report.document import Cell, Document, Picture, TimelineView
from pipesim.report.formats import clean, show

_TEMPLATES = Path(__file__).parent / "templates"


def to_html(document: Document, drawn: Mapping[str, str] | None = None) -> str:
    """Plotly's 5 MB of JavaScript come along only if there is a chart to show.

    ``drawn`` are the pictures as ``figures.figures`` gives them, if they are there already.
    """
    pictures = figures.figures(document) if drawn is None else drawn
    timelines = bool(viewer.views(document))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(show=show, clean=clean, sort_key=_sort_key)
    return environment.get_template("report.html.jinja").render(
        document=document,
        kind=lambda block: type(block).__name__,
        is_picture=lambda block: isinstance(block, Picture),
        style=_own("report.css"),
        plotly_js=_plotly_js() if any(isinstance(view, Picture) for view in figures.pictures(document)) else "",
        picture=lambda view: _picture(view, pictures[f"{view.slug}.svg"]),
        plot=plots.plot,
        viewer_style=viewer.style() if timelines else "",
        viewer_script=viewer.script(document.language) if timelines else "",
        viewer=lambda view: viewer.embed(view, Markup(pictures[f"{view.slug}.svg"]), document.language),
    )


def _own(name: str) -> Markup:
    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


def _plotly_js() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def _picture(view: Picture | TimelineView, svg: str) -> Markup:
    """A timeline inline, for its tooltips; a chart as an image, because it stands in only where scripts do not run."""
    if isinstance(view, TimelineView):
        return Markup(svg)
    data = base64.b64encode(svg.encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, clean(view.title))


def _sort_key(value: Cell) -> float | str | None:
    """The raw value to sort by; of a tuple its largest part."""
    if isinstance(value, tuple):
        return max(value, default=None)
    if isinstance(value, str):
        return clean(value)
    return None if value is None or math.isnan(value) else float(value)
