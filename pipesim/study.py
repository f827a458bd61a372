"""One way through for single layouts, sweeps, grids and demos: configs -> rows -> study folder -> reports."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipesim import config as configs_
from pipesim import demos, dry_run, fitting, headroom, legality, next_steps, safe_config, sweeping, tasks, tracking
from pipesim.calibrate import evidence
from pipesim.checks import Invalid, suggest
from pipesim.errors import FailedPoints
from pipesim.estimate import pipeline
from pipesim.plan import grid
from pipesim.plan.asked.space import Space, cut, total
from pipesim.plan.search import best, question
from pipesim.plan.search import layouts as search
from pipesim.report import figures, html, markdown, paper, terminal, viewer
from pipesim.report.document import Document
from pipesim.report.execute.runs_page import runs_page
from pipesim.report.layout.page import layout_page
from pipesim.report.ranking import ranked
from pipesim.report.sweep.page import sweep_page
from pipesim.report.timeline import trace
from pipesim.results import folder as folders
from pipesim.results import kept_rows, manifest, measured, schema, store
from pipesim.results.folder import Staging, StudyFolderError
from pipesim.results.schema import Row
from pipesim.sweeping import Sweep
from pipesim.swept import with_told
from pipesim.tasks.plan.page import page as plan_page

LANGUAGES = ("en", "zh")
HELD = ("stage_activation", "rank_memory")
"""Bytes that a trace's counter is made of; tables of older versions lack the first."""
ONE = ("lang", "headroom", "study", "demo", "engine", "resume", "resume_anyway", "fail_fast")
"""Keys that are the same for all points of a study."""


def run(spaces: Sequence[Space], overrides: Sequence[str], swept: bool) -> Path | None:
    """Answers what was asked, prints it, writes the study and returns its folder; None after a dry run.

    Raises ``Invalid`` for a single layout that breaks rules and for settings that cannot work, ``FailedPoints`` after
    the study is written if any of its points failed, ``Stopped`` if it was stopped and something of it is kept.
    """
    first = _common(spaces)
    kind = _kind(first, spaces, swept)
    if kind == "plan":
        spaces = search.spaces(first)
    if first["study"]["dry_run"]:
        counted = dry_run.count(spaces, lambda slices: grid.evaluate(slices, details=False))
        terminal.print_document(dry_run.document(counted))
        return None
    tracking.check(first["study"])
    if kind == "plan":  # whose words all have columns
        wanted = best.wanted_of(first)
        return _swept(Sweep(spaces=spaces, config=first, overrides=overrides, runs=False, wanted=wanted), kind)
    spaces = with_told(spaces)
    if kind in ("sweep", "runs"):
        return _swept(Sweep(spaces=spaces, config=first, overrides=overrides, runs=kind == "runs"), kind)
    if first["resume"] is not None:
        raise Invalid([f"resume={first['resume']}: only a sweep is gone on with, and this is a {kind}. Leave it out."])
    about = _about(kind, overrides, first) | {"code": [sweeping.version()]}
    files: dict[str, str | bytes] = {}
    took: list[Row] = []
    read: tuple[str, ...] = ()
    if kind == "demo":
        document, rows = demos.run(first)
    elif kind == "task":
        done = tasks.run(first)
        document, rows, files, read = done.document, done.rows, done.files, done.words
        if any(name.startswith("conf/") for name in files):  # which is a folder of its own, with all that was chosen
            files = {**safe_config.own_files(sys.argv[1:], overrides), **files}
        if done.measured:
            point_id = sweeping.point_id(spaces)
            rows, took = [{**rows[0], "point_id": point_id}], [{**done.measured, "point_id": point_id}]
    else:
        legality.resolve(configs_.build(first))
        rows = evaluate(spaces)
        if rows[0]["status"] == "invalid":
            raise Invalid(rows[0]["reason"].splitlines())
        document = page(kind, rows, about)
    with folders.new_study(
        _root(), first["study"]["name"] or _name(kind, first, spaces), first["study"]["dir"]
    ) as staging:
        for name, content in files.items():
            staging.write(name, content)
        with store.Writer(staging.path, csv=True) as writer:
            writer.add(schema.table(rows))
        if took:
            measured.write(took, staging.path)
        notes = _finish(staging, rows, document, about)
    assert staging.final is not None
    shown = rows[0] if kind == "layout" else None
    _say(document, [*notes, *next_steps.lines(about, shown, staging.final, document.language, read)], staging.final)
    counts = Counter(row["status"] for row in rows)
    tracking.log(first["study"], about, shown or (took or [{}])[0], counts, staging.final)
    _tell_failed(counts, staging.final)
    return staging.final


