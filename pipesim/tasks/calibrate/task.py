"""Task: the constants of one stack and cluster are fitted to a user's own measured runs, and written as a config."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipesim import config as configs
from pipesim.calibrate import agreement, constants, intervals, own_runs
from pipesim.calibrate.constants import Constant
from pipesim.calibrate.fit import Fit, fit
from pipesim.calibrate.predict import predict
from pipesim.calibrate.read_runs import read_runs
from pipesim.calibrate.runs import Runs
from pipesim.checks import Invalid
from pipesim.report.formats import show
from pipesim.specs import Point
from pipesim.tasks import Done
from pipesim.tasks.calibrate.files import files
from pipesim.tasks.calibrate.files import own_runs as own_runs_of
from pipesim.tasks.calibrate.page import page


def calibrate(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` with everything that is wrong with the runs, before anything is fitted."""
    asked = config["task"]["calibrate"]
    if problems := list(_problems(config)):
        raise Invalid(problems)
    path = Path(config["measurements"]).expanduser()
    read = read_runs(path, config)
    runs, points = read.runs, [run.point for run in read.runs]
    predicted = predict(points)
    agreement.refuse_impossible(runs, predicted)
    chosen = _constants(points, asked["constants"] or ())
    fitted = fit(points, [run.step_time_s for run in runs], chosen, [run.source for run in runs])
    date = asked["date"] or read.date or datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
    written = files(config, runs, fitted, f"fitted to {path.name} ({len(runs)} measured), {date}")
    found = [*agreement.warnings(runs, predicted), *agreement.outliers(runs, fitted.error_after)]
    said = _widths(config, read, fitted), agreement.convention(runs, predicted)
    return Done(document=page(asked["name"], read, fitted, [*read.warnings, *found], *said), files=written)


def _widths(config: Mapping[str, Any], read: Runs, fitted: Fit) -> str:
    """What the fit makes of the first run's interval."""
    point, own = read.runs[0].point, own_runs_of(config, read.runs, fitted)
    stack = dataclasses.replace(
        point.stack, based_on=point.stack.based_on or point.stack.name, own_runs=own["own_runs"],
        own_reasons=tuple(own["own_reasons"]),
    )  # fmt: skip
    before, after = (
        show(math.expm1(intervals.step_time_width(each)), "percent")
        for each in (point, dataclasses.replace(point, stack=stack))
    )
    return f"Nine in ten step times like the first run's lay within {before} of the estimate before the fit, {after} after it."


def _problems(config: Mapping[str, Any]) -> list[str]:
    asked, problems = config["task"]["calibrate"], []
    if config["measurements"] is None:
        columns = ", ".join(own_runs.NEEDED)
        problems.append(f"measurements=null: give a CSV of your runs with at least the columns {columns}.")
    if config["costs"]["kind"] != "full":
        kind = config["costs"]["kind"]
        problems.append(f"costs.kind={kind} has no constants that a run could be fitted by. Nearest: costs=full.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", asked["name"]):
        nearest = re.sub(r"[^A-Za-z0-9_-]+", "_", asked["name"]).strip("_-") or "calibrated"
        problems.append(
            f"task.calibrate.name={asked['name']!r} becomes a file's: letters, digits, _ and -. Nearest: {nearest}."
        )
    elif taken := [group for group in ("stack", "cluster") if asked["name"] in configs.library(group)]:
        problems.append(
            f"task.calibrate.name={asked['name']} is a file of conf/{taken[0]} already, which {taken[0]}={asked['name']} "
            f"would go on meaning. Nearest: {asked['name']}_calibrated."
        )
    if asked["date"] is not None and not _is_date(asked["date"]):
        problems.append(f"task.calibrate.date={asked['date']!r} must be a date. Nearest: 'YYYY-MM-DD'.")
    for name in asked["constants"] or ():
        if name not in constants.BY_NAME:
            near = difflib.get_close_matches(name, constants.BY_NAME, n=1, cutoff=0.3)
            nearest = f"Nearest: {near[0]}. " if near else ""
            there = ", ".join(constants.BY_NAME)
            problems.append(f"task.calibrate.constants={name} is unknown. {nearest}There are {there}.")
    return problems


def _is_date(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _constants(points: Sequence[Point], names: Sequence[str]) -> list[Constant]:
    """Those asked for, or all that these runs can be fitted by; a factor cannot move what is 0."""
    outside = {name for point in points for name in intervals.reasons(point, intervals.packaged())}
    found = constants.fitted(points, names, is_measured=not outside & {"stack", "chip", "moe", "fp8"})
    fixed = [each.name for each in found if not each.is_share and constants.value(points[0], each.name) == 0]
    if fixed:
        stack = points[0].stack.name
        raise Invalid(
            [
                f"task.calibrate.constants={name} is 0 in stack.name={stack}, and a factor leaves it so. "
                "Nearest: a stack that has it, or a value above 0 on the command line."
                for name in fixed
            ]
        )
    return found
