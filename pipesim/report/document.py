"""What a report says, as plain data: sections of paragraphs, tables, charts, timelines and observations.

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
class Chart:
    """A scatter chart; ``slug`` names its file. ``x_limit`` draws a line that x should not cross, with its label."""

    slug: str
    title: str
    caption: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    x_limit: tuple[float, str] | None = None


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


Block = str | Table | Chart | TimelineView | Observations


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """``figure_folder`` is where the files of charts and timelines lie beside the report: "" or "NAME/"."""

    title: str
    sections: tuple[Section, ...]
    language: Literal["en", "zh"] = "en"
    figure_folder: str = "figures/"
