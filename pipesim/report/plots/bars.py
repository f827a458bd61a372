"""Stacked bars as Plotly's arguments."""

from __future__ import annotations

from typing import Any

from pipesim.report.charts.bars import is_striped, stacked
from pipesim.report.charts.style import look
from pipesim.report.document import Bars
from pipesim.report.formats import clean, show
from pipesim.report.plots.frame import LEGEND, escape, layout, line_across, titled

_STRIPES = {"pattern": {"shape": "/", "fillmode": "overlay", "fgcolor": "#ffffff"}}
_BAR, _REST = 30, 170
"""Pixels of a bar with its gap, and of everything above and below the bars."""


def plot(bars: Bars) -> dict[str, Any]:
    found = stacked(bars)
    names = [escape(name) for name in found.names]
    places = list(range(len(names)))
    raw = [dict(zip(bars.items, parts, strict=True)) for _, parts in bars.bars]
    shown = [item for item in bars.items if any(parts[item] for parts in raw)]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": escape(item),
            "x": parts,
            "y": places,
            "hovertext": [_said(item, mine[key], sum(mine.values()), bars) for mine in raw],
            "hoverinfo": "text",
            "marker": {"color": look(index).colour, **(_STRIPES if is_striped(index) else {})},
        }
        for index, ((item, parts), key) in enumerate(zip(found.parts.items(), shown, strict=True))
    ]
    ends = [sum(parts) for parts in zip(*found.parts.values(), strict=True)]
    traces.append(
        {
            "type": "scatter",
            "mode": "text",
            "x": ends,
            "y": places,
            "text": [f" {escape(total)}" for total in found.totals],
            "textposition": "middle right",
            "hoverinfo": "skip",
            "showlegend": False,
            "cliponaxis": False,
        }
    )
    if found.x_limit:
        traces.append(line_across(found.x_limit, [-0.5, len(names) - 0.5]))
    longest = max([*ends, *(found.x_limit[:1] if found.x_limit else ())])
    axes = {
        "xaxis": {**titled(found.x_title), "range": [0, 1.14 * longest]},
        "yaxis": {
            "tickvals": places, "ticktext": names, "range": [len(names) - 0.5, -0.5], "automargin": True, "showgrid": False,
        },
    }  # fmt: skip
    high = _BAR * max(3, len(names))
    legend = {**LEGEND, "y": -56 / high, "traceorder": "normal"}
    more = {"barmode": "stack", "bargap": 0.28, "legend": legend}
    return {"data": traces, "layout": layout(_REST + high, **axes, **more)}


def _said(item: str, part: float, total: float, bars: Bars) -> str:
    share = show(part / total, "percent") if total else ""
    return escape(f"{clean(item)}: {show(part, bars.x.kind)} ({share})")
