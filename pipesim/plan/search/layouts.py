"""What a plan searches: every layout that keeps the rules, as spaces of which no combination breaks any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from pipesim import config as configs
from pipesim import legality, schedules, specs
from pipesim.checks import Invalid, divisors
from pipesim.costs.kernels import FLASH_KERNELS
from pipesim.launch import rules as launch_rules
from pipesim.plan.asked.groups import NUMBERS
from pipesim.plan.asked.space import Axis, Config, Space, with_values
from pipesim.plan.search.question import check, gpu_counts
from pipesim.schedules.action import IntArray
from pipesim.schedules.families import FAMILIES
from pipesim.specs import Point

DEGREES = ("t", "p", "d", "c", "e", "v")
KEYS = (*(f"parallel.{degree}" for degree in DEGREES), "training.micro_batch")
"""Of the one axis of a space, whose values are the layouts with its words."""
NUMBERED = (*DEGREES, "micro_batch")
WORDS = ("schedule", "recompute", "zero", "sequence_parallel")
ALL = (*NUMBERED, *WORDS)
ALONE = "1f1b"
"""Without a pipeline every schedule is this one."""
NOT_SEARCHED = ("auto", "custom")
"""The order of one is made for each layout's own seconds, that of the other stands in a file for one p and m."""

_LEGAL = {key: value for key, value in NUMBERS.items() if key != "training.global_batch"}
"""Numbers that are searched, as what is legal by itself."""

Columns = dict[str, IntArray]


def spaces(config: Config) -> list[Space]:
    """Each has its words in ``base`` and one axis, ``KEYS``. Layouts that are the same under two names are there once: without
    a pipeline there is one schedule, without data parallelism one ZeRO stage, without tensor parallelism no sequence
    parallelism. Raises ``Invalid`` for a question that cannot be asked, and for listed values that no layout can have.
    """
    check(config)
    configs.build(with_values(config, _LEGAL))
    found = list(_spaces(config))
    asked = config["task"]["plan"]
    problems = [
        problem
        for key in ALL
        for problem in _not_there(config, key, asked[key], occurring(found, key))
        if asked[key] is not None
    ]
    if problems:
        raise Invalid(problems)
    if not found:
        raise Invalid([_nothing(config)])
    return found


def occurring(found: Sequence[Space], key: str) -> list[Any]:
    """The values of one of the words, or of a number, in rising order; schedules and other texts in the order searched."""
    if key not in WORDS:
        index = KEYS.index(f"training.{key}" if key == "micro_batch" else f"parallel.{key}")
        lists = {id(space.axes[0].values): space.axes[0].values for space in found}
        return sorted({value[index] for values in lists.values() for value in values})
    return list(dict.fromkeys(_word(space.base, key) for space in found))


def _word(config: Config, key: str) -> Any:
    if key == "schedule":
        return config["schedule"]["name"]
    return config["training" if key == "recompute" else "parallel"][key]


def _not_there(config: Config, key: str, listed: Sequence[Any] | None, there: Sequence[Any]) -> Iterator[str]:
    wanted = [schedules.canonical_name(each) for each in listed or ()] if key == "schedule" else (listed or ())
    missing = [value for value in wanted if value not in there]
    if not missing:
        return
    free = occurring(list(_spaces(with_values(config, {f"task.plan.{key}": None}))), key)
    for value in missing:
        near = sorted(free, key=lambda each: abs(each - value))[:3] if key not in WORDS else free[:4]
        nearest = f" Nearest: {' or '.join(map(str, sorted(near) if key not in WORDS else near))}." if near else ""
        yield f"task.plan.{key}: no layout with {value} keeps the rules and the other limits of task.plan.{nearest}"


def _nothing(config: Config) -> str:
    counts = " or ".join(map(str, gpu_counts(config)))
    return (
        f"task.plan: no layout of model.name={config['model']['name']} uses all of {counts} GPUs and divides "
        f"training.global_batch={config['training']['global_batch']} and the model's heads within task.plan's limits. "
        "Nearest: another task.plan.gpus, such as a power of two, or a batch with more divisors."
    )


def _spaces(config: Config) -> Iterator[Space]:
    words = {key: _words(config, key) for key in WORDS}
    names, zeros = words["schedule"], words["zero"]
    values: dict[tuple[Any, ...], tuple[tuple[int, ...], ...]] = {}
    legal: dict[tuple[Any, ...], NDArray[np.bool_]] = {}
    candidates = {name: _candidates(config, name, alone=name == _alone(names)) for name in names}
    for name, recompute, zero, parallel in product(*words.values()):
        chosen = {
            "schedule": _schedule(config, name),
            "training.recompute": recompute,
            "parallel.zero": zero,
            "parallel.sequence_parallel": parallel,
        }
        base, columns = with_values(config, chosen), candidates[name]
        like = _built(base)
        if like is None:
            continue
        rules = (name, parallel, recompute == "none", zero == 0)  # all that a rule asks of the words
        if rules not in legal:
            legal[rules] = _legal(like, columns)
        kept = legal[rules] & _once(like, columns, zero == zeros[0])
        if framework(config) is not None:
            kept[kept] = _runs(like, {each: numbers[kept] for each, numbers in columns.items()})
        key = (name, kept.tobytes())
        if key not in values:
            values[key] = tuple(zip(*(columns[each][kept].tolist() for each in NUMBERED), strict=True))
        if values[key]:
            yield Space(base=base, axes=(Axis(keys=KEYS, values=values[key]),))


