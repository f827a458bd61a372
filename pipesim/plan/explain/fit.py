"""What would make a layout fit: of each kind of change the smallest that does alone, else the cheapest pair of two."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from pipesim import config as configs
from pipesim import headroom, legality
from pipesim.checks import Invalid
from pipesim.launch import rules
from pipesim.plan.asked.groups import NUMBERS, groups
from pipesim.plan.asked.restage import freed
from pipesim.plan.asked.space import Axis, Config, Slice, Space, with_values
from pipesim.plan.grid import table
from pipesim.point_id import ASKED, leaves
from pipesim.results.schema import Row

MEMORY_GB = (80, 96, 141, 192)
"""Of GPUs on the market. Sources: NVIDIA data sheets of A100 and H100 (80), GH200 (96) and H200 (141); AMD's of MI300X (192)."""

SCHEDULES = ("1f1b", "interleaved_1f1b", "zb_h1", "zbv", "1f1b_v", "v_half", "v_min")
"""Those that hold at most as much as 1F1B, or little more."""

RECOMPUTE = ("none", "selective", "operators", "full")
"""From the one that keeps most."""

MOST_DEGREE = 64
MOST_PER_KIND = 5
"""Changes of one kind that are tried in pairs."""

KINDS = (
    "t", "p", "c", "zero", "sequence_parallel", "micro_batch", "recompute", "recompute_layers", "schedule", "v", "gpus", "memory",
)  # fmt: skip
"""In the order in which they are told."""

ELSEWHERE = ("gpus", "memory")
"""Kinds that ask for other machines; they are told, but do not save looking for a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``kinds`` are one, or two of a pair; ``settings`` the config keys with the values that do it; ``row`` what comes of it."""

    kinds: tuple[str, ...]
    settings: Mapping[str, Any]
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Of an evaluated layout that does not fit. ``pair`` is looked for where no change on the same machines does alone."""

    asked: Row
    changes: tuple[Change, ...]
    pair: Change | None
    cheapest: Change | None
    """Of those on the same machines the one with the shortest step, the first of equals."""


class _Choice(NamedTuple):
    kinds: tuple[str, ...]
    size: float
    """Of changes of one kind the smaller is preferred, of equal ones the faster."""
    settings: dict[str, Any]


_Tried = tuple[_Choice, Row]


def fit(config: Config) -> Fit | None:
    """Of one asked point as a plain config; None where it fits, breaks rules or fails.

    What breaks a rule, or one of the stack's framework that the asked layout keeps, is no way out.
    """
    asked, *_ = evaluated(config, [{}])
    if asked["status"] != "infeasible":
        return None
    seen = _tried(config, _choices(config, asked))
    room = headroom.of(config)
    if any(headroom.left(row, room) for choice, row in seen if choice.settings.get("training.recompute") == "full"):
        seen += _tried(config, _layers_again(config, asked))
    found: list[Change] = []
    for kind in KINDS:
        found += _first(config, sorted((each for each in seen if each[0].kinds == (kind,)), key=_by_size))
    here = [each for each in found if each.kinds[0] not in ELSEWHERE]
    pair = None if here else _pair(config, asked, seen)
    cheapest = min(here, key=lambda each: float(each.row["step_time_s"]), default=pair)
    return Fit(asked=asked, changes=tuple(found), pair=pair, cheapest=cheapest)


def _tried(config: Config, choices: Iterable[_Choice]) -> list[_Tried]:
    asked = [*choices]
    return [*zip(asked, evaluated(config, [each.settings for each in asked]), strict=True)]


def _by_size(tried: _Tried) -> tuple[float, float]:
    choice, row = tried
    return choice.size, row["step_time_s"] or math.inf


def evaluated(config: Config, settings: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each of the settings of dotted keys, in their order; what was written for other degrees follows them."""
    spaces: dict[str, tuple[Config, list[tuple[Any, ...]], list[int]]] = {}
    numbers = dict(leaves({part: config[part] for part in ("parallel", "training")}))
    for place, each in enumerate(settings):
        changed = _followed(config, each)
        words = {key: value for key, value in changed.items() if key not in NUMBERS}
        _, values, places = spaces.setdefault(repr(sorted(words.items())), (with_values(config, words), [], []))
        values.append(tuple(changed.get(key, numbers[key]) for key in NUMBERS))
        places.append(place)
    found: list[Row] = [{}] * len(settings)
    for base, values, places in spaces.values():
        space = Space(base=base, axes=(Axis(keys=tuple(NUMBERS), values=tuple(values)),))
        for group in groups([Slice(space, 0, len(space))]):
            for at, row in zip(group.at.tolist(), table(group, details=False).to_pylist(), strict=True):
                found[places[at]] = row
    return found


def _followed(config: Config, settings: Mapping[str, Any]) -> dict[str, Any]:
    """With what gives way to them, and d."""
    return {**freed(config, with_values(config, settings)), **_with_d(config, settings)}


def _with_d(config: Config, settings: Mapping[str, Any]) -> dict[str, Any]:
    """An explicit d is divided by what the other degrees grow, and grows with the GPUs; else d is left to follow."""
    parallel, changed = config["parallel"], dict(settings)
    degrees = [key for key in ("t", "p", "c") if f"parallel.{key}" in settings]
    if parallel["d"] is None or not (degrees or "cluster.gpus" in settings):
        return changed
    more = settings.get("cluster.gpus", config["cluster"]["gpus"]) / config["cluster"]["gpus"]
    d = parallel["d"] * more / math.prod(settings[f"parallel.{key}"] / parallel[key] for key in degrees)
    return {**changed, "parallel.d": int(d) if d == int(d) else 0}  # 0 is refused, as it shall be


