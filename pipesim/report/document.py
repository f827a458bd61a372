"""What a report says, as plain data: sections of paragraphs, tables, pictures, timelines and observations.

Whoever has something to report builds a ``Document``; ``terminal``, ``markdown`` and ``html`` each show the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipesim.simulate.timeline import Timeline

Kind = Literal["text", "count", "number", "parameters", "bytes", "seconds", "percent", "tflops", "flag"]
Cell = str | int | float | bool | None | tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table's column: what it is called and what its values are, in SI units; renderers choose the human unit."""

    title: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of raw values, one per column; ``emphasis`` are the indices of rows that stand out (the best, a total).

    ``slug`` names the file into which a page saves it; without one the title does.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    emphasis: frozenset[int] = frozenset()
    note: str = ""
    slug: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    title: str
    kind: Kind
    log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of a chart: where, what it is called, and the group that decides its colour and shape."""

    x: float
    y: float
    label: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What ``plots.plot`` and ``charts.draw`` know how to draw; ``slug`` names its file, ``caption`` says what to see."""

    slug: str
    title: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(Picture):
    """A scatter chart. ``x_limit`` draws a line that x should not cross, with its label."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    x_limit: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Picture):
    """Stacked bars that lie, the first on top: each is (name, its part of every item); parts are never negative."""

    x: Axis
    items: tuple[str, ...]
    bars: tuple[tuple[str, tuple[float, ...]], ...]
    x_limit: tuple[float, str] | None = None

    def __post_init__(self) -> None:
        assert all(len(parts) == len(self.items) and min(parts) >= 0 for _, parts in self.bars)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One map: a row of ``squares`` for every y, a square for every x: its value, or a sign for why it has none."""

    title: str
    squares: tuple[tuple[float | str, ...], ...]
    names: tuple[tuple[str, ...], ...]
    """What each value is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap(Picture):
    """Maps side by side with one scale; small values are good, and the smallest of all is marked."""

    x_title: str
    y_title: str
    xs: tuple[str, ...]
    ys: tuple[str, ...]
    value: Axis
    panels: tuple[Panel, ...]

    def best(self) -> tuple[int, int, int] | None:
        """Panel, y and x of the smallest value, the first of equals."""
        places = [
            (value, (k, i, j))
            for k, panel in enumerate(self.panels)
            for i, row in enumerate(panel.squares)
            for j, value in enumerate(row)
            if not isinstance(value, str)
        ]
        return min(places)[1] if places else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points that are joined in their order; those of ``hollow`` are not to be had, ``best`` is the one to take."""

    name: str
    points: tuple[tuple[float, float], ...]
    labels: tuple[str, ...]
    hollow: frozenset[int] = frozenset()
    best: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves(Picture):
    x: Axis
    y: Axis
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel(Picture):
    """One line a row across upright axes, coloured by the last one's value; axes of kind text are in the order given."""

    axes: tuple[Axis, ...]
    choices: tuple[tuple[str, ...], ...]
    """Of each axis of kind text its values, the lowest first; of others nothing."""
    rows: tuple[tuple[float | str, ...], ...]

    def height(self, k: int, value: float | str) -> float:
        """Where a value stands on the k-th axis: of a text its place."""
        return float(self.choices[k].index(value)) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """A timeline to draw; ``unit_s`` is the length of one text cell in the timeline's own unit, if it has one.

    ``slug`` names its files. Without ``unit_s`` (real seconds), or with ``text`` none, text renderers leave it to the
    picture. ``lower_bound_s`` is of the makespan; ``until_s`` is how long the picture's time axis is at least.
    """

    slug: str
    title: str
    timeline: Timeline
    unit_s: float | None = None
    text: Literal["narrow", "wide", "none"] = "narrow"
    lower_bound_s: float | None = None
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Claims that hold for this run, one sentence each."""

    title: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A file's text, line for line."""

    title: str
    text: str


Block = str | Table | Picture | TimelineView | Observations | Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """``aside`` is what a terminal leaves to the files."""

    title: str
    blocks: tuple[Block, ...]
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """``figure_folder`` is where the files of charts and timelines lie beside the report: "" or "NAME/"."""

    title: str
    sections: tuple[Section, ...]
    language: Literal["en", "zh"] = "en"
    figure_folder: str = "figures/"