def framework(config: Config) -> launch_rules.Framework | None:
    """That whose rules are kept, if any's are."""
    asked, name = config["task"]["plan"], config["stack"]["framework"]
    return launch_rules.FRAMEWORKS.get(name) if asked["framework_rules"] else None


def _words(config: Config, key: str) -> Sequence[Any]:
    """The values of one of ``WORDS``: those listed, else those of the framework, else all."""
    listed, known = config["task"]["plan"][key], framework(config)
    if listed is not None:
        return list(dict.fromkeys(schedules.canonical_name(name) for name in listed) if key == "schedule" else listed)
    if key == "schedule":
        every = [name for name in schedules.schedule_names() if name not in NOT_SEARCHED]
        return every if known is None else known.schedules
    if key == "recompute":
        modes = get_args(specs.Recompute) if known is None else known.recompute
        return [mode for mode in modes if mode != "selective" or not saves_nothing(config)]
    if key == "zero":
        return range(4) if known is None else sorted({0, *known.sharded, *known.sharded_alone})
    return (False,) if known is not None and known.sequence_parallel == "never" else (False, True)


def saves_nothing(config: Config) -> bool:
    """Of selective recomputation: flash attention keeps no scores, so that it holds as much as none and takes longer."""
    return config["training"]["attention"] in FLASH_KERNELS


def _alone(names: Sequence[str]) -> str:
    return ALONE if ALONE in names else names[0]


def _schedule(config: Config, name: str) -> dict[str, Any]:
    """With the options of the config's own schedule, without any of another's."""
    own = config["schedule"]
    if schedules.canonical_name(own["name"]) == name:
        return {**own, "name": name}
    return {**dict.fromkeys(own), "name": name}


def _built(base: Config) -> Point | None:
    """A point with these words; ``None`` where a word may not be there at all, as some are with idealised costs."""
    try:
        return configs.build(with_values(base, _LEGAL))
    except Invalid:
        return None


def _candidates(config: Config, schedule: str, alone: bool) -> Columns:
    """All cuts over exactly so many GPUs as are asked, whatever rules they break; ``alone`` are those without a pipeline."""
    asked, model = config["task"]["plan"], config["model"]
    units, batch, node = model["layers"] + 2, config["training"]["global_batch"], config["cluster"]["gpus_per_node"]
    experts = divisors(model["moe"]["experts"]) if model["moe"] else [1]
    es = [e for e in experts if _wanted(asked, "e", e)]
    rows: list[tuple[int, ...]] = []
    for gpus in gpu_counts(config):
        for t in divisors(gpus):
            if not _wanted(asked, "t", t) or (asked["t_within_node"] and node % t):
                continue
            for p in divisors(gpus // t):
                if p > units or not _wanted(asked, "p", p) or (p == 1 and not alone):
                    continue
                vs = [v for v in _chunks(schedule, p, units) if _wanted(asked, "v", v)]
                for c in divisors(gpus // t // p):
                    d = gpus // (t * p * c)
                    if batch % d or not _wanted(asked, "c", c) or not _wanted(asked, "d", d):
                        continue
                    sizes = [b for b in divisors(batch // d) if _wanted(asked, "micro_batch", b)]
                    rows += product([t], [p], [d], [c], es, vs, sizes)
    table = np.array(rows, np.int64).reshape(-1, len(KEYS))
    return dict(zip(NUMBERED, table.T, strict=True))


def _wanted(asked: Mapping[str, Any], key: str, value: int) -> bool:
    return asked[key] is None or value in asked[key]


def _chunks(schedule: str, p: int, units: int) -> Sequence[int]:
    """Stages per rank to try: what the schedule is made for, and where it leaves that free all that the units fill."""
    family = FAMILIES[schedule]
    if p == 1:
        return [1]
    return range(family.v, units // p + 1) if family.free_v else [family.v]


def _once(like: Point, columns: Columns, first_zero: bool) -> NDArray[np.bool_]:
    """Which of the candidates are no others under another name."""
    once = np.ones(len(columns["t"]), np.bool_)
    if like.layout.sequence_parallel:
        once &= columns["t"] > 1
    if not first_zero:
        once &= columns["d"] * columns["c"] > 1
    return once


def _legal(like: Point, columns: Columns) -> NDArray[np.bool_]:
    return legality.judge(like, _whole(like, columns)).legal


def _runs(like: Point, columns: Columns) -> NDArray[np.bool_]:
    """What the framework runs."""
    return np.asarray(launch_rules.allowed(like, _whole(like, columns)))


def _whole(like: Point, columns: Columns) -> Columns:
    """With the numbers that all candidates share."""
    same = {"global_batch": like.training.global_batch, "seq_length": like.training.seq_length or like.model.context}
    return columns | {name: np.full(len(columns["t"]), value, np.int64) for name, value in same.items()}
