"""The picture files of a report, as SVG text."""

from __future__ import annotations

from collections.abc import Iterator

from pipesim.report import charts
from pipesim.report.document import Document, Picture, TimelineView
from pipesim.report.timeline import svg as timeline_svg


def figures(document: Document) -> dict[str, str]:
    """File name to SVG text for every picture and timeline; slugs must differ, because they become the names."""
    drawn: dict[str, str] = {}
    for view in pictures(document):
        name = f"{view.slug}.svg"
        assert name not in drawn, f"two figures are called {name}"
        drawn[name] = draw(view, document.language)
    return drawn


def pictures(document: Document) -> Iterator[Picture | TimelineView]:
    for section in document.sections:
        yield from (block for block in section.blocks if isinstance(block, Picture | TimelineView))


def draw(view: Picture | TimelineView, language: str) -> str:
    if isinstance(view, Picture):
        return charts.draw(view)
    unit: timeline_svg.Unit = "seconds" if view.unit_s is None else "units"
    return timeline_svg.draw(
        view.timeline,
        view.title,
        unit=unit,
        language=language,
        lower_bound_s=view.lower_bound_s,
        until_s=view.until_s,
    )
