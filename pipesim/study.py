"""One way through for single layouts, sweeps, grids and demos: configs -> rows -> study folder -> reports."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipesim import config as configs_
from pipesim import demos, dry_run, legality, tasks
from pipesim.checks import Invalid
from pipesim.errors import FailedPoints
from pipesim.estimate import pipeline
from pipesim.plan import grid, names
from pipesim.plan.keep import Keeper
from pipesim.plan.space import Slice, Space
from pipesim.report import figures, html, markdown, terminal, trace
from pipesim.report.document import Document
from pipesim.report.layout_page import layout_page
from pipesim.report.sweep_page import sweep_page
from pipesim.results import folder as folders
from pipesim.results import manifest, schema, store
from pipesim.results.folder import MANIFEST, Staging, StudyFolderError
from pipesim.results.schema import Row
from pipesim.swept import with_told

LANGUAGES = ("en", "zh")


def run(spaces: Sequence[Space], overrides: Sequence[str], swept: bool) -> Path | None:
    """Answers what was asked, prints it, writes the study and returns its folder.

    Raises ``Invalid`` for a single layout that breaks rules and for settings that cannot work, ``FailedPoints`` after
    the study is written if any of its points failed.
    """
    if spaces and spaces[0].base["study"].get("dry_run"):
        terminal.print_document(dry_run.document(dry_run.count(spaces, _table)))
        return None
    configs = asked([Slice(space, 0, len(space)) for space in spaces])
    first = _common(configs)
    kind = _kind(first, swept)
    about = manifest.about(kind, overrides, first)
    files: dict[str, str | bytes] = {}
    kept = ""
    if kind == "demo":
        document, rows = demos.run(first)
    elif kind == "task":
        done = tasks.run(first)
        document, rows, files = done.document, done.rows, done.files
    else:
        if kind == "layout":
            legality.resolve(configs_.build(first))
        rows = evaluate(spaces)
        if kind == "layout" and rows[0]["status"] == "invalid":
            raise Invalid(rows[0]["reason"].splitlines())
        if kind == "sweep" and (first["grid"] or {}).get("keep") is not None:
            keeper = Keeper(first["grid"]["keep"])
            keeper.add(schema.table(rows))
            rows, kept = keeper.table().to_pylist(), keeper.told()
        document = page(kind, rows, about)
        if kept:
            opening = document.sections[0]
            opening = dataclasses.replace(opening, blocks=(kept, *opening.blocks))
            document = dataclasses.replace(document, sections=(opening, *document.sections[1:]))
    with folders.new_study(_root(), first["study"]["name"] or _name(kind, configs), first["study"]["dir"]) as staging:
        for name, content in files.items():
            staging.write(name, content)
        _write(staging, rows, document, about)
    assert staging.final is not None
    terminal.print_document(document)
    print(f"\nstudy: {staging.final}", flush=True)
    failed = Counter(row["status"] for row in rows)["failed"]
    if failed:
        raise FailedPoints(
            f"{failed} of {len(rows)} points failed; their reasons stand in {staging.final / store.CSV}."
        )
    return staging.final


def asked(slices: Sequence[Slice]) -> list[dict[str, Any]]:
    """The plain config of every combination that is asked."""
    return [
        dict(part.space.config(part.start + index))
        for part in slices
        for index in np.flatnonzero(names.mask(part)).tolist()
    ]


def _kind(config: Mapping[str, Any], swept: bool) -> str:
    if config["demo"] is not None:
        return "demo"
    return "task" if tasks.chosen(config) else "sweep" if swept else "layout"


def evaluate(spaces: Sequence[Space]) -> list[Row]:
    """A row for every config, in the order of the table."""
    rows: list[Row] = grid.evaluate(cut(with_told(spaces), 0, total(spaces)), details=True).to_pylist()
    return rows


def _table(slices: Sequence[Slice]) -> pa.Table:
    configs = asked(slices)
    points = [configs_.asked(each) for each in configs]
    told = settings(configs)
    known = ((row | {"settings": setting}, build) for (row, build), setting in zip(points, told, strict=True))
    return schema.table(grid.rows(known))


def page(kind: str, rows: Sequence[Row], about: Mapping[str, Any]) -> Document:
    """What a study says; the same from a fresh evaluation and from its table."""
    if kind == "layout" and rows[0]["status"] != "failed":
        return layout_page(rows[0], *pipeline(rows[0]), about)
    return sweep_page(rows, about)


def render_again(folder: Path) -> None:
    """Writes reports and figures of a study anew from its table. Raises ``ValueError`` if the folder holds no study."""
    about = manifest.read(folder)
    rows = store.read(folder)
    if about["kind"] == "task":
        raise ValueError(f"{folder} holds a task, whose report is not made from its table; run the task again.")
    try:
        document = demos.run(about["config"])[0] if about["kind"] == "demo" else page(about["kind"], rows, about)
        files = rendered(document, rows, about["kind"])
    except Exception as error:  # a study from elsewhere can hold anything that its files' types allow
        raise StudyFolderError(
            f"{folder}: no report can be made of its table: {type(error).__name__}: {error}"
        ) from error
    for name, text in files.items():
        target = folders.inside(folder, name)
        folders.replace(target, text)
        print(target)


def rendered(document: Document, rows: Sequence[Row], kind: str) -> dict[str, str]:
    """Every file of a study that follows from its table: name -> text."""
    drawn = figures.figures(document)
    files = {"report.md": markdown.to_markdown(document), "report.html": html.to_html(document, drawn)}
    files |= {document.figure_folder + name: svg for name, svg in drawn.items()}
    if kind == "layout" and rows[0]["status"] != "failed":
        run = pipeline(rows[0]).timeline
        files |= {"trace.json": trace.chrome_trace(run), "schedule.csv": run.schedule.to_csv()}
    return files


def _write(staging: Staging, rows: Sequence[Row], document: Document, about: Mapping[str, Any]) -> None:
    store.write(schema.table(rows), staging.path)
    for name, text in rendered(document, rows, about["kind"]).items():
        staging.write(name, text)
    staging.write(MANIFEST, manifest.complete(about, staging.path))


def _common(configs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first config, after checking what must be the same for a whole study."""
    if not configs:
        raise Invalid(["nothing was asked: an axis has no values."])
    first = configs[0]
    problems = [
        f"{key} cannot be swept: a sweep is one study."
        for key in ("lang", "study", "demo")
        if any(c[key] != first[key] for c in configs)
    ]
    if first["lang"] not in LANGUAGES:
        problems.append(f"lang={first['lang']!r} must be one of {', '.join(LANGUAGES)}.")
    elif first["lang"] != "en" and first["demo"] is None:
        problems.append(f"lang={first['lang']}: only demos speak it so far. Nearest: lang=en.")
    if problems:
        raise Invalid(problems)
    return first


def _name(kind: str, configs: Sequence[Mapping[str, Any]]) -> str:
    first = configs[0]
    if kind == "demo":
        return "demo-" + "-".join(name for name, conf in first["demo"].items() if conf is not None)
    if kind == "task":
        return str(tasks.chosen(first))
    if first["grid"] is not None:
        return str(first["grid"]["name"])
    model = "-".join(dict.fromkeys(str(config["model"]["name"]) for config in configs))
    if kind == "sweep":
        return f"{model}-sweep"
    return f"{model}-t{first['parallel']['t']}-p{first['parallel']['p']}"


def _root() -> Path:
    """``outputs/`` of the checkout, or of the current folder where pipesim is installed without one."""
    checkout = configs_.CONF_DIR.parent
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / "outputs"
