"""What all interactive pictures share. Colours of text and lines are left to the style sheet, which knows light from dark."""

from __future__ import annotations

import html
from functools import partial
from typing import Any

escape = partial(html.escape, quote=False)
"""For Plotly, which reads names as HTML but leaves a quote's escape as it is."""

_CLEAR = "rgba(0,0,0,0)"
LEGEND = {"orientation": "h", "y": -0.2, "yanchor": "top"}


def layout(height: int, **more: Any) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "legend": LEGEND,
        "showlegend": True,
        "modebar": {"bgcolor": _CLEAR, "color": "#7f7f7f", "activecolor": "#0072b2"},
        **more,
    }


def titled(title: str, *, log: bool = False) -> dict[str, Any]:
    return {"title": {"text": escape(title)}, "type": "log" if log else "linear", "automargin": True}


def line_across(x_limit: tuple[float, str], ends: list[Any]) -> dict[str, Any]:
    """An upright line that x should not cross, from one y to another."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape(x_limit[1]),
        "x": [x_limit[0]] * 2,
        "y": ends,
        "hoverinfo": "name",
        "line": {"color": "#7f7f7f", "dash": "dash"},
    }
