"""A user's own measured runs: a small CSV, read onto the config that the command line makes, and checked before use.

One row a run. Every column is a config key without its group (``t``, ``micro_batch``, ``schedule`` …) or one of
``model``, ``gpus``, ``step_time_s``, ``memory_gb``, ``tflops_per_gpu``; what has no column stays as the config has it.
"""

from __future__ import annotations

import copy
import csv
import difflib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipesim import legality
from pipesim.checks import Invalid
from pipesim.specs import Point

PARALLEL = ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")
TRAINING = ("micro_batch", "global_batch", "seq_length", "precision", "recompute", "attention")
MEASURED = ("step_time_s", "memory_gb", "tflops_per_gpu")
COLUMNS = ("id", "model", "gpus", "schedule", *PARALLEL, *TRAINING, *MEASURED)
NEEDED = ("t", "p", "micro_batch", "global_batch", "step_time_s")

CONSTANCY = 0.05
"""Printed TFLOP/s, seconds and GPUs of one model and batch agree to this, or a cell is wrong."""

_SWAPS = tuple(itertools.combinations(("t", "p", "d"), 2)) + (("micro_batch", "global_batch"),)

Build = Callable[[Mapping[str, Any]], Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    point: Point
    step_time_s: float
    memory_bytes: float | None
    tflops_per_gpu: float | None


def read(path: Path, base: Mapping[str, Any], models: Mapping[str, Any], build: Build) -> tuple[list[Run], list[str]]:
    """The runs, resolved, and warnings. ``base`` is the plain config, ``models`` the configs of ``conf/model`` by name.

    Raises ``Invalid`` with everything that is wrong in any row: columns, numbers, GPUs that do not multiply out, batches
    that do not divide, columns that look swapped.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid([f"measurements={path} cannot be read: {error}."]) from None
    problems = _columns(path, rows)
    if problems:
        raise Invalid(problems)
    runs = []
    for number, row in enumerate(rows, start=1):
        cells = {key: str(cell).strip() for key, cell in row.items() if key in COLUMNS and str(cell).strip()}
        try:
            runs.append(_run(number, cells, base, models, build))
        except Invalid as error:
            problems += [f"measurements={path}: row {number}: {problem}" for problem in error.problems]
    if problems:
        raise Invalid(problems)
    return runs, [*_inconstant(runs), *_repeated(runs)]


def _columns(path: Path, rows: Sequence[Mapping[str, str]]) -> list[str]:
    if not rows:
        return [f"measurements={path} has no rows. It needs the columns {', '.join(NEEDED)}."]
    named = [name for name in rows[0] if name is not None]
    problems = [f"measurements={path}: a row has more cells than the first line has columns."] if None in rows[0] else []
    for name in named:
        if name not in COLUMNS:
            near = difflib.get_close_matches(name, COLUMNS, n=1, cutoff=0.5)
            nearest = f"Nearest: {near[0]}." if near else f"Known: {', '.join(COLUMNS)}."
            problems.append(f"measurements={path}: column {name!r} is unknown. {nearest}")
    missing = [name for name in NEEDED if name not in named]
    if missing:
        problems.append(f"measurements={path}: columns {', '.join(missing)} are missing.")
    return problems


def _run(number: int, cells: Mapping[str, str], base: Mapping[str, Any], models: Mapping[str, Any], build: Build) -> Run:
    problems: list[str] = []
    numbers = {name: _number(name, cells[name], problems) for name in (*MEASURED, "gpus") if name in cells}
    if "step_time_s" not in cells:
        problems.append("step_time_s is empty.")
    config = _config(cells, base, models, problems)
    if problems:
        raise Invalid(problems)
    point = _resolved(cells, config, base, models, build)
    used = point.layout.t * point.layout.p * point.layout.c * (point.layout.d or 1)
    gpus = numbers.get("gpus")
    if gpus is not None and gpus != used:
        raise Invalid([f"t x p x c x d = {used} is not gpus={gpus:g}. Nearest: d={_nearest_d(point, gpus)}."])
    memory_gb = numbers.get("memory_gb")
    return Run(
        id=cells.get("id", str(number)),
        point=point,
        step_time_s=numbers["step_time_s"],
        memory_bytes=None if memory_gb is None else memory_gb * 1e9,
        tflops_per_gpu=numbers.get("tflops_per_gpu"),
    )


def _config(
    cells: Mapping[str, str], base: Mapping[str, Any], models: Mapping[str, Any], problems: list[str]
) -> dict[str, Any]:
    """The base config with the row's values."""
    config = copy.deepcopy(dict(base))
    for group, keys in (("parallel", PARALLEL), ("training", TRAINING)):
        for key in keys:
            if key in cells:
                config[group][key] = _typed(key, cells[key], problems)
    if "d" not in cells:
        config["parallel"]["d"] = None
    if "gpus" in cells:
        config["cluster"]["gpus"] = _typed("gpus", cells["gpus"], problems)
    if "schedule" in cells:
        config["schedule"]["name"] = cells["schedule"]
    if "model" in cells:
        if cells["model"] in models:
            config["model"] = models[cells["model"]]
        else:
            near = difflib.get_close_matches(cells["model"], models, n=1, cutoff=0.3)
            hint = f" Nearest: {near[0]}." if near else ""
            problems.append(f"model={cells['model']!r} is no file of conf/model.{hint}")
    return config


def _resolved(
    cells: Mapping[str, str], config: Mapping[str, Any], base: Mapping[str, Any], models: Mapping[str, Any], build: Build
) -> Point:
    try:
        return legality.resolve(build(config))
    except Invalid as error:
        for one, other in _SWAPS:
            if one in cells and other in cells and cells[one] != cells[other]:
                swapped = {**cells, one: cells[other], other: cells[one]}
                try:
                    legality.resolve(build(_config(swapped, base, models, [])))
                except Invalid:
                    continue
                hint = f"With {one}={cells[other]} and {other}={cells[one]} it would work: are the columns swapped?"
                raise Invalid([*error.problems, hint]) from None
        raise


def _typed(key: str, text: str, problems: list[str]) -> Any:
    if key in ("precision", "recompute", "attention"):
        return text
    if key == "sequence_parallel":
        return text.lower() in ("true", "yes", "1")
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value != int(value):
        problems.append(f"{key}={text!r} must be a whole number.")
        return None
    return int(value)


def _number(name: str, text: str, problems: list[str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        problems.append(f"{name}={text!r} must be a number above 0.")
    return value


def _nearest_d(point: Point, gpus: float) -> int:
    layout = point.layout
    return max(1, round(gpus / (layout.t * layout.p * layout.c)))


def _inconstant(runs: Sequence[Run]) -> list[str]:
    """Seconds x TFLOP/s x GPUs / tokens is FLOPs a token: the same for every run of one model, whatever the convention."""
    found = []
    by_model: dict[tuple[object, ...], list[tuple[Run, float]]] = {}
    for run in runs:
        if run.tflops_per_gpu is not None:
            layout, training = run.point.layout, run.point.training
            gpus = layout.t * layout.p * layout.c * (layout.d or 1)
            length = training.seq_length or run.point.model.context
            each = run.step_time_s * run.tflops_per_gpu * 1e12 * gpus / (training.global_batch * length)
            by_model.setdefault((run.point.model, length, training.recompute), []).append((run, each))
    for members in by_model.values():
        usual = float(np.median([each for _, each in members]))
        for run, each in members:
            if abs(each / usual - 1) > CONSTANCY:
                found.append(
                    f"run {run.id}: step_time_s x tflops_per_gpu x GPUs / tokens is {each / usual:.2f} of the other runs'; "
                    "a time, a number of GPUs or a batch is wrong, or its FLOPs are counted otherwise."
                )
    return found


def _repeated(runs: Sequence[Run]) -> list[str]:
    found = []
    first: dict[Point, Run] = {}
    for run in runs:
        same = first.setdefault(run.point, run)
        if same is not run and abs(np.log(run.step_time_s / same.step_time_s)) > CONSTANCY:
            found.append(
                f"runs {same.id} and {run.id} are one configuration, but take {same.step_time_s:g} and "
                f"{run.step_time_s:g} s: something differs that no column names."
            )
    return found
