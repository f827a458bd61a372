"""Task: the constants of one stack and cluster are fitted to a user's own measured runs, and written as a config."""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipesim.calibrate import agreement, constants, own_runs
from pipesim.calibrate.constants import Constant
from pipesim.calibrate.fit import Fit, fit
from pipesim.calibrate.predict import predict
from pipesim.calibrate.read_runs import read_runs
from pipesim.checks import Invalid
from pipesim.specs import Point
from pipesim.tasks import Done
from pipesim.tasks.calibrate_page import page


def calibrate(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` with everything that is wrong with the runs, before anything is fitted."""
    asked = config["task"]["calibrate"]
    if problems := list(_problems(config)):
        raise Invalid(problems)
    path = Path(config["measurements"])
    read = read_runs(path, config)
    runs, points = read.runs, [run.point for run in read.runs]
    predicted = predict(points)
    agreement.refuse_impossible(runs, predicted)
    chosen = _constants(points, asked["constants"] or ())
    fitted = fit(points, [run.step_time_s for run in runs], chosen, [run.source for run in runs])
    date = asked["date"] or read.date or datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
    files = _configs(config, fitted, f"fitted to {path.name} ({len(runs)} measured), {date}")
    found = [*agreement.warnings(runs, predicted), *agreement.outliers(runs, fitted.error_after)]
    counted = agreement.convention(runs, predicted)
    return Done(document=page(asked["name"], read, fitted, [*read.warnings, *found], counted), files=dict(files))


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
    for name in asked["constants"] or ():
        if name not in constants.BY_NAME:
            near = difflib.get_close_matches(name, constants.BY_NAME, n=1, cutoff=0.3)
            nearest = f"Nearest: {near[0]}. " if near else ""
            there = ", ".join(constants.BY_NAME)
            problems.append(f"task.calibrate.constants={name} is unknown. {nearest}There are {there}.")
    return problems


def _constants(points: Sequence[Point], names: Sequence[str]) -> list[Constant]:
    """Those asked for, or all that these runs can be fitted by; a factor cannot move what is 0."""
    found = constants.fitted(points, names)
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


def _configs(config: Mapping[str, Any], fitted: Fit, source: str) -> list[tuple[str, str | bytes]]:
    """The stack, and the cluster if its network was fitted, as files of a config folder."""
    name, values = config["task"]["calibrate"]["name"], fitted.values
    behind = config["stack"]["based_on"] or config["stack"]["name"]
    stack = dict(config["stack"]) | {"name": name, "based_on": behind, "source": source}
    for key, value in values.items():
        field = key.removeprefix("stack.")
        if field == "gemm_efficiency":
            stack[field] = {**stack[field], config["cluster"]["chip"]: _rounded(value)}
        elif field in stack:
            stack[field] = _rounded(value)
        elif field.endswith("_s"):
            stack[f"{field[:-2]}_us"] = _rounded(value * 1e6)
    files: list[tuple[str, str | bytes]] = [(f"conf/stack/{name}.yaml", _yaml(stack, fitted))]
    if "cluster.network" in values:
        cluster = dict(config["cluster"]) | {"inter_node_gb_per_s": _rounded(values["cluster.network"] / 1e9)}
        files.append((f"conf/cluster/{name}.yaml", _yaml(cluster | {"name": name, "source": source}, fitted)))
    return files


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _yaml(values: Mapping[str, Any], fitted: Fit) -> str:
    """JSON is YAML; one key a line, the fit's residuals above."""
    before, after = (float(np.mean(np.abs(np.expm1(error)))) for error in (fitted.error_before, fitted.error_after))
    head = f"# Mean error of the step time {100 * before:.1f} % before the fit, {100 * after:.1f} % after it.\n"
    return head + "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())
