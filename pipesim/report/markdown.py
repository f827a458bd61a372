"""A report as GitHub Markdown; its pictures are the files that ``figures`` draws, in the document's folder."""

from __future__ import annotations

import re
from urllib.parse import quote

from rich.cells import cell_len

from pipesim.report.document import Block, Cell, Column, Document, Listing, Picture, Table, TimelineView
from pipesim.report.formats import clean, pad, show
from pipesim.report.say import Lang, speaker
from pipesim.report.timeline import text as timeline_text

MOST_ROWS = 300
"""Of a table: nobody reads more of them in a terminal or a wiki."""


def to_markdown(document: Document) -> str:
    parts = [f"# {_line(document.title)}"]
    for section in document.sections:
        parts.append(f"## {_line(section.title)}")
        parts += [part for block in section.blocks for part in _block(block, document)]
    return "\n\n".join(parts) + "\n"


def _block(block: Block, document: Document) -> list[str]:
    """Paragraphs of Markdown, without the empty lines between them."""
    if isinstance(block, str):
        return [_escape(block)]
    if isinstance(block, Table):
        return [f"### {_line(block.title)}", _table(block), *_more(block, document.language), *_paragraph(block.note)]
    if isinstance(block, Picture):
        return [_picture(block, document.figure_folder), *_paragraph(block.caption)]
    if isinstance(block, TimelineView):
        return _timeline(block, document)
    if isinstance(block, Listing):
        return [f"### {_line(block.title)}", _listing(block.text)]
    claims = [f"{number}. {_line(claim)}" for number, claim in enumerate(block.claims, start=1)]
    return [f"### {_line(block.title)}", "\n".join(claims)]


def _listing(text: str) -> str:
    """In a fence longer than any that the text holds."""
    fence = "`" * max(3, *(len(found) + 1 for found in re.findall("`+", text)), 3)
    return f"{fence}text\n{clean(text)}\n{fence}".replace("\n\n" + fence, "\n" + fence)


def _timeline(view: TimelineView, document: Document) -> list[str]:
    heading, picture = f"### {_line(view.title)}", _picture(view, document.figure_folder)
    lines = timeline_text.view(view, document.language)
    return [heading, *(["\n".join(["```text", *lines, "```"])] if lines else []), picture]


def _picture(view: Picture | TimelineView, folder: str) -> str:
    return f"![{_line(view.title)}]({quote(f'{folder}{view.slug}.svg')})"


def _paragraph(text: str) -> list[str]:
    return [_escape(text)] if text else []


def _more(table: Table, language: Lang) -> list[str]:
    left = len(table.rows) - MOST_ROWS
    say = speaker(language)
    return [say(f"… and {left:,} more rows in the page.", f"… 另有 {left:,} 行见网页。")] if left > 0 else []


def _table(table: Table) -> str:
    """Columns are padded, so that the source reads as a table too."""
    head = [_line(column.title) for column in table.columns]
    rows = [_row(row, table.columns, bold=index in table.emphasis) for index, row in enumerate(table.rows[:MOST_ROWS])]
    widths = [max(3, *(cell_len(row[k]) for row in [head, *rows])) for k in range(len(head))]
    rules = [
        "-" * width if column.kind == "text" else "-" * (width - 1) + ":"
        for column, width in zip(table.columns, widths, strict=True)
    ]
    return "\n".join(f"| {' | '.join(_padded(row, widths, table.columns))} |" for row in [head, rules, *rows])


def _row(row: tuple[Cell, ...], columns: tuple[Column, ...], *, bold: bool) -> list[str]:
    cells = [_line(show(value, column.kind)) for value, column in zip(row, columns, strict=True)]
    return [f"**{cell}**" if bold and cell.strip() else cell for cell in cells]


def _padded(row: list[str], widths: list[int], columns: tuple[Column, ...]) -> list[str]:
    return [
        pad(cell, width, "left" if column.kind == "text" else "right")
        for cell, width, column in zip(row, widths, columns, strict=True)
    ]


def _line(text: str) -> str:
    return " ".join(_escape(text).split())


def _escape(text: str) -> str:
    """As plain text: no markup, no HTML, no table borders, no list at the start of a line."""
    text = re.sub(r"([\\`*\[\]<>|~$&])", r"\\\1", clean(text))
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    text = re.sub(r"^( *)([#+=-])(?=[\s#=-]|$)", r"\1\\\2", text, flags=re.MULTILINE)
    return re.sub(r"^( *\d+)([.)])(?=\s|$)", r"\1\\\2", text, flags=re.MULTILINE)
