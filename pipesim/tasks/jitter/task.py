"""Task: steps whose single actions vary, drawn for a layout and other schedules of it; what a slow rank or node costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipesim import config as configs
from pipesim import legality
from pipesim.checks import Checks, suggest
from pipesim.plan import grid
from pipesim.plan.asked.restage import NOTE, freed, is_written
from pipesim.plan.asked.space import with_values
from pipesim.results.schema import Row
from pipesim.schedules import canonical_name, schedule_names
from pipesim.simulate.jitter import Chance
from pipesim.specs import Point
from pipesim.tasks import Done
from pipesim.tasks.jitter.drawn import FEWEST_SAMPLES, Compared, drawn, layout_of, used
from pipesim.tasks.jitter.page import page

MOST_SPREAD, MOST_S = 10.0, 1e9
"""Of a standard deviation over its mean; of seconds and of a factor: beyond what any machine has."""


def jitter(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for a layout that breaks rules and for settings that cannot be drawn."""
    asked = config["task"]["jitter"]
    point = legality.resolve(configs.build(config))
    _check(asked, point)
    (row,) = grid.rows([config])
    layout = layout_of(row, asked)
    chance = Chance(**{key: float(asked[key]) for key in ("spread", "hop_spread", "stall_probability", "stall_s")})
    found = drawn(layout, chance, asked, point, _others(config, asked, row))
    rows = [row, *(each.row for each in found.schedules[1:])]
    return Done(document=page(found, _note(config, row, rows)), rows=rows, files={"steps.csv": _csv(found.schedules)})


def _others(config: Mapping[str, Any], asked: Mapping[str, Any], row: Row) -> list[tuple[str, Row]]:
    """The rows of the other schedules, each with as many stages as asked for, or else as it is made for."""
    names = dict.fromkeys(canonical_name(name) or name for name in asked["schedules"])
    names.pop(row["schedule"], None)
    schedule = dict.fromkeys(config["schedule"])
    found = []
    for name in names:
        own = {**config, "schedule": {**schedule, "name": name}}
        free = {**own, "parallel": {**config["parallel"], "v": None}}
        as_asked, as_made = grid.rows([with_values(each, freed(config, each)) for each in (own, free)])
        found.append((name, as_made if as_asked["status"] == "invalid" else as_asked))
    return found


def _note(config: Mapping[str, Any], row: Row, others: Iterable[Row]) -> str:
    """That a partition of the user's own gave way, where it did."""
    stages = {each["p"] * each["v"] for each in others} - {row["p"] * row["v"]}
    return NOTE if stages and is_written(config) else ""


def _check(asked: Mapping[str, Any], point: Point) -> None:
    checks = Checks("task.jitter")
    checks.whole(low=FEWEST_SAMPLES, samples=asked["samples"])
    checks.whole(low=0, seed=asked["seed"])
    checks.not_negative(**{key: asked[key] for key in ("spread", "hop_spread", "stall_s")})
    checks.at_most(MOST_SPREAD, spread=asked["spread"], hop_spread=asked["hop_spread"])
    checks.at_most(MOST_S, stall_s=asked["stall_s"], slow_factor=asked["slow_factor"])
    checks.fraction(stall_probability=asked["stall_probability"])
    checks.rule(
        1 <= asked["slow_factor"] < math.inf,
        f"task.jitter.slow_factor={asked['slow_factor']} must be a finite number of at least 1: so many times as slow. Nearest: 1.",
    )
    nodes = math.ceil(used(point) / point.cluster.gpus_per_node)
    for key, count, what in (("slow_rank", point.layout.p, "pipeline ranks"), ("slow_node", nodes, "nodes in use")):
        value = asked[key]
        nearest = min(max(value or 0, 0), count - 1)
        checks.rule(
            value is None or 0 <= value < count,
            f"task.jitter.{key}={value} is none of the {count} {what}, counted from 0. Nearest: {nearest}.",
        )
    checks.rule(
        asked["slow_rank"] is None or asked["slow_node"] is None,
        f"task.jitter.slow_rank={asked['slow_rank']} and task.jitter.slow_node={asked['slow_node']} are both given. "
        "Nearest: task.jitter.slow_node=null.",
    )
    checks.rule(
        point.training.optimizer_barrier,
        "training.optimizer_barrier=false lets steps run into each other; experiment=jitter draws steps that end "
        "together. Nearest: training.optimizer_barrier=true.",
    )
    known = {*schedule_names(), "auto"} - {"custom"}
    for name in asked["schedules"]:
        checks.rule(
            (canonical_name(name) or name) in known,
            f"task.jitter.schedules: {name!r} is no schedule to compare; there are: "
            f"{', '.join(sorted(known))}.{suggest(str(name), sorted(known))}",
        )
    checks.done()


def _csv(schedules: Sequence[Compared]) -> str:
    """The drawn steps: a line for every sample, a column for every schedule."""
    drawn = [(each.name, each.steps_s) for each in schedules if each.steps_s is not None]
    lines = [",".join(["sample", *(f"{name}_step_time_s" for name, _ in drawn)])]
    columns = [steps_s.tolist() for _, steps_s in drawn]
    lines += [",".join(map(repr, (i, *values))) for i, values in enumerate(zip(*columns, strict=True))]
    return "\n".join(lines) + "\n"
