"""Compares studies: reads them as what comes from elsewhere, and writes one report beside them."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pipesim import checks, config
from pipesim.report import figures, html, markdown, terminal
from pipesim.report.compare.joined import Study
from pipesim.report.compare.page import compare_page
from pipesim.report.formats import clean
from pipesim.report.words import MEMORY_WORDS, STATUS_WORDS, TIME_WORDS
from pipesim.results import folder as folders
from pipesim.results import manifest, measured, schema, store
from pipesim.results.folder import MANIFEST, UNFINISHED, StudyFolderError

COMPARED = "comparison.json"
"""Says of a folder that it holds a comparison, and of which tables."""

KEYS = tuple(name for name in schema.SORT_KEYS if name != "point_id")
_COLUMNS = (
    *schema.SORT_KEYS, "status", "gpus", "num_microbatches", "memory_bytes", "memory_limit_bytes", "step_time_s", "step_time_lo_s",
    "step_time_hi_s", "tokens_per_s", "mfu", "verdict", "flop_convention", *(f"{item}_s" for item in TIME_WORDS),
    *(f"{item}_bytes" for item in MEMORY_WORDS),
)  # fmt: skip
_STEP = {
    "step_s": ("step_time_s", "measured_makespan_s"), "lo_s": ("step_time_lo_s", "measured_makespan_lo_s"),
    "hi_s": ("step_time_hi_s", "measured_makespan_hi_s"),
}  # fmt: skip
"""What a step takes: computed, or where it really ran measured."""


def compare(given: Sequence[Path], out: Path | None) -> Path:
    """Prints and writes the comparison, and returns its folder; the same one again for the same studies.

    Raises ``StudyFolderError`` for what is no study, and for ``out`` where something else stands.
    """
    places = [found(folder).resolve() for folder in given]
    studies = [read(place, name) for place, name in zip(places, _names(places), strict=True)]
    document = compare_page(studies, KEYS)
    drawn = figures.figures(document)
    files = {"report.md": markdown.to_markdown(document), "report.html": html.to_html(document, drawn)}
    files |= {document.figure_folder + name: svg for name, svg in drawn.items()}
    told = {each.name: _hash(place / store.PARQUET) for each, place in zip(studies, places, strict=True)}
    files[COMPARED] = json.dumps({"compared": told}, indent=2, ensure_ascii=False) + "\n"
    folder = _place(out, places[0].parent / folders.slug("-".join(["compare", *told])), files[COMPARED])
    for name, text in files.items():
        folders.replace(folders.inside(folder, name), text)
    terminal.print_document(document)
    print(f"\nopen {folder / 'report.html'}\n\ncomparison: {folder}", flush=True)
    return folder


def found(folder: Path) -> Path:
    """The study's folder. Raises ``StudyFolderError`` with the nearest studies if there is none."""
    if (folder / MANIFEST).is_file():
        return folder
    if folder.is_file():
        near = next((each for each in folder.parents if (each / MANIFEST).is_file()), None)
        raise StudyFolderError(f"{folder} holds no study: it is a file.{_nearest([str(near)] if near else [])}")
    if (folder / UNFINISHED).is_dir():
        raise StudyFolderError(
            f"{folder} holds no study yet: it was begun and stopped. Its command goes on with it, with resume={folder}."
        )
    if (folder / COMPARED).is_file():
        raise StudyFolderError(f"{folder} holds no study but a comparison of some; compare those again.")
    if folder.is_dir() and (inside := _studies(folder)):
        raise StudyFolderError(f"{folder} holds no study itself, but folders that do.{_nearest(inside[:3])}")
    near_by = [each for place in dict.fromkeys([folder.parent, _outputs()]) for each in _studies(place)]
    names = {Path(each).name: each for each in reversed(near_by)}
    liked = checks.alike(folder.name, names)
    there = "its manifest.json is missing" if folder.is_dir() else "there is no such folder"
    raise StudyFolderError(f"{folder} holds no study: {there}.{_nearest([names[name] for name in liked])}")


def read(folder: Path, name: str) -> Study:
    """A study as a comparison needs it. Raises ``StudyFolderError`` where the folder holds no whole study of pipesim."""
    about = _checked(manifest.read(folder), folder)
    path = folder / store.PARQUET
    table = store.read_table(path, _COLUMNS)
    rows = table.to_pandas(types_mapper=_NULLABLE.get)
    took = measured.read(folder)
    if took is not None:
        rows = rows.merge(took.to_pandas(), on="point_id", how="left", validate="many_to_one")
    for wanted, (computed, real) in _STEP.items():
        rows[wanted] = rows[computed].fillna(rows[real]) if real in rows else rows[computed]
    _check_values(rows, path)
    if not len(rows):
        raise StudyFolderError(f"{folder} holds no layouts to compare: its table is empty.")
    points = about.get("evaluated") or Counter(rows["status"])
    return Study(name=name, about=about, rows=rows, points=points, notes=tuple(_notes(about, path, name)))


