"""Task: the constants of one stack and cluster are fitted to a user's own measured runs, and written as a config."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipesim import config as configs
from pipesim.calibrate import constants, own_runs
from pipesim.calibrate.constants import Constant
from pipesim.calibrate.fit import NOISE, Fit, fit
from pipesim.calibrate.own_runs import Run
from pipesim.checks import Invalid
from pipesim.report.document import Column, Document, Observations, Section, Table
from pipesim.tasks import Done

FAR = 3.5
"""Robust standard scores beyond this are outliers. Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers", 1993."""



def calibrate(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` with everything that is wrong with the runs, before anything is fitted."""
    asked, base = config["task"]["calibrate"], config
    if config["measurements"] is None:
        columns = ", ".join(own_runs.NEEDED)
        raise Invalid([f"measurements=null: give a CSV of your runs with at least the columns {columns}."])
    path = Path(config["measurements"])
    runs, warnings = own_runs.read(path, base, configs.library("model"), configs.build)
    chosen = _constants(runs, asked["constants"])
    fitted = fit([run.point for run in runs], [run.step_time_s for run in runs], chosen)
    date = asked["date"] or datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
    files = _configs(config, fitted, f"fitted to {len(runs)} runs of {path.name}, {date}")
    return Done(document=_page(asked["name"], runs, fitted, [*warnings, *_outliers(runs, fitted)]), files=dict(files))


def _constants(runs: Sequence[Run], names: Sequence[str] | None) -> list[Constant]:
    known = [constant.name for constant in constants.CONSTANTS]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise Invalid([f"task.calibrate.constants={unknown} are unknown; there are {', '.join(known)}."])
    points = [run.point for run in runs]
    found = constants.fitted(points, names or ())
    if all((point.layout.d or 1) * point.layout.t * point.layout.p <= point.cluster.gpus_per_node for point in points):
        found = [constant for constant in found if constant.name != "cluster.network"]
    return found


def _configs(config: Mapping[str, Any], fitted: Fit, source: str) -> Sequence[tuple[str, str | bytes]]:
    """The stack, and the cluster if its network was fitted, as files of a config folder."""
    name, values = config["task"]["calibrate"]["name"], fitted.values
    behind = config["stack"]["based_on"] or config["stack"]["name"]
    stack = dict(config["stack"]) | {"name": name, "based_on": behind, "source": source}
    for key, value in values.items():
        field = key.removeprefix("stack.")
        if field == "gemm_efficiency":
            stack[field] = {**stack[field], config["cluster"]["chip"]: round(value, 4)}
        elif field in stack:
            stack[field] = _rounded(value)
        elif field.endswith("_launch_s"):
            stack[field.replace("_s", "_us")] = _rounded(value * 1e6)
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


def _outliers(runs: Sequence[Run], fitted: Fit) -> list[str]:
    error = fitted.error_after
    off = error - np.median(error)
    scale = max(float(np.median(np.abs(off))) / 0.6745, NOISE / 4)
    return [
        f"run {run.id} is {100 * np.expm1(each):+.0f} % off after the fit, out of line with the others: look at it again."
        for run, each, far in zip(runs, error, np.abs(off) / scale > FAR, strict=True)
        if far
    ]


def _page(name: str, runs: Sequence[Run], fitted: Fit, warnings: Sequence[str]) -> Document:
    use = (
        f"The fitted stack lies in conf/stack/{name}.yaml of this study. Use it with "
        f"--config-dir STUDY/conf stack={name} behind experiments/run.py, STUDY being this folder."
    )
    sections = [
        Section(title="What the runs say", blocks=(use, _fitted_table(fitted), _error_table(fitted), *_alike(fitted))),
        Section(title="Each run", blocks=(_runs_table(runs, fitted),)),
    ]
    if warnings:
        sections.insert(0, Section(title="Look at these", blocks=(Observations(title="Warnings", claims=tuple(warnings)),)))
    return Document(title=f"Calibration of {runs[0].point.stack.name} to {len(runs)} runs", sections=tuple(sections))


def _fitted_table(fitted: Fit) -> Table:
    columns = (
        Column(title="constant"), Column(title="before", kind="number"), Column(title="after", kind="number"),
        Column(title="within a factor of", kind="number"), Column(title="the runs say something", kind="flag"),
    )  # fmt: skip
    rows = tuple((each.name, each.before, each.after, each.spread**2, each.is_known) for each in fitted.constants)
    note = "SI units. The factor covers two standard deviations; where the runs say nothing, the value is the one before."
    return Table(title="Constants", columns=columns, rows=rows, note=note)


def _error_table(fitted: Fit) -> Table:
    def figures(error: Any) -> tuple[float, ...]:
        size = np.abs(np.expm1(error))
        return float(size.mean()), float(np.median(size)), float(size.max()), float(np.expm1(np.mean(error)))

    titles = ("mean", "median", "largest", "bias")
    columns = (Column(title="step time's error"), *(Column(title=title, kind="percent") for title in titles))
    rows = (("before", *figures(fitted.error_before)), ("after", *figures(fitted.error_after)))
    return Table(title="Predicted over measured, less one", columns=columns, rows=rows)


def _alike(fitted: Fit) -> list[Observations]:
    claims = [f"{one} and {other} (correlation {each:+.2f})" for one, other, each in fitted.alike]
    return [Observations(title="What these runs cannot tell apart", claims=tuple(claims))] if claims else []


def _runs_table(runs: Sequence[Run], fitted: Fit) -> Table:
    columns = (
        Column(title="run"), Column(title="t", kind="count"), Column(title="p", kind="count"),
        Column(title="d", kind="count"), Column(title="micro-batch", kind="count"), Column(title="measured", kind="seconds"),
        Column(title="before", kind="percent"), Column(title="after", kind="percent"),
    )  # fmt: skip
    rows = tuple(
        (run.id, run.point.layout.t, run.point.layout.p, run.point.layout.d, run.point.training.micro_batch,
         run.step_time_s, float(np.expm1(before)), float(np.expm1(after)))
        for run, before, after in zip(runs, fitted.error_before, fitted.error_after, strict=True)
    )  # fmt: skip
    return Table(title="Predicted over measured, less one", columns=columns, rows=rows)
