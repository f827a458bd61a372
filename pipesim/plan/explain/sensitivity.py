"""What if one thing were different: neighbours of a layout, each changed in one way, evaluated together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from pipesim import config as configs
from pipesim import headroom, legality
from pipesim.checks import divisors
from pipesim.launch import rules
from pipesim.plan import grid
from pipesim.plan.asked.restage import freed
from pipesim.plan.asked.space import Config, with_values
from pipesim.results.schema import Row
from pipesim.schedules import schedule_names
from pipesim.schedules.families import FAMILIES
from pipesim.specs import Point, Recompute


class Change(NamedTuple):
    """``values`` are config keys and what they become. ``real`` is what a user can choose, without another machine or
    another batch.
    """

    name: str
    values: dict[str, Any]
    real: bool = True


class Neighbour(NamedTuple):
    """A change and what comes of it. ``framework`` says which rules of the stack's framework it breaks that the layout without
    it does not break.
    """

    change: Change
    row: Row
    per_token: float | None
    """Seconds of a token over those without the change, less one: below 0 is faster. None of what has no time."""
    framework: str
    roomy: bool
    """It fits with head-room, or with no less of it than the layout without the change."""

    @property
    def runs(self) -> bool:
        """It has a time and fits."""
        return bool(self.row["fits"])


TENTH = 0.1


def neighbours(config: Config, point: Point, row: Row) -> list[Neighbour]:
    """Of a plain config, its resolved point and its row with details: the fastest first, then what does not fit, in rising
    memory, then what breaks a rule.
    """
    asked = [each for change in changes(config, point, row) if (each := _alone(config, change)).values]
    rows = grid.rows([with_values(config, each.values) for each in asked], details=False)
    known = rules.problems(point)
    found = [_neighbour(config, known, change, other, row) for change, other in zip(asked, rows, strict=True)]
    return sorted(found, key=lambda each: (not each.runs, each.per_token is None, each.per_token or 0.0))


def changes(config: Config, point: Point, row: Row) -> Iterator[Change]:
    yield from _batches(point)
    yield from _degrees(point)
    yield from _partitions(row)
    yield from _recipes(point)
    yield from _machines(config)


def _alone(config: Config, change: Change) -> Change:
    """With the keys alone that really change, and what gives way to them."""
    change = change._replace(values=freed(config, with_values(config, change.values)) | change.values)
    now = {key: config[key.split(".")[0]][key.split(".")[1]] for key in change.values}
    return change._replace(values={key: value for key, value in change.values.items() if value != now[key]})


def _neighbour(config: Config, known: Sequence[str], change: Change, row: Row, before: Row) -> Neighbour:
    timed = row["tokens_per_s"] is not None
    per_token = before["tokens_per_s"] / row["tokens_per_s"] - 1 if timed else None
    framework = ""
    if timed:
        point = legality.resolve(configs.build(with_values(config, change.values)))
        framework = " ".join(problem for problem in rules.problems(point) if problem not in known)
    roomy = headroom.left(row, headroom.of(config)) or (
        bool(row["fits"] and before["fits"]) and row["memory_bytes"] <= before["memory_bytes"]
    )
    return Neighbour(change, row, per_token, framework, roomy)


def _batches(point: Point) -> Iterator[Change]:
    training, d = point.training, point.layout.d or 1
    per_rank = training.global_batch // d
    sizes = list(divisors(per_rank))
    at = sizes.index(training.micro_batch)
    for size in (*sizes[max(0, at - 1) : at], *sizes[at + 1 : at + 2]):
        yield Change(f"micro-batch {size}", {"training.micro_batch": size})
    one = training.micro_batch * d
    for batch, name in (
        (training.global_batch - one, "a micro-batch fewer a step"),
        (training.global_batch + one, "a micro-batch more a step"),
        (training.global_batch // 2 // one * one, "half the global batch"),
        (2 * training.global_batch, "twice the global batch"),
    ):
        if batch:
            yield Change(name, {"training.global_batch": batch}, real=False)


PAIRS = (("t", "p"), ("t", "d"), ("p", "d"))
"""Degrees that take over each other's GPUs."""


