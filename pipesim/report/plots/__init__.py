"""Pictures as Plotly's arguments, for the page."""

from __future__ import annotations

from typing import Any

from pipesim.report import charts
from pipesim.report.charts.style import look
from pipesim.report.document import Bars, Chart, Curves, HeatMap, Parallel, Picture
from pipesim.report.plots import bars as plots_bars
from pipesim.report.plots import lines as plots_lines
from pipesim.report.plots import maps as plots_map
from pipesim.report.plots.frame import LEGEND, escape, layout, line_across, titled

Plot = dict[str, Any]


def plot(picture: Picture) -> Plot:
    """Plotly's arguments. It reads names as HTML, so they are escaped once more than the page's JSON is."""
    if isinstance(picture, Bars):
        return plots_bars.plot(picture)
    if isinstance(picture, HeatMap):
        return plots_map.plot(picture)
    if isinstance(picture, Curves):
        return plots_lines.curves(picture)
    if isinstance(picture, Parallel):
        return plots_lines.parallel(picture)
    assert isinstance(picture, Chart)
    return _scatter(picture)


def _scatter(chart: Chart) -> Plot:
    all_marks, groups, x_title, y_title, x_limit = charts.scaled(chart)
    few = len(all_marks) <= charts.MAX_LABELS
    traces = [
        {
            "type": "scatter",
            "mode": "markers+text" if few else "markers",
            "name": escape(group),
            "x": [mark.x for mark in marks],
            "y": [mark.y for mark in marks],
            "text": [escape(mark.label) for mark in marks],
            "textposition": "top center",
            "hovertext": [escape(f"{mark.label} ({mark.x:.4g}, {mark.y:.4g})") for mark in marks],
            "hoverinfo": "text",
            "marker": {"color": look(index).colour, "symbol": look(index).symbol, "size": 9},
        }
        for index, (group, marks) in reversed(list(enumerate(groups.items())))
    ]  # what comes later lies above
    if x_limit and all_marks:
        heights = [mark.y for mark in all_marks]
        traces.append(line_across(x_limit, [min(heights), max(heights)]))
    axes = {
        "xaxis": titled(x_title, log=chart.x.log),
        "yaxis": titled(y_title, log=chart.y.log),
    }
    return {"data": traces, "layout": layout(460, **axes, legend={**LEGEND, "traceorder": "reversed"})}
