"""What can be asked of a plan: its objectives and limits, checked before anything is searched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pipesim import headroom, schedules, specs
from pipesim.checks import MAX_INT, Invalid, suggest
from pipesim.plan.asked.space import Config

OBJECTIVES = ("step_time", "tokens_per_s_per_gpu", "cost", "energy", "gpus")
NUMBERS = ("gpus", "t", "p", "d", "c", "e", "v", "micro_batch")
CHOICES: dict[str, tuple[Any, ...]] = {
    "recompute": get_args(specs.Recompute), "zero": (0, 1, 2, 3), "sequence_parallel": (False, True),
}  # fmt: skip
DAY_S = 86_400


def check(config: Config) -> None:
    """Raises ``Invalid`` with everything that is wrong with the question."""
    problems = [*headroom.problems(config), *_objective(config), *_limits(config)]
    problems += _lists(config["task"]["plan"], config["cluster"]["gpus"])
    if problems:
        raise Invalid(problems)


def gpu_counts(config: Config) -> list[int]:
    """How many GPUs are tried: those asked for, else the cluster's, and to find the fewest its powers of two of nodes too."""
    asked, gpus, node = config["task"]["plan"], config["cluster"]["gpus"], config["cluster"]["gpus_per_node"]
    if asked["gpus"] is not None:
        return sorted(set(asked["gpus"]))
    if asked["objective"] != "gpus":
        return [gpus]
    nodes = (1 << k for k in range(max(1, gpus // node).bit_length()))
    return sorted({gpus, *(node * each for each in nodes if node * each <= gpus)})


def days(asked: Mapping[str, Any], tokens_per_s: float) -> float | None:
    """How long the training of ``tokens`` takes, where they are given."""
    return None if asked["tokens"] is None else float(asked["tokens"]) / tokens_per_s / DAY_S


def _objective(config: Config) -> Iterator[str]:
    asked, cluster = config["task"]["plan"], config["cluster"]
    objective = asked["objective"]
    if objective not in OBJECTIVES:
        yield (
            f"task.plan.objective={objective!r} must be one of {', '.join(OBJECTIVES)}.{suggest(objective, OBJECTIVES)}"
        )
    needs = {"cost": "usd_per_gpu_hour", "energy": "watts_per_gpu"}
    if objective in needs and cluster[needs[objective]] is None:
        key = f"cluster.{needs[objective]}"
        yield f"task.plan.objective={objective} needs {key}, which is null. Nearest: {key}={2.5 if objective == 'cost' else 700}."
    if objective == "gpus":
        for key, example in (("tokens", "1e12"), ("deadline_days", "30")):
            if asked[key] is None:
                yield f"task.plan.objective=gpus needs task.plan.{key}, which is null. Nearest: task.plan.{key}={example}."
    for key in ("tokens", "deadline_days"):
        if asked[key] is not None and not 0 < asked[key] < float("inf"):
            yield f"task.plan.{key}={asked[key]} must be a finite number above 0."


def _limits(config: Config) -> Iterator[str]:
    asked = config["task"]["plan"]
    if not 1 <= asked["best"] <= MOST_TOLD:
        nearest = min(max(1, asked["best"]), MOST_TOLD)
        yield f"task.plan.best={asked['best']} must lie between 1 and {MOST_TOLD}. Nearest: {nearest}."


def _lists(asked: Mapping[str, Any], gpus: int) -> Iterator[str]:
    for key in NUMBERS:
        for value in asked[key] or ():
            if not 1 <= value <= MAX_INT:
                yield f"task.plan.{key}: {value} must lie between 1 and {MAX_INT:.0e}. Nearest: {min(max(1, value), MAX_INT)}."
    for value in asked["gpus"] or ():
        if value > gpus:
            yield f"task.plan.gpus: {value} are more than cluster.gpus={gpus}. Nearest: {gpus}, or a larger cluster.gpus."
    for name in asked["schedule"] or ():
        if schedules.canonical_name(name) is None:
            yield f"task.plan.schedule: {schedules.problems(name, 2, 2)[0]}"
    for key, known in CHOICES.items():
        for value in asked[key] or ():
            if value not in known:
                yield (
                    f"task.plan.{key}: {value!r} must be one of {', '.join(map(str, known))}."
                    f"{suggest(str(value), map(str, known))}"
                )
    for key in (*NUMBERS, "schedule", *CHOICES):
        if asked[key] is not None and not len(asked[key]):
            yield f"task.plan.{key}=[] allows nothing. Nearest: null, which searches every legal value."


def value(config: Config, row: Mapping[str, Any]) -> float:
    """What the objective makes of a row that fits; less is better. Cost is USD and energy joules for a million tokens.

    Energy is the board's limit times time: an upper bound. Layouts too slow for the deadline are endless.
    """
    asked, cluster = config["task"]["plan"], config["cluster"]
    takes = days(asked, row["tokens_per_s"])
    if takes is not None and asked["deadline_days"] is not None and takes > asked["deadline_days"]:
        return math.inf
    gpu_s = 1e6 / row["tokens_per_s_per_gpu"]  # for a million tokens
    found = {
        "step_time": row["step_time_s"],
        "tokens_per_s_per_gpu": -row["tokens_per_s_per_gpu"],
        "cost": gpu_s * (cluster["usd_per_gpu_hour"] or math.nan) / 3600,
        "energy": gpu_s * (cluster["watts_per_gpu"] or math.nan),
        "gpus": row["gpus"],
    }
    return float(found[asked["objective"]])


def has_room(config: Config, row: Mapping[str, Any]) -> bool:
    """Whether a row fits and leaves the head-room free."""
    return headroom.left(row, headroom.of(config))


def ranked(config: Config, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows that fit with the head-room and meet the deadline: the objective first, then step time, memory, and the plainer
    layout; what differs by rounding alone is equal.
    """
    fit = [row for row in rows if has_room(config, row)]
    order = sorted(fit, key=lambda row: (_rounded(value(config, row)), *_figures(row), *(row[name] for name in _PLAIN)))
    return [row for row in order if value(config, row) < math.inf]


def apart(rows: Sequence[Mapping[str, Any]], share: float | None = None) -> list[list[Mapping[str, Any]]]:
    """Rows of a ranking, those together that are equal in GPUs, step time and memory, or differ from the first in v alone (and
    in how many layers a stage has) and are at most ``share`` slower, else ``SAME_PACE``.
    """
    most = 1 + (SAME_PACE if share is None else share)
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    fastest: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        settings = [word for word in (row["settings"] or "").split() if not word.startswith("parallel.partition=")]
        layout = (*(row[name] for name in _BUT_V), *settings)
        near = fastest.get(layout)
        if near is None or row["step_time_s"] > most * near[0]["step_time_s"]:
            near = found.setdefault((row["gpus"], *_figures(row)), [])
            fastest[layout] = near
        near.append(row)
    return list(found.values())


SAME_PACE = 0.01
"""Layouts that differ in v alone and in step time by no more are one in a list: what tells them is far below any error."""

_BUT_V = (
    "gpus", "t", "p", "d", "c", "e", "micro_batch", "zero", "sequence_parallel", "recompute", "schedule",
)  # fmt: skip

MOST_TOLD = 100
"""Layouts of which a report tells how likely each is the best."""

_PLAIN = ("c", "e", "v", "micro_batch", "t", "p")


def _figures(row: Mapping[str, Any]) -> tuple[float, float]:
    return _rounded(row["step_time_s"]), _rounded(row["memory_bytes"])


def _rounded(number: float) -> float:
    return float(f"{number:.9g}")