def _degrees(point: Point) -> Iterator[Change]:
    layout = point.layout
    pairs = [*PAIRS, *((("c", "d"), ("c", "t")) if layout.c > 1 else ())]
    for pair in pairs:
        for less, more in (pair, pair[::-1]):
            halved, doubled = getattr(layout, less), getattr(layout, more)
            if halved % 2 == 0:
                values = {f"parallel.{less}": halved // 2, f"parallel.{more}": 2 * doubled}
                yield Change(f"half of {less}, twice {more}", {"parallel.d": None, **values})
    if point.model.moe is not None:
        for e in (layout.e // 2, 2 * layout.e):
            if e:
                yield Change(f"e {e}", {"parallel.e": e})
    if FAMILIES[point.schedule].free_v if point.schedule in FAMILIES else False:
        now = layout.v or 1
        for v in dict.fromkeys(v for v in (now - 1, now + 1, now // 2, 2 * now) if v):
            yield Change(f"v {v}", {"parallel.v": v})


def _partitions(row: Row) -> Iterator[Change]:
    """A unit of the slowest stage goes to the fastest, and to its neighbours."""
    units = list(row["stage_units"])
    took = [
        sum(ops) for ops in zip(*(row[f"stage_{op}_s"] for op in ("forward", "input_grad", "weight_grad")), strict=True)
    ]
    slowest, fastest = took.index(max(took)), took.index(min(took))
    if units[slowest] < 2:
        return
    for to in dict.fromkeys([fastest, slowest - 1, slowest + 1]):
        if 0 <= to < len(units) and to != slowest:
            moved = [n - (stage == slowest) + (stage == to) for stage, n in enumerate(units)]
            yield Change(f"a layer from stage {slowest} to {to}", {"parallel.partition": moved})


def _recipes(point: Point) -> Iterator[Change]:
    layout, training = point.layout, point.training
    for zero in (layout.zero - 1, layout.zero + 1):
        if 0 <= zero <= 3:
            yield Change(f"ZeRO {zero}", {"parallel.zero": zero})
    said = "without" if layout.sequence_parallel else "with"
    yield Change(f"{said} sequence parallelism", {"parallel.sequence_parallel": not layout.sequence_parallel})
    for mode in get_args(Recompute):
        if mode != training.recompute:
            yield Change(f"recompute {mode}", {"training.recompute": mode})
    nothing = dict.fromkeys((f"schedule.{name}" for name, _ in point.options))
    for name in schedule_names():
        if name != point.schedule and layout.p > 1:  # without a pipeline all are the same
            yield Change(f"schedule {name}", {**nothing, "schedule.name": name, "parallel.v": None})


def _machines(config: Config) -> Iterator[Change]:
    cluster = config["cluster"]
    for key, name in (
        ("intra_node_gb_per_s", "bandwidth in a node"), ("inter_node_gb_per_s", "bandwidth between nodes"),
        ("hbm_gb_per_s", "memory bandwidth"), ("memory_gb", "memory"), ("peak_tflops", "GPU FLOP/s"),
    ):  # fmt: skip
        value = cluster[key]
        if value is None or cluster["parts"]:  # what parts say for themselves
            continue
        for sign, by in (("+", 1 + TENTH), ("-", 1 - TENTH)):
            scaled = {k: v * by for k, v in value.items()} if isinstance(value, Mapping) else value * by
            yield Change(f"{name} {sign}10 %", {f"cluster.{key}": scaled}, real=False)


def easing(found: Sequence[Neighbour], share: Callable[[Row], float], before: Row) -> Neighbour | None:
    """Of what has a tenth less of a share or more, and takes off half or more of what any takes off: see ``fastest``."""
    able = _faster(found)
    now, least = share(before), min((share(each.row) for each in able), default=0.0)
    most = min((1 - TENTH) * now, (least + now) / 2)
    return fastest([each for each in able if share(each.row) <= most])


def of_keys(found: Sequence[Neighbour], keys: Sequence[str]) -> Neighbour | None:
    """Of what sets one of these config keys: see ``fastest``."""
    return fastest([each for each in found if set(keys) & each.change.values.keys()])


def fastest(found: Sequence[Neighbour]) -> Neighbour | None:
    """Of real changes that fit with head-room and make the step shorter. One that the framework cannot run is taken only if
    no other does.
    """
    faster = _faster(found)
    able = [each for each in faster if not each.framework]
    return min(able or faster, key=pace, default=None)


def _faster(found: Sequence[Neighbour]) -> list[Neighbour]:
    return [each for each in found if each.change.real and each.roomy and pace(each) < 0]


def pace(neighbour: Neighbour) -> float:
    """``per_token`` of one that has a time."""
    return neighbour.per_token or 0.0
