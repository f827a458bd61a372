"""How many measured runs stand behind the constants of each stack, and how far off their predictions are."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from pipesim.calibrate.validate import Validation
from pipesim.costs.columns import FloatArray

EVIDENCE = "evidence.json"


@cache
def _text() -> str:
    return (resources.files(__package__) / "data" / EVIDENCE).read_text(encoding="utf-8")


def packaged() -> list[dict[str, Any]]:
    """A line for every stack, chip and role (calibration: fitted to; dev: not) that has measured runs, see ``lines``."""
    found: list[dict[str, Any]] = json.loads(_text())
    return found


def lines(validation: Validation) -> list[dict[str, Any]]:
    """``runs`` that can be predicted on up to ``gpus`` GPUs; of those with a step time that is scored, or a memory, how many
    and the mean of |predicted / measured - 1|, None where there is none.
    """
    groups: dict[tuple[str, str, str], list[int]] = {}
    for i, (each, role) in enumerate(zip(validation.measurements, validation.roles, strict=True)):
        if each.point is not None and validation.known[i]:
            groups.setdefault((each.point.stack.name, each.point.cluster.chip, role), []).append(i)
    time = np.abs(validation.predicted.step_time_s / validation.measured_s - 1)
    time = np.where(validation.timed, time, np.nan)
    memory = np.abs(validation.predicted.memory_bytes / validation.measured_bytes - 1)
    return [
        {
            "stack": stack,
            "chip": chip,
            "role": role,
            "runs": len(at),
            "gpus": max(each.point.cluster.gpus for i in at if (each := validation.measurements[i]).point),
            **_error("step_time", "step_times", time[at]),
            **_error("memory", "memories", memory[at]),
        }
        for (stack, chip, role), at in sorted(groups.items())
    ]


def _error(name: str, counted: str, errors: FloatArray) -> dict[str, Any]:
    found = errors[np.isfinite(errors)]
    return {counted: len(found), f"{name}_error": round(float(found.mean()), 4) if len(found) else None}


def dump(found: list[dict[str, Any]]) -> str:
    """As JSON, a line for every line."""
    return "[\n" + ",\n".join(json.dumps(each) for each in found) + "\n]\n"