def _choices(config: Config, asked: Row) -> Iterator[_Choice]:
    parallel, training = config["parallel"], config["training"]
    for key in ("t", "p", "c"):
        degrees = range(parallel[key] + 1, MOST_DEGREE + 1)
        yield from (_Choice((key,), degree, {f"parallel.{key}": degree}) for degree in degrees)
    for zero in range(parallel["zero"] + 1, 4):
        yield _Choice(("zero",), zero, {"parallel.zero": zero})
    if not parallel["sequence_parallel"]:
        yield _Choice(("sequence_parallel",), 1, {"parallel.sequence_parallel": True})
    for micro_batch in range(training["micro_batch"] - 1, 0, -1):
        yield _Choice(("micro_batch",), -micro_batch, {"training.micro_batch": micro_batch})
    yield from _recomputing(training)
    if asked["p"] > 1:
        yield from _ordering(config, asked)
    yield from _machines(config)


def _recomputing(training: Mapping[str, Any]) -> Iterator[_Choice]:
    """More of every layer runs again, or the same of all layers."""
    more, only = RECOMPUTE[RECOMPUTE.index(training["recompute"]) + 1 :], training["recompute_layers"]
    for kind in (*([training["recompute"]] if only is not None else []), *more):
        yield _Choice(("recompute",), 0, {"training.recompute": kind, "training.recompute_layers": None})


def _layers_again(config: Config, asked: Row) -> Iterator[_Choice]:
    """All of so many layers of every stage runs again; where that of all layers fits, one of these does too."""
    training, layers = config["training"], -(-config["model"]["layers"] // (asked["p"] * asked["v"]))
    only = training["recompute_layers"] if training["recompute"] == "full" else 0
    for again in range(1 + only, layers) if isinstance(only, int) else ():
        yield _Choice(("recompute_layers",), again, {"training.recompute": "full", "training.recompute_layers": again})


def _ordering(config: Config, asked: Row) -> Iterator[_Choice]:
    plain = {f"schedule.{key}": None for key in config["schedule"] if key != "name"} | {"parallel.v": None}
    for name in SCHEDULES:
        if name != asked["schedule"]:
            yield _Choice(("schedule",), 0, {**plain, "schedule.name": name})
    for v in range(2, config["model"]["layers"] // asked["p"] + 1):
        if v != asked["v"] and asked["schedule"] == "interleaved_1f1b":
            yield _Choice(("v",), abs(math.log2(v / asked["v"])), {"parallel.v": v})


def _machines(config: Config) -> Iterator[_Choice]:
    """More GPUs, for whichever degree makes use of them; then larger ones, all else alike."""
    gpus, parallel = config["cluster"]["gpus"], config["parallel"]
    for times in (2, 4, 8, 16, 32, 64):
        more = {"cluster.gpus": gpus * times}
        yield _Choice(("gpus",), times, more)
        yield from (_Choice(("gpus",), times, {**more, f"parallel.{k}": parallel[k] * times}) for k in ("t", "p"))
    for size in MEMORY_GB:
        if size > config["cluster"]["memory_gb"]:
            yield _Choice(("memory",), size, {"cluster.memory_gb": size})


def _pair(config: Config, asked: Row, seen: Sequence[_Tried]) -> Change | None:
    """The fastest of all pairs of changes that each lessen what the heaviest rank holds."""
    helping: dict[tuple[str, ...], list[_Choice]] = {}
    for choice, row in sorted(seen, key=_by_size):
        helps = row["memory_bytes"] is not None and row["memory_bytes"] < asked["memory_bytes"]
        if helps and choice.kinds[0] not in ELSEWHERE:
            helping.setdefault(choice.kinds, []).append(choice)
    few = [choice for each in helping.values() for choice in _spread(each)]
    pairs = [
        _Choice(one.kinds + other.kinds, 0, one.settings | other.settings)
        for one, other in combinations(few, 2)
        if not one.settings.keys() & other.settings.keys()
    ]
    return next(_first(config, sorted(_tried(config, pairs), key=_by_size)), None)


def _spread(choices: Sequence[_Choice]) -> Sequence[_Choice]:
    """A few from the smallest to the largest."""
    last, most = len(choices) - 1, min(len(choices), MOST_PER_KIND)
    return [choices[round(k * last / max(1, most - 1))] for k in range(most)]


def _first(config: Config, tried: Sequence[_Tried]) -> Iterator[Change]:
    """The first that fits with head-room and breaks no rule of the framework beyond those that the asked layout breaks already."""
    own = [(choice, row) for choice, row in tried if headroom.left(row, headroom.of(config))]
    known = set(_framework_problems(config)) if own else set()
    for choice, row in own:
        settings = _followed(config, choice.settings)
        if set(_framework_problems(with_values(config, settings))) <= known:
            asked = dict(leaves({part: config[part] for part in ASKED}))
            shown = {key: value for key, value in settings.items() if value != asked[key]}
            yield Change(kinds=choice.kinds, settings=shown, row=row)
            return


def _framework_problems(config: Config) -> list[str]:
    try:
        return rules.problems(legality.resolve(configs.build(config)))
    except Invalid as error:
        return list(error.problems)