def _swept(sweep: Sweep, kind: str) -> Path:
    if whole := sweeping.complete(sweep):
        print(f"nothing is left to do.\n\nstudy: {whole}", flush=True)
        _tell_failed(manifest.read(whole)["counts"], whole)
        return whole
    name = sweep.config["study"]["name"] or _name(kind, sweep.config, sweep.spaces)
    with sweeping.opened(sweep, _root(), name) as staging:
        made = sweeping.made(sweep, staging)
        kept, known = sweeping.together(sweep, staging, made)
        about = _about(kind, *sweeping.begun(sweep, staging)) | known
        rows = kept.rows()
        if kind == "runs":
            took = [{**each.measured, "point_id": each.asked[:16]} for each in made if each.measured]
            measured.write(took, staging.path)
            document = runs_page(rows, {each["point_id"]: each for each in took}, kept.counts, about)
        elif kind == "plan":
            document = plan_page(rows, about)
        else:
            document = _sweep_page(rows, about, kept.counts)
        notes = _finish(staging, rows, document, about)
    assert staging.final is not None
    order = question.ranked(sweep.config, rows) if kind == "plan" else [row for row in ranked(rows) if row["fits"]]
    first = next(iter(order), None) if kind in ("sweep", "plan") else None
    more = [*sweeping.told(about), *notes, *next_steps.lines(about, first, staging.final, document.language)]
    _say(document, more, staging.final)
    tracking.log(sweep.config["study"], about, first or {}, about.get("evaluated") or kept.counts, staging.final)
    _tell_failed(kept.counts, staging.final)
    return staging.final


