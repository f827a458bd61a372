"""Charts as Plotly's arguments, for the page."""

from __future__ import annotations

import html
from typing import Any

from pipesim.report import charts
from pipesim.report.document import Chart


def plot(chart: Chart) -> dict[str, Any]:
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
