"""A report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import jinja2
from markupsafe import Markup

from pipesim.report import figures, formats, plots, viewer
from pipesim.report.document import Document, Parallel, Picture, Table, TimelineView
from pipesim.report.html import packed
from pipesim.report.html import table as page_table
from pipesim.report.html import words as page_words

_TEMPLATES = Path(__file__).parents[1] / "templates"
_SCRIPTS = ("formats.js", "filters.js", "csv.js", "table.js", "page.js")


def to_html(document: Document, drawn: Mapping[str, str] | None = None) -> str:
    """Plotly's JavaScript comes along, packed, only if there is a chart to show.

    ``drawn`` are the pictures as ``figures.figures`` gives them, if they are there already.
    """
    pictures = figures.figures(document) if drawn is None else drawn
    views = list(figures.pictures(document))
    timelines = bool(viewer.views(document))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(show=formats.show, clean=formats.clean)
    return environment.get_template("report.html.jinja").render(
        document=document,
        words=page_words.WORDS[document.language],
        kind=lambda block: type(block).__name__,
        is_picture=lambda block: isinstance(block, Picture),
        style=_own("report.css"),
        script=Markup("\n").join(map(_own, _SCRIPTS)),
        rules=formats.RULES,
        plotly=packed.plotly_js() if any(isinstance(view, Picture) for view in views) else "",
        parallel=any(isinstance(view, Parallel) for view in views),  # which Plotly draws by scripts that it compiles
        picture=lambda view: _picture(view, pictures[f"{view.slug}.svg"]),
        plot=plots.plot,
        rows_at_once=page_table.rows_at_once,
        columns=columns,
        viewer_style=viewer.style() if timelines else "",
        viewer_script=viewer.script(document.language) if timelines else "",
        viewer=lambda view: viewer.embed(view, Markup(pictures[f"{view.slug}.svg"]), document.language),
    )


def _own(name: str) -> Markup:
    return Markup((_TEMPLATES / name).read_text(encoding="utf-8"))


def columns(table: Table) -> str:
    return packed.pack(page_table.columns_json(table))


def _picture(view: Picture | TimelineView, svg: str) -> Markup:
    """A timeline inline, for its tooltips; a chart as an image, for paper and for where scripts do not run."""
    if isinstance(view, TimelineView):
        return Markup(svg)
    data = base64.b64encode(svg.encode()).decode()
    return Markup(
        '<img class="twin" loading="lazy" decoding="async" src="data:image/svg+xml;base64,{}" alt="{}">'
    ).format(data, formats.clean(view.title))
