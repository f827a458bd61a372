"""The timeline viewer: an own script that draws timelines on a canvas, inside a report and as a page of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from pipesim.report.document import Column, Document, Table, TimelineView
from pipesim.report.formats import RULES, clean, show
from pipesim.report.viewer import words
from pipesim.report.viewer.data import island
from pipesim.simulate.causes import Cause, idle

_TEMPLATES = Path(__file__).parents[1] / "templates"
_SCRIPTS = ("formats.js", "viewer_data.js", "viewer_text.js", "viewer_draw.js", "viewer_input.js", "viewer.js")


def views(document: Document) -> tuple[TimelineView, ...]:
    blocks = (block for section in document.sections for block in section.blocks)
    return tuple(block for block in blocks if isinstance(block, TimelineView))


def page(document: Document) -> str:
    """``timeline.html``: all timelines of a report in one viewer, of which any two can be compared.

    Two alone, such as a simulated and a measured one, are compared from the start.
    """
    shown, says = views(document), words.words(document.language)
    return _environment().get_template("viewer_page.html.jinja").render(
        title=f"{says['title']}: {document.title}",
        language="zh-CN" if document.language == "zh" else document.language,
        style=style(), script=script(document.language), islands=[_island(view) for view in shown],
        sums=[sums(view, document.language) for view in shown], words=says,
        against=shown[1].slug if len(shown) == 2 else "", first=shown[0].slug,
    )  # fmt: skip


def embed(view: TimelineView, still: Markup, language: str) -> Markup:
    """One timeline's data and the place of its viewer, for a page that has ``style`` and ``script`` once.

    ``still`` is the picture that stands there on paper and where no script runs.
    """
    return Markup(
        _environment().get_template("viewer_embed.html.jinja").render(
            island=_island(view), slug=view.slug, title=clean(view.title), still=still, sums=sums(view, language)
        )
    )  # fmt: skip


def style() -> Markup:
    return Markup(_own("viewer.css"))


def script(language: str) -> Markup:
    """One script in a scope of its own; it comes after the last timeline of a page."""
    given = "const WORDS = {{ words | tojson }};\nconst RULES = {{ rules | tojson }};\n"
    known = _environment().from_string(given).render(words=words.words(language), rules=RULES)
    return Markup('(() => {\n"use strict";\n' + known + "".join(map(_own, _SCRIPTS)) + "})();\n")


def sums(view: TimelineView, language: str) -> Table:
    """The timeline's text alternative: what each rank, and all together, are busy and idle for, by cause."""
    says, timeline = words.words(language), view.timeline
    idle_s = idle(timeline).by_rank_and_cause()
    causes = [cause for cause in Cause if idle_s[:, cause].any()]
    kind: Any = "number" if view.unit_s is not None else "seconds"
    titles = [str(says["busy"]), str(says["idle"]), *(words.CAUSES[language][cause] for cause in causes)]
    table = np.column_stack([timeline.busy_s, idle_s.sum(axis=1), idle_s[:, causes]])
    names = [str(says["rank"]).format(rank) for rank in range(len(table))]
    lines = [
        (name, *line, peak) for name, line, peak in zip(names, table.tolist(), timeline.peak_inflight, strict=True)
    ]
    return Table(
        title=str(says["sums"]).format(view.title),
        columns=(
            Column(title=""), *(Column(title=title, kind=kind) for title in titles),
            Column(title=str(says["peak"]), kind="count"),
        ),
        rows=(*lines, (str(says["all"]), *table.sum(axis=0).tolist(), max(timeline.peak_inflight))),
        emphasis=frozenset({len(lines)}),
    )  # fmt: skip


def _island(view: TimelineView) -> dict[str, Any]:
    return island(view.slug, view.title, view.timeline, "seconds" if view.unit_s is None else "units")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters.update(show=show, clean=clean)
    return environment


def _own(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
