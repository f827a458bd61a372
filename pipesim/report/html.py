"""A report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from pipesim.report import charts, figures
from pipesim.report.document import Cell, Chart, Document, TimelineView
from pipesim.report.formats import clean, show

_TEMPLATES = Path(__file__).parent / "templates"


def to_html(document: Document, drawn: Mapping[str, str] | None = None) -> str:
    """Plotly's 5 MB of JavaScript come along only if there is a chart to show.

    ``drawn`` are the pictures as ``figures.figures`` gives them, if they are there already.
    """
    pictures = figures.figures(document) if drawn is None else drawn
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
        style=_own("report.css"),
        plotly_js=_plotly_js() if any(isinstance(view, Chart) for view in figures.pictures(document)) else "",
        picture=lambda view: _picture(view, pictures[f"{view.slug}.svg"]),
        plot=_plot,
    )


def _own(name: str) -> Markup:
    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


def _plotly_js() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


def _picture(view: Chart | TimelineView, svg: str) -> Markup:
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


def _plot(chart: Chart) -> dict[str, Any]:
    """Plotly's arguments. It reads names as HTML, so they are escaped once more than the page's JSON is."""
    all_marks, groups, x_title, y_title, x_limit = charts.scaled(chart)
    few = len(all_marks) <= charts.MAX_LABELS
    traces = [
        {
            "type": "scatter",
            "mode": "markers+text" if few else "markers",
            "name": html.escape(group),
            "x": [mark.x for mark in marks],
            "y": [mark.y for mark in marks],
            "text": [html.escape(mark.label) for mark in marks],
            "textposition": "top center",
            "hovertext": [html.escape(f"{mark.label} ({mark.x:.4g}, {mark.y:.4g})") for mark in marks],
            "hoverinfo": "text",
            "marker": {"color": charts.look(index).colour, "symbol": charts.look(index).symbol, "size": 9},
        }
        for index, (group, marks) in enumerate(groups.items())
    ]
    if x_limit and all_marks:
        heights = [mark.y for mark in all_marks]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": html.escape(x_limit[1]),
                "x": [x_limit[0]] * 2,
                "y": [min(heights), max(heights)],
                "hoverinfo": "name",
                "line": {"color": "#7f7f7f", "dash": "dash"},
            }
        )
    return {"data": traces, "layout": _layout(chart, x_title, y_title)}


def _layout(chart: Chart, x_title: str, y_title: str) -> dict[str, Any]:
    """Colours of text and lines are left to the style sheet, which knows light from dark."""
    axes = {
        name: {"title": {"text": html.escape(title)}, "type": "log" if axis.log else "linear", "automargin": True}
        for name, title, axis in (("xaxis", x_title, chart.x), ("yaxis", y_title, chart.y))
    }
    return {
        **axes,
        "height": 460,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "y": -0.2},
        "showlegend": True,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#7f7f7f", "activecolor": "#0072b2"},
    }
