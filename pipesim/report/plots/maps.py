"""Heat maps as Plotly's arguments: one pair of axes for every panel, one scale for all."""

from __future__ import annotations

from typing import Any

from pipesim.report.charts.maps import ACROSS, mapped, rows
from pipesim.report.document import HeatMap
from pipesim.report.formats import clean, show
from pipesim.report.plots.frame import escape, layout

_GAP_X, _TITLE, _FEET = 0.06, 34, 62
"""Between panels, of the width; above and below each, pixels."""


def plot(shown: HeatMap) -> dict[str, Any]:
    found, across = mapped(shown), min(ACROSS, len(shown.panels))
    high = 26 * len(shown.ys) + _TITLE + _FEET
    whole = rows(shown) * high
    traces, axes, notes = [], {}, []
    for k, panel in enumerate(shown.panels):
        column, row = k % across, k // across
        sign = "" if k == 0 else str(k + 1)
        wide = (1 - _GAP_X * (across - 1)) / across
        left, top = column * (wide + _GAP_X), 1 - (row * high + _TITLE) / whole
        bottom = 1 - ((row + 1) * high - _FEET) / whole
        axes[f"xaxis{sign}"] = _axis(shown.x_title, shown.xs, [left, left + wide], f"y{sign}")
        axes[f"yaxis{sign}"] = _axis(shown.y_title if column == 0 else "", shown.ys, [bottom, top], f"x{sign}")
        notes.append(_note(panel.title, left + wide / 2, top, yanchor="bottom"))
        traces.append(
            {
                "type": "heatmap",
                "xaxis": f"x{sign}",
                "yaxis": f"y{sign}",
                "z": found.values[k],
                "text": [[escape(text) for text in texts] for texts in found.texts[k]],
                "texttemplate": "%{text}",
                "hovertext": _hover(shown, k),
                "hoverinfo": "text",
                "xgap": 1,
                "ygap": 1,
                "coloraxis": "coloraxis",
            }
        )
        notes += [
            _note(text, j, i, xref=f"x{sign}", yref=f"y{sign}")
            for i, texts in enumerate(found.texts[k])
            for j, text in enumerate(texts)
            if text and found.values[k][i][j] is None
        ]
    bar = {"title": {"text": escape(found.title), "side": "right"}, "thickness": 12}
    scale = {"colorscale": "Cividis", "reversescale": True, "cmin": found.low, "cmax": found.high, "colorbar": bar}
    margin = {"l": 48, "r": 8, "t": 28, "b": 4}
    return {
        "data": traces,
        "layout": layout(whole + 32, **axes, annotations=notes, coloraxis=scale, showlegend=False, margin=margin),
    }


def _axis(title: str, names: tuple[str, ...], domain: list[float], anchor: str) -> dict[str, Any]:
    return {
        "title": {"text": escape(clean(title)), "standoff": 4}, "domain": domain, "anchor": anchor,
        "tickvals": list(range(len(names))), "ticktext": [escape(name) for name in names], "showgrid": False,
        "zeroline": False, "range": [-0.5, len(names) - 0.5],
    }  # fmt: skip


def _note(text: str, x: float, y: float, *, xref: str = "paper", yref: str = "paper", yanchor: str = "middle") -> Any:
    return {
        "text": escape(clean(text)), "x": x, "y": y, "xref": xref, "yref": yref, "xanchor": "center", "yanchor": yanchor,
        "showarrow": False,
    }  # fmt: skip


def _hover(shown: HeatMap, k: int) -> list[list[str]]:
    panel = shown.panels[k]
    return [
        [
            escape(clean(f"{name}: {show(value, shown.value.kind)}" if not isinstance(value, str) else name))
            for value, name in zip(values, names, strict=True)
        ]
        for values, names in zip(panel.squares, panel.names, strict=True)
    ]
