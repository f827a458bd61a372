"""The files of a calibration: a stack, and a cluster where its network was fitted, to use from then on; every run's error."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipesim import config as configs
from pipesim.calibrate import constants, intervals
from pipesim.calibrate.fit import Fit
from pipesim.calibrate.runs import Run
from pipesim.costs.columns import FloatArray

Conf = Mapping[str, Any]


def files(config: Conf, runs: Sequence[Run], fitted: Fit, source: str) -> dict[str, str | bytes]:
    """By name in the study. ``source`` says what was fitted to and when; signs that YAML or OmegaConf read are taken out."""
    name, values = config["task"]["calibrate"]["name"], _values(config, runs[0], fitted)
    about = {"name": name, "source": re.sub(r"[^\w.,:()+ -]", "_", source)}
    head = "".join(f"# {line}\n" for line in _head(runs, fitted))
    found: dict[str, str | bytes] = {
        f"conf/stack/{name}.yaml": head + _yaml(_stack(config, values) | own_runs(config, runs, fitted) | about),
        "runs.csv": _runs(runs, fitted),
    }
    if "cluster.network" in values:
        cluster = dict(config["cluster"]) | {"inter_node_gb_per_s": _rounded(values["cluster.network"] / 1e9)}
        found[f"conf/cluster/{name}.yaml"] = head + _yaml(cluster | about)
    return found


def _values(config: Conf, run: Run, fitted: Fit) -> dict[str, float]:
    """What the fit makes of the config's own constants; those of a published row may differ."""
    own = dataclasses.replace(
        run.point, stack=configs.build_stack(config["stack"]), cluster=configs.build_cluster(config["cluster"])
    )
    return {
        each.name: constants.BY_NAME[each.name]
        ._replace(spread=each.spread)
        .moved(constants.value(own, each.name), each.steps)
        for each in fitted.constants
    }


def _stack(config: Conf, values: Mapping[str, float]) -> dict[str, Any]:
    stack = dict(config["stack"]) | {"based_on": config["stack"]["based_on"] or config["stack"]["name"]}
    for key, value in values.items():
        field = key.removeprefix("stack.")
        if field == "gemm_efficiency":
            stack[field] = {**stack[field], config["cluster"]["chip"]: _rounded(value)}
        elif field in stack:
            stack[field] = _rounded(value)
        elif field.endswith("_s"):
            stack[f"{field[:-2]}_us"] = _rounded(value * 1e6)
    return stack


DOUBTFUL = 0.15
"""Error after fitting from which the runs can hardly be what the config says; studies of one machine are within 0.1."""


def left(runs: Sequence[Run], fitted: Fit) -> float:
    """Root mean square error after the fit, or the standard deviation of one configuration's runs where that is larger, which
    no fit can tell apart; from ``DOUBTFUL`` on it is no fit.
    """
    error = float(np.sqrt(np.mean(np.expm1(fitted.error_after) ** 2)))
    alike: dict[tuple[object, ...], list[float]] = {}
    for run in runs:
        alike.setdefault((run.point, run.source), []).append(math.log(run.step_time_s))
    squares = sum(float(np.var(logs)) * len(logs) for logs in alike.values())
    return max(error, math.sqrt(squares / max(len(runs) - len(alike), 1)))


def own_runs(config: Conf, runs: Sequence[Run], fitted: Fit) -> dict[str, Any]:
    """How many different runs stand behind the constants, and what intervals of all of them were wider for; nothing stands
    behind a fit that is none.
    """
    if left(runs, fitted) > DOUBTFUL:
        return {"own_runs": {}, "own_reasons": []}
    outside = [set(intervals.reasons(run.point, intervals.packaged())) for run in runs]
    return {
        "own_runs": {config["cluster"]["chip"]: len({run.point for run in runs})},
        "own_reasons": sorted(set.intersection(*outside) - {"stack", "chip"}),
    }


def _head(runs: Sequence[Run], fitted: Fit) -> Iterator[str]:
    def mean(error: FloatArray) -> str:
        return f"{100 * float(np.mean(np.abs(np.expm1(error)))):.1f} %"

    many = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    yield f"Mean error of the step time of {many}: {mean(fitted.error_before)} before the fit, {mean(fitted.error_after)} after it."
    for each in fitted.constants:
        known = "" if each.is_known else "; the runs say nothing about it alone"
        yield (
            f"{each.name} ({each.unit}): {each.before:.4g} before, {each.after:.4g} after, {each.low:.4g} to {each.high:.4g} "
            f"within two standard deviations{known}"
        )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _yaml(values: Conf) -> str:
    """JSON is YAML; one key a line."""
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def _runs(runs: Sequence[Run], fitted: Fit) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("row", "id", "source", "measured_step_time_s", "before_step_time_s", "after_step_time_s"))
    for run, before, after in zip(runs, fitted.error_before, fitted.error_after, strict=True):
        seconds = (float(run.step_time_s * np.exp(error)) for error in (before, after))
        table.writerow((run.row, run.id, run.source, run.step_time_s, *seconds))
    return text.getvalue()
