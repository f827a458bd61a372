"""Curves and parallel coordinates as Plotly's arguments."""

from __future__ import annotations

from typing import Any

from pipesim.report.charts.lines import FIRST_TO_LAST, scaled, ticks, upright
from pipesim.report.charts.style import look, short
from pipesim.report.document import Curves, Line, Parallel
from pipesim.report.formats import clean, show
from pipesim.report.plots.frame import escape, layout, titled


def curves(shown: Curves) -> dict[str, Any]:
    found = scaled(shown)
    traces = [_trace(index, *each) for index, each in enumerate(found.lines)]
    x_axis = titled(found.x_title, log=shown.x.log)
    if places := ticks(shown):
        x_axis |= {"tickvals": places, "ticktext": [show(place, "number") for place in places]}
    return {
        "data": traces,
        "layout": layout(420, xaxis=x_axis, yaxis=titled(found.y_title, log=shown.y.log)),
    }


def _trace(index: int, line: Line, xs: list[float], ys: list[float]) -> dict[str, Any]:
    style, every = look(index), range(len(xs))
    symbols = ["star" if k == line.best else style.symbol + "-open" * (k in line.hollow) for k in every]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": escape(short(line.name)),
        "x": xs,
        "y": ys,
        "hovertext": [escape(f"{clean(line.labels[k])} ({xs[k]:.4g}, {ys[k]:.4g})") for k in every],
        "hoverinfo": "text",
        "line": {"color": style.colour},
        "marker": {"color": style.colour, "symbol": symbols, "size": [15 if k == line.best else 8 for k in every]},
    }


def parallel(shown: Parallel) -> dict[str, Any]:
    """An axis can be brushed: lines outside of what is marked on it turn pale."""
    found = upright(shown)
    dimensions = [
        {
            "label": escape(each.title),
            "values": each.heights,
            "range": [0, 1],
            "tickvals": [place for place, _ in each.ticks],
            "ticktext": [escape(text) for _, text in each.ticks],
        }
        for each in found
    ]
    colours = [[share, colour] for share, colour in zip((0, 1), FIRST_TO_LAST, strict=True)]
    trace = {
        "type": "parcoords",
        "dimensions": dimensions,
        "line": {"color": found[-1].heights, "colorscale": colours, "cmin": 0, "cmax": 1},
        "labelangle": -20 if len(found) > 6 else 0,
    }
    return {"data": [trace], "layout": layout(460, showlegend=False, margin={"l": 60, "r": 60, "t": 90, "b": 24})}
