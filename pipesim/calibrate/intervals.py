"""How far an estimate may be off: 90 % intervals from what validation left unexplained, wider where nothing was measured.

An interval is ``point * exp(-w) .. point * exp(w)``. ``w`` joins independent reasons as the root of the sum of their
squares: the scatter of rows, the shift of a study that was not calibrated on, and a term for every way in which the
point lies outside the calibrated rows. Where constants were fitted to runs of one's own, what so many runs leave takes
the place of the study and of all reasons that the runs had too. The terms are measured by ``calibrate.residuals`` and
kept as package data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
    "sequence": "the sequence is longer or cut over more ranks than any that was measured",
}
"""What widens an interval beyond scatter and study, and how the note says so."""

MIXED = "mixed clusters were not measured"
"""Said in the place of "chip" where a cluster has several parts."""


OWN_RUNS = (1, 3, 10)
"""Numbers of runs of one's own for which it was measured what they leave; those in between count as the smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Terms of ``w`` by reason, as logarithms, and the range of the rows that they were measured on."""

    step_time: Mapping[str, float]
    memory: Mapping[str, float]
    after: Mapping[str, float]
    """What is left once the step time was fitted to so many runs of one's own: of the study (``study_1`` …, by
    ``OWN_RUNS``), with the chip that was not measured (``chip_1`` …), with the stack too (``stack_1`` …)."""
    step_time_own: Mapping[str, float]
    """The scatter of a stack's own runs, by its name, where it is the larger one."""
    memory_own: Mapping[str, float]
    stacks: tuple[str, ...]
    chips: tuple[tuple[str, str], ...]
    """(stack, chip) that were calibrated together."""
    parameters: float
    gpus: int
    seq_length: int
    c: int


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
    found, stack = reasons(point, known), point.stack.name
    left, time = _after_own_runs(point, found, known)[0], step_time_width(point, known)
    memory = half_width(known.memory, found, known.memory_own.get(stack, 0.0))
    return Interval(
        step_time_lo_s=step_time_s * math.exp(-time),
        step_time_hi_s=step_time_s * math.exp(time),
        memory_lo_bytes=memory_bytes * math.exp(-memory),
        memory_hi_bytes=memory_bytes * math.exp(memory),
        note=_note(point, found, left),
    )


def step_time_width(point: Point, known: Residuals | None = None) -> float:
    """``w`` of a resolved point's step time."""
    known = known or packaged()
    left, shift = _after_own_runs(point, reasons(point, known), known)
    return half_width(known.step_time, left, known.step_time_own.get(point.stack.name, 0.0), shift)


def half_width(
    terms: Mapping[str, float], reasons: Sequence[str], own_scatter: float = 0.0, shift: float | None = None
) -> float:
    """``w``: the root of the sum of squares, the larger of the two scatters among them; ``shift`` stands for the study."""
    study = terms["study"] if shift is None else shift
    return math.hypot(max(terms["scatter"], own_scatter), study, *(terms[name] for name in reasons))


def _after_own_runs(point: Point, found: Sequence[str], known: Residuals) -> tuple[list[str], float | None]:
    """Reasons that runs of one's own do not answer, and what they leave of the study; None where there are none."""
    runs = point.stack.own_runs.get(point.cluster.chip, 0)
    if not runs:
        return list(found), None
    answered = {"stack", "chip", *point.stack.own_reasons} & set(found)
    count = max(each for each in OWN_RUNS if each <= runs)
    what = "study" if not answered else "chip" if answered == {"chip"} else "stack"
    return [name for name in found if name not in answered], known.after[f"{what}_{count}"]


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
        "sequence": (point.training.seq_length or point.model.context) > known.seq_length or point.layout.c > known.c,
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
        after=values["after"],
        step_time_own=values["step_time_own"],
        memory_own=values["memory_own"],
        stacks=tuple(values["stacks"]),
        chips=tuple((stack, chip) for stack, chip in values["chips"]),
        parameters=values["parameters"],
        gpus=values["gpus"],
        seq_length=values["seq_length"],
        c=values["c"],
    )


def dump(known: Residuals) -> str:
    """As JSON that a person can read and compare; terms to three digits."""
    values = {
        "coverage": COVERAGE,
        **{
            part: {name: round(term, 3) for name, term in getattr(known, part).items()}
            for part in ("step_time", "memory", "after", "step_time_own", "memory_own")
        },
        "stacks": list(known.stacks),
        "chips": [list(pair) for pair in known.chips],
        "parameters": known.parameters,
        "gpus": known.gpus,
        "seq_length": known.seq_length,
        "c": known.c,
    }
    return json.dumps(values, indent=1) + "\n"


@cache
def _parameters(model: ModelSpec) -> int:
    return parameters.total_parameters(model)


def _note(point: Point, found: Sequence[str], left: Sequence[str]) -> str:
    """``left`` are those of the reasons that count for the step time too."""

    def said(names: Sequence[str]) -> str:
        mixed = bool(point.cluster.parts) and "chip" in names
        told = [REASONS[name].format(stack=point.stack.name, chip=point.cluster.chip) for name in names]
        return "; ".join(
            [MIXED] * mixed + [each for name, each in zip(names, told, strict=True) if not mixed or name != "chip"]
        )

    whole = f"Extrapolates: {said(left)}. The interval is wider for it." if left else ""
    answered = [name for name in found if name not in left]
    memory = f"Memory extrapolates: {said(answered)}. Its interval is wider for it." if answered else ""
    return " ".join(filter(None, (whole, memory)))