def _about(kind: str, overrides: Sequence[str], config: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest's facts of any study; the words that name the user's own configs are such that printed commands find
    them.
    """
    own = safe_config.own_configs(sys.argv[1:])
    return (
        manifest.about(kind, overrides, config)
        | {"evidence": evidence.packaged()}
        | ({"own_configs": own} if own else {})
    )


def _kind(config: Mapping[str, Any], spaces: Sequence[Space], swept: bool) -> str:
    if config["demo"] is not None:
        return "demo"
    task = tasks.chosen(config)
    if task is None:
        return "sweep" if swept else "layout"
    if total(spaces) == 1:
        return "plan" if task == "plan" else "task"
    if task not in tasks.SWEPT:
        raise Invalid([f"experiment={task} is one study and cannot be swept. Nearest: run it once for each point."])
    return "runs"


def evaluate(spaces: Sequence[Space]) -> list[Row]:
    """A row for every point, in the order of the table."""
    rows: list[Row] = grid.evaluate(cut(with_told(spaces), 0, total(spaces)), details=True).to_pylist()
    return rows


def page(kind: str, rows: Sequence[Row], about: Mapping[str, Any]) -> Document:
    """What a layout's study says, or a small sweep's; the same from a fresh evaluation and from its table."""
    if kind == "layout" and rows[0]["status"] != "failed":
        return layout_page(rows[0], *pipeline(rows[0]), about, *fitting.of_layout(rows[0], about["config"]))
    if kind == "plan":
        return plan_page(rows, about)
    return _sweep_page(rows, about, Counter(row["status"] for row in rows))


def render_again(folder: Path) -> None:
    """Writes reports and figures of a study anew from its table. Raises ``ValueError`` if the folder holds no study."""
    about = manifest.read(folder)
    if about["kind"] in ("task", "runs"):
        raise ValueError(f"{folder} holds a task, whose report is not made from its table; run the task again.")
    if about["kind"] == "sweep":
        kept = kept_rows.of_table(folder / store.PARQUET)
        rows = kept.rows()
    else:
        kept, rows = None, store.read(folder)
    try:
        if about["kind"] == "demo":
            document = demos.run(about["config"])[0]
        else:
            document = page(about["kind"], rows, about) if kept is None else _sweep_page(rows, about, kept.counts)
        papers, notes = _papers(document, about)
        files = rendered(document, rows, about["kind"]) | papers
    except Exception as error:  # a study from elsewhere can hold anything that its files' types allow
        raise StudyFolderError(
            f"{folder}: no report can be made of its table: {type(error).__name__}: {error}"
        ) from error
    for name, content in files.items():
        target = folders.inside(folder, name)
        folders.replace(target, content)
        print(target)
    print("".join(f"{note}\n" for note in notes), end="")


def _sweep_page(rows: Sequence[Row], about: Mapping[str, Any], counts: Mapping[str, int]) -> Document:
    """``counts`` are of the table; what a grid evaluated and kept not stands in ``about``."""
    counts = about.get("evaluated") or counts
    return sweep_page(rows, about, counts, *fitting.of_sweep(ranked(rows), about.get("first_point") or about["config"]))


def rendered(document: Document, rows: Sequence[Row], kind: str) -> dict[str, str | bytes]:
    """Every file of a study that follows from its table, but pictures for papers: name -> content."""
    drawn = figures.figures(document)
    files: dict[str, str | bytes] = {
        "report.md": markdown.to_markdown(document),
        "report.html": html.to_html(document, drawn),
    }
    files |= {document.figure_folder + name: svg for name, svg in drawn.items()}
    if viewer.views(document):
        files["timeline.html"] = viewer.page(document)
    if kind == "layout" and rows[0]["status"] != "failed":
        run, (stages, ranks) = pipeline(rows[0]).timeline, (rows[0][f"{name}_bytes"] for name in HELD)
        memory = trace.Memory(stages, ranks) if stages else None
        files |= {"trace.json": trace.chrome_trace(run, memory), "schedule.csv": run.schedule.to_csv()}
    return files


def _papers(document: Document, about: Mapping[str, Any]) -> tuple[dict[str, bytes], list[str]]:
    """The pictures in the formats that ``study.figures`` asks for beside SVG, and what to know of them."""
    asked = (about["config"] if "config" in about else about["first_point"])["study"].get("figures", ())
    files, notes = paper.papers(document, [form for form in paper.FORMATS if form in asked])
    return {document.figure_folder + name: content for name, content in files.items()}, notes


def _finish(staging: Staging, rows: Sequence[Row], document: Document, about: Mapping[str, Any]) -> list[str]:
    """What to know of the pictures, a sentence each."""
    papers, notes = _papers(document, about)
    for name, content in (rendered(document, rows, about["kind"]) | papers).items():
        staging.write(name, content)
    staging.finish(manifest.complete(about, staging.path))
    return notes


def _say(document: Document, more: Sequence[str], folder: Path) -> None:
    terminal.print_document(document)
    print("\n" + "".join(f"{line}\n" for line in more) + f"study: {folder}", flush=True)


def _tell_failed(counts: Mapping[str, int], folder: Path) -> None:
    if failed := counts.get("failed"):
        table = store.CSV if (folder / store.CSV).exists() else store.PARQUET
        log = f", tracebacks in {folder / sweeping.FAILURES}" if (folder / sweeping.FAILURES).exists() else ""
        raise FailedPoints(
            f"{failed} of {sum(counts.values())} points failed; their reasons stand in {folder / table}{log}."
        )


def _common(spaces: Sequence[Space]) -> dict[str, Any]:
    """The first config, after checking what must be the same for a whole study."""
    if not total(spaces):
        raise Invalid(["nothing was asked: an axis has no values."])
    first = dict(next(space for space in spaces if len(space)).config(0))
    varied = {key.split(".")[0] for space in spaces for axis in space.axes if len(axis.values) > 1 for key in axis.keys}
    problems = [
        f"{key} cannot be swept: a sweep is one study."
        for key in ONE
        if key in varied or any(space.config(0)[key] != first[key] for space in spaces if len(space))
    ]
    problems += [
        f"study.figures={form!r} must be one of {', '.join(paper.FORMATS)}. Nearest: study.figures=[svg,png,pdf]."
        for form in first["study"]["figures"]
        if form not in paper.FORMATS
    ]
    problems += headroom.problems(first)
    if first["lang"] not in LANGUAGES:
        problems.append(
            f"lang={first['lang']!r} must be one of {', '.join(LANGUAGES)}.{suggest(str(first['lang']), LANGUAGES)}"
        )
    elif first["lang"] != "en" and first["demo"] is None and tasks.chosen(first) is not None:
        problems.append(f"lang={first['lang']}: only layouts, sweeps and demos speak it so far. Nearest: lang=en.")
    if problems:
        raise Invalid(problems)
    return first


def _name(kind: str, first: Mapping[str, Any], spaces: Sequence[Space]) -> str:
    if kind == "demo":
        return "demo-" + "-".join(name for name, conf in first["demo"].items() if conf is not None)
    if kind in ("task", "runs", "plan"):
        return str(tasks.chosen(first))
    if first["grid"] is not None:
        return str(first["grid"]["name"])
    model = "-".join(dict.fromkeys(name for space in spaces for name in _values(space, "model.name")))
    if kind == "sweep":
        return f"{model}-sweep"
    return f"{model}-t{first['parallel']['t']}-p{first['parallel']['p']}"


def _values(space: Space, key: str) -> list[str]:
    """Those that a key takes in a space."""
    for axis in reversed(space.axes):
        if key in axis.keys:
            return [str(value[axis.keys.index(key)]) for value in axis.values]
    group, name = key.split(".")
    return [str(space.base[group][name])]


def _root() -> Path:
    """``outputs/`` of the checkout, or of the current folder where pipesim is installed without one."""
    checkout = configs_.CONF_DIR.parent
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / "outputs"