_NULLABLE = {
    pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.bool_(): pd.BooleanDtype(),
}  # fmt: skip


def _checked(about: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """The manifest, if everything that a comparison reads of it has its type."""
    wrong = [
        key
        for key, holds in (
            ("kind", isinstance(about["kind"], str)),
            ("overrides", _all_texts(about.get("overrides"))),
            ("versions", isinstance(about.get("versions"), dict) and isinstance(about["versions"].get("pipesim"), str)),
            ("config", isinstance(about.get("config", about.get("first_point", {})), dict)),
            ("files", isinstance(about.get("files", {}), dict)),
            ("code", _all_texts(about.get("code", []))),
            ("kept", isinstance(about.get("kept", ""), str)),
            ("evaluated", _all_counts(about.get("evaluated", {}))),
        )
        if not holds
    ]
    if wrong:
        raise StudyFolderError(f"{folder / MANIFEST} is no manifest as pipesim writes it: see its {', '.join(wrong)}.")
    return about


def _check_values(rows: pd.DataFrame, path: Path) -> None:
    """Raises ``StudyFolderError`` for what no study writes: other outcomes, layouts with times that are no numbers."""
    odd = sorted(set(rows["status"].fillna("nothing")) - set(STATUS_WORDS))
    if odd:
        raise StudyFolderError(f"{path} holds a status that pipesim knows not: {clean(odd[0])}. Was it changed?")
    priced = rows[rows["status"].isin(("ok", "infeasible"))]
    for name in ("step_s", "tokens_per_s", "memory_bytes"):
        values = priced[name].to_numpy(float, na_value=math.nan)
        values = values[~np.isnan(values)] if name != "step_s" else values
        if not (np.isfinite(values) & (values >= 0)).all():
            raise StudyFolderError(f"{path} holds layouts whose {name} is no number of at least 0. Was it changed?")


def _all_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _all_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, int) for each in value.values())


def _notes(about: Mapping[str, Any], path: Path, name: str) -> Iterator[str]:
    written = schema.version(pq.read_schema(path))
    if written < schema.VERSION:
        yield f"the table of {name} has version {written} of the schema ({schema.VERSION} is today's): newer columns are empty."
    listed = about.get("files", {}).get(store.PARQUET)
    if listed is not None and listed != _hash(path):
        yield f"the table of {name} is not the one that its manifest lists: it was changed after the study was made."
    if kept := about.get("kept"):
        yield f"{name} holds only some of its points, so a layout that is new or gone may have been evaluated and not kept. {kept}"


def _names(places: Sequence[Path]) -> list[str]:
    """The folders' names; of those with one name, the later with a number."""
    names = [clean(place.name) for place in places]
    nth = [names[:at].count(name) + 1 for at, name in enumerate(names)]
    return [name if number == 1 else f"{name} ({number})" for name, number in zip(names, nth, strict=True)]


def _place(out: Path | None, usual: Path, told: str) -> Path:
    """``out``, or ``usual`` with a number where that holds something other than this comparison."""
    if out is not None:
        if out.is_file() or (out.is_dir() and any(out.iterdir()) and not _holds(out, told)):
            raise StudyFolderError(f"--out={out} exists and holds something else. Choose another; nothing was changed.")
        return _made(out)
    number = 1
    while True:
        target = usual if number == 1 else usual.with_name(f"{usual.name}-{number}")
        if not target.exists() or _holds(target, told):
            return _made(target)
        number += 1


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyFolderError(
            f"{folder} cannot be written: {error.strerror}. Choose another with --out DIR."
        ) from None
    return folder


def _holds(folder: Path, told: str) -> bool:
    try:
        return (folder / COMPARED).read_text(encoding="utf-8") == told
    except (OSError, ValueError):
        return False


def _studies(folder: Path) -> list[str]:
    try:
        return sorted(str(each) for each in folder.iterdir() if (each / MANIFEST).is_file())
    except OSError:
        return []


def _outputs() -> Path:
    return config.CONF_DIR.parent / "outputs"


def _nearest(options: Sequence[str]) -> str:
    return f" Nearest: {' or '.join(options)}." if options else ""


def _hash(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
