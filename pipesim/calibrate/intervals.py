"""How far an estimate may be off: 90 % intervals from what validation left unexplained, wider where nothing was measured.

An interval is ``point * exp(-w) .. point * exp(w)``. ``w`` joins independent reasons as the root of the sum of their
squares: the scatter of rows, the shift of a study that was not calibrated on, and a term for every way in which the
point lies outside the calibrated rows. The terms are measured by ``calibrate.residuals`` and kept as package data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pipesim.costs import parameters
from pipesim.specs import ModelSpec, Point

COVERAGE = 0.9
INTERVALS = "intervals.json"

REASONS = {
    "stack": "{stack} has not been calibrated",
    "chip": "{chip} has not been measured with {stack}",
    "moe": "mixture-of-experts runs are few",
    "fp8": "fp8 runs are few",
    "size": "the model or the number of GPUs is larger than any that was measured",
}
"""What widens an interval beyond scatter and study, and how the note says so."""

MIXED = "mixed clusters were not measured"
"""Said in the place of "chip" where a cluster has several parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Terms of ``w`` by reason, as logarithms, and the range of the rows that they were measured on."""

    step_time: Mapping[str, float]
    memory: Mapping[str, float]
    step_time_own: Mapping[str, float]
    """The scatter of a stack's own runs, by its name, where it is the larger one."""
    memory_own: Mapping[str, float]
    stacks: tuple[str, ...]
    chips: tuple[tuple[str, str], ...]
    """(stack, chip) that were calibrated together."""
    parameters: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """90 % intervals of one estimate; ``note`` says where it extrapolates, and is empty where it does not."""

    step_time_lo_s: Any
    step_time_hi_s: Any
    memory_lo_bytes: Any
    memory_hi_bytes: Any
    note: str


def interval(point: Point, step_time_s: Any, memory_bytes: Any, known: Residuals | None = None) -> Interval | None:
    """Of a resolved point's estimate; floats or arrays. None with idealised costs, which nothing supports."""
    if point.costs.kind == "lecture":
        return None
    known = known or packaged()
    found = reasons(point, known)
    time, memory = (
        half_width(terms, found, own.get(point.stack.name, 0.0))
        for terms, own in ((known.step_time, known.step_time_own), (known.memory, known.memory_own))
    )
    return Interval(
        step_time_lo_s=step_time_s * math.exp(-time),
        step_time_hi_s=step_time_s * math.exp(time),
        memory_lo_bytes=memory_bytes * math.exp(-memory),
        memory_hi_bytes=memory_bytes * math.exp(memory),
        note=_note(point, found),
    )


def half_width(terms: Mapping[str, float], reasons: tuple[str, ...], own_scatter: float = 0.0) -> float:
    """``w``: the root of the sum of squares, the larger of the two scatters among them."""
    return math.hypot(max(terms["scatter"], own_scatter), terms["study"], *(terms[name] for name in reasons))


def reasons(point: Point, known: Residuals) -> tuple[str, ...]:
    """Why the point lies outside of what was measured, in the order of ``REASONS``. A cluster of several parts counts as a
    chip that was not measured.
    """
    stack = point.stack.based_on or point.stack.name
    outside = {
        "stack": stack not in known.stacks,
        "chip": (stack in known.stacks and (stack, point.cluster.chip) not in known.chips) or bool(point.cluster.parts),
        "moe": point.model.moe is not None,
        "fp8": point.training.precision == "fp8",
        "size": _parameters(point.model) > known.parameters or point.cluster.gpus > known.gpus,
    }
    return tuple(name for name in REASONS if outside[name])


@cache
def packaged() -> Residuals:
    """Measured on the calibration table with the constants of this version."""
    return parse((resources.files(__package__) / "data" / INTERVALS).read_text(encoding="utf-8"))


def parse(text: str) -> Residuals:
    """The opposite of ``dump``."""
    values = json.loads(text)
    return Residuals(
        step_time=values["step_time"],
        memory=values["memory"],
        step_time_own=values["step_time_own"],
        memory_own=values["memory_own"],
        stacks=tuple(values["stacks"]),
        chips=tuple((stack, chip) for stack, chip in values["chips"]),
        parameters=values["parameters"],
        gpus=values["gpus"],
    )


def dump(known: Residuals) -> str:
    """As JSON that a person can read and compare; terms to three digits."""
    values = {
        "coverage": COVERAGE,
        **{
            part: {name: round(term, 3) for name, term in getattr(known, part).items()}
            for part in ("step_time", "memory", "step_time_own", "memory_own")
        },
        "stacks": list(known.stacks),
        "chips": [list(pair) for pair in known.chips],
        "parameters": known.parameters,
        "gpus": known.gpus,
    }
    return json.dumps(values, indent=1) + "\n"


@cache
def _parameters(model: ModelSpec) -> int:
    return parameters.total_parameters(model)


def _note(point: Point, found: tuple[str, ...]) -> str:
    if not found:
        return ""
    said = [REASONS[name].format(stack=point.stack.name, chip=point.cluster.chip) for name in found]
    if point.cluster.parts:
        said = [MIXED, *(each for name, each in zip(found, said, strict=True) if name != "chip")]
    return f"Extrapolates: {'; '.join(said)}. The interval is wider for it."
