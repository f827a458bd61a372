"""What all pictures share, drawn or interactive: colours, shapes, units of axes, and the way to the same SVG every time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pipesim.report.document import Axis
from pipesim.report.formats import clean, human_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as AnyAxis
    from matplotlib.figure import Figure


class Look(NamedTuple):
    """A group's colour and shape, the latter in matplotlib's and plotly's words."""

    colour: str
    marker: str
    symbol: str


# Okabe and Ito, "Color Universal Design", 2008, without yellow and black, which one of light and dark hides.
_LOOKS = (
    Look("#0072b2", "o", "circle"),
    Look("#d55e00", "s", "square"),
    Look("#009e73", "^", "triangle-up"),
    Look("#cc79a7", "D", "diamond"),
    Look("#e69f00", "v", "triangle-down"),
    Look("#56b4e9", "P", "cross"),
    Look("#7f7f7f", "X", "x"),
)
SCALE = "cividis_r"
"""For values, small ones bright: it reads the same with every kind of colour blindness (Nunez et al., PLoS ONE 13(7), 2018)."""

WIDTH = 8.0
_PAD = 4.0
"""Around what a picture holds, points."""

RC: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "pipesim", "font.family": "DejaVu Sans", "font.size": 10,
    "text.parse_math": False, "text.usetex": False,
    "text.hinting": "none",
    "figure.dpi": 72,  # so that a dot is a point
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#dddddd",
}  # fmt: skip


def short(name: str, longest: int = 48) -> str:
    """A name that leaves room for the picture; the table has it whole."""
    name = clean(name)
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def headline(axes: Axes, title: str) -> None:
    axes.set_title(short(title, 72), loc="left", fontweight="bold")


def look(index: int) -> Look:
    """Unlike those before it: once the colours are used up they come back with other shapes."""
    colour = _LOOKS[index % len(_LOOKS)]
    shape = _LOOKS[(index + index // len(_LOOKS)) % len(_LOOKS)]
    return Look(colour.colour, shape.marker, shape.symbol)


class Drawing(NamedTuple):
    """A figure to be drawn, ``WIDTH`` and ``height`` inches large."""

    height: float
    paint: Callable[[Figure], None]

    def figure(self) -> Figure:
        from matplotlib.figure import Figure

        made = Figure(figsize=(WIDTH, self.height))
        self.paint(made)
        return made


def arrange(figure: Figure, axes: Axes) -> None:
    """Makes room around the axes for their title, names and numbers, and for the figure's legend below.

    matplotlib's own layouts measure and draw everything several times.
    """
    around = axes.get_tightbbox(for_layout_only=True)
    assert around is not None
    inner, whole = axes.get_window_extent(), figure.bbox
    foot = sum(each.get_window_extent().height + _PAD for each in figure.legends)
    left, right = inner.x0 - around.x0 + _PAD, around.x1 - inner.x1 + _PAD
    below, above = inner.y0 - around.y0 + foot + _PAD, around.y1 - inner.y1 + _PAD
    wide, high = whole.width - left - right, whole.height - below - above
    axes.set_position((left / whole.width, below / whole.height, wide / whole.width, high / whole.height))


def svg(drawing: Drawing) -> str:
    """The same bytes every time. Text stays text, so that a viewer's own fonts show Chinese."""
    import matplotlib

    out = io.StringIO()
    with matplotlib.rc_context(RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the viewer's fonts have it
        drawing.figure().savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def legend(figure: Figure, names: Sequence[str]) -> None:
    """Below everything, in as many columns as the longest of its names leaves room for."""
    longest = max(map(len, names), default=0)
    figure.legend(loc="lower center", borderaxespad=0.2, ncols=_columns(longest), frameon=False)


def _columns(longest: int) -> int:
    """Of a legend whose longest name has so many letters: about 6 points a letter, 45 for its mark, in 576 points."""
    return min(4, max(1, 576 // (6 * longest + 45)))


def plain_numbers(axis: AnyAxis) -> None:
    """A logarithmic axis's own are mathematics markup, which is off so that no name is taken for it."""
    from matplotlib.ticker import LogFormatter, StrMethodFormatter

    axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axis.set_minor_formatter(LogFormatter())


def axis_of(axis: Axis, values: Sequence[float]) -> tuple[float, str]:
    size, unit = human_scale(axis.kind, max(map(abs, values), default=0.0))
    title = clean(axis.title)
    return size, f"{title} ({unit})" if unit else title
