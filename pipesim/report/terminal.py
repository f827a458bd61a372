"""A report in a terminal: headed sections, aligned tables, text timelines; plain when piped or under NO_COLOR."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pipesim.report.document import Block, Document, Listing, Observations, Picture, Table, TimelineView
from pipesim.report.formats import clean, show
from pipesim.report.timeline import text as timeline_text
from pipesim.report.timeline.fold import fold
from pipesim.report.wrap import wrap

Justify = Literal["left", "right"]

_PROSE_CELLS = 100
_MOST_ROWS = 30
_UNBOUNDED_CELLS = 1_000_000


def print_document(document: Document, console: Console | None = None) -> None:
    """Charts are left to the files. Into a pipe nothing is cut or wrapped except prose."""
    console = console or Console()
    if console.is_terminal:
        _print(console, document, "" if console.no_color else "bold", min(_PROSE_CELLS, console.width))
        return
    with _unbounded(console):
        with console.capture() as captured:
            _print(console, document, "", _PROSE_CELLS)
        _say(console, "\n".join(line.rstrip() for line in captured.get().splitlines()))


def _print(console: Console, document: Document, bold: str, prose_cells: int) -> None:
    _say(console, _prose(document.title, prose_cells), bold)
    for section in document.sections:
        if section.aside or all(isinstance(block, Picture) for block in section.blocks):
            continue
        rule = f"── {clean(section.title)} "
        _say(console, "\n" + rule + "─" * (prose_cells - cell_len(rule)), bold)
        for block in section.blocks:
            _print_block(console, block, bold, prose_cells, document.language)


@contextmanager
def _unbounded(console: Console) -> Iterator[None]:
    before = console.width
    console.width = _UNBOUNDED_CELLS
    try:
        yield
    finally:
        console.width = before


def _print_block(console: Console, block: Block, bold: str, prose_cells: int, language: str) -> None:
    if isinstance(block, str):
        _say(console, "\n" + _prose(block, prose_cells))
    elif isinstance(block, Table):
        _say(console, "\n" + _prose(block.title, prose_cells), bold)
        shown, left_out = _fitting(block, console.width)
        console.print(_grid(shown, bold))
        if left_out:
            _say(console, _prose(f"… columns that do not fit here: {', '.join(left_out)}", prose_cells))
        if len(block.rows) > _MOST_ROWS:
            _say(console, f"… {len(block.rows) - _MOST_ROWS:,} more rows in the report")
        if block.note:
            _say(console, _prose(block.note, prose_cells))
    elif isinstance(block, Observations):
        _say(console, "\n" + _prose(block.title, prose_cells), bold)
        _print_claims(console, block, prose_cells)
    elif isinstance(block, Listing):
        _say(console, "\n" + _prose(block.title, prose_cells), bold)
        _say(console, block.text.rstrip("\n"))
    elif isinstance(block, TimelineView) and (lines := timeline_text.view(block, language)):
        drawing, *legend = lines
        _say(console, "\n" + _prose(block.title, prose_cells), bold)
        _say(console, "\n".join(fold(block, drawing, console.width)))
        for line in legend:
            _say(console, _prose(line, prose_cells))


def _fitting(table: Table, cells: int) -> tuple[Table, list[str]]:
    """The table without the last columns where it is wider than the terminal, and their titles; two always stay."""
    texts = [
        [column.title, *(show(row[k], column.kind) for row in table.rows)] for k, column in enumerate(table.columns)
    ]
    widths = [max(cell_len(clean(text)) for text in column) + 3 for column in texts]
    keep = len(widths)
    while keep > 2 and sum(widths[:keep]) - 3 > cells:
        keep -= 1
    rows = tuple(row[:keep] for row in table.rows)
    return replace(table, columns=table.columns[:keep], rows=rows), [column.title for column in table.columns[keep:]]


def _grid(table: Table, bold: str) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style=bold)
    for column in table.columns:
        justify: Justify = "left" if column.kind == "text" else "right"
        grid.add_column(Text(clean(column.title)), justify=justify, overflow="fold")
    for index, row in enumerate(table.rows[:_MOST_ROWS]):
        cells = (Text(show(value, column.kind)) for value, column in zip(row, table.columns, strict=True))
        grid.add_row(*cells, style=bold if index in table.emphasis else "")
    return grid


def _print_claims(console: Console, observations: Observations, prose_cells: int) -> None:
    """Numbered, with the lines after the first hanging under it."""
    for number, claim in enumerate(observations.claims, start=1):
        head = f"{number}. "
        _say(console, head + _prose(claim, prose_cells - len(head)).replace("\n", "\n" + " " * len(head)))


def _prose(text: str, cells: int) -> str:
    return "\n".join(wrap(clean(text), cells))


def _say(console: Console, text: str, style: str = "") -> None:
    """Line for line as it is: the terminal may wrap it, nothing else does."""
    console.print(Text(clean(text), style=style), soft_wrap=True)
