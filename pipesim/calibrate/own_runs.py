"""A user's own measured runs: a small CSV, read onto the config that the command line makes. See this folder's README.

One row a run. Columns are config keys without their group (``t``, ``micro_batch``, ``recompute`` …), names of choices
(``model``, ``cluster``, ``stack``, ``schedule``) and what was measured; what has no column stays as the config has it.
"""

from __future__ import annotations

import copy
import difflib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipesim import config as configs
from pipesim import legality
from pipesim.calibrate import lint
from pipesim.calibrate.runs import Run, Runs
from pipesim.checks import Invalid, alike
from pipesim.specs import Point

Conf = Mapping[str, Any]
Cells = Mapping[str, str]

SHAPE = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "gated")
PARALLEL = ("t", "p", "d", "c", "e", "v", "zero", "sequence_parallel")
TRAINING = ("micro_batch", "global_batch", "seq_length", "precision", "recompute", "recompute_layers", "attention")
MEASURED = ("step_time_s", "memory_gb", "tflops_per_gpu")
COLUMNS = (
    "id", "source", "date", "model", *SHAPE, "cluster", "stack", "gpus", *PARALLEL, "schedule", "m", *TRAINING, *MEASURED,
)  # fmt: skip
NEEDED = ("t", "p", "micro_batch", "global_batch", "step_time_s")
NEEDED_SHAPE = ("layers", "hidden", "heads", "vocab")

TOLD = {
    "cluster.gpus": ("gpus", "d"), "training.seq_length": ("seq_length",), "training.precision": ("precision",),
    "training.recompute": ("recompute",), "training.attention": ("attention",), "schedule.name": ("schedule",),
    "parallel.c": ("c",), "parallel.e": ("e",), "parallel.zero": ("zero",),
    "parallel.sequence_parallel": ("sequence_parallel",), "model.name": ("model", "layers"),
}  # fmt: skip
"""Config keys that change a step time, and the columns that would say them."""


def own_runs(path: Path, head: Sequence[str], rows: Sequence[Cells], base: Conf) -> Runs:
    """The rows of the chosen cluster and stack, resolved. ``base`` is the plain config.

    Raises ``Invalid`` with everything that is wrong in any row, see ``lint``; and if no row is of this cluster and stack.
    """
    where = f"measurements={path}"
    if problems := _columns(where, head):
        raise Invalid(problems)
    models = configs.library("model")
    numbered = [(n, {key: text for key, text in row.items() if text}) for n, row in enumerate(rows, start=1)]
    chosen = [(n, cells) for n, cells in numbered if _is_chosen(cells, base)]
    if not chosen:
        raise Invalid([f"{where}: no row is {_asked(base)}. {_there_are(numbered, base)}"])
    problems, runs = [], []
    for number, cells in chosen:
        try:
            runs.append(_run(number, cells, base, models))
        except Invalid as error:
            named = f"row {number}" + (f" ({cells['id']})" if "id" in cells else "")
            problems += [f"{where}: {named}: {problem}" for problem in error.problems]
    if problems:
        raise Invalid(problems)
    others = len(numbered) - len(chosen)
    left = [f"{others} of {len(numbered)} rows are not {_asked(base)} and were left out."] if others else []
    dates = [cells["date"] for _, cells in chosen if "date" in cells]
    return Runs(runs=tuple(runs), warnings=tuple(left), assumed=_assumed(head, base), date=max(dates, default=None))


def _columns(where: str, head: Sequence[str]) -> list[str]:
    problems = []
    for name, times in Counter(head).items():
        if name not in COLUMNS:
            near = alike(name, COLUMNS)
            told = [each for each in near if name in each] or near[:1]
            nearest = f"Nearest: {' or '.join(told)}." if told else f"Known: {', '.join(COLUMNS)}."
            problems.append(f"{where}: column {name!r} is unknown. {nearest}")
        elif times > 1:
            problems.append(f"{where}: column {name!r} stands there {times} times and must once.")
    missing = [name for name in NEEDED if name not in head]
    if missing:
        problems.append(f"{where}: columns {', '.join(missing)} are missing.")
    return problems


def _is_chosen(cells: Cells, base: Conf) -> bool:
    return all(cells.get(group, base[group]["name"]) == base[group]["name"] for group in ("cluster", "stack"))


def _asked(base: Conf) -> str:
    return f"of cluster={base['cluster']['name']} and stack={base['stack']['name']}"


def _there_are(numbered: Sequence[tuple[int, Cells]], base: Conf) -> str:
    counts = Counter(
        tuple(cells.get(group, base[group]["name"]) for group in ("cluster", "stack")) for _, cells in numbered
    )
    told = ", ".join(f"cluster={cluster} stack={stack} ({n})" for (cluster, stack), n in counts.most_common(5))
    return f"There are {told}. Nearest: {told.split(' (')[0]}."


def _assumed(head: Sequence[str], base: Conf) -> tuple[str, ...]:
    """What no column says, as the config has it."""
    found = []
    for key, columns in TOLD.items():
        if not set(columns) & set(head):
            group, name = key.split(".")
            value = base[group][name]
            found.append(f"{key}={'null (the model’s context)' if value is None else value}")
    return tuple(found)


def _run(number: int, cells: Cells, base: Conf, models: Conf) -> Run:
    findings = lint.lint(cells, NEEDED + (NEEDED_SHAPE if _has_shape(cells) else ()))
    problems = [str(finding) for finding in findings]
    if "model" in cells and cells["model"] not in models:
        near = difflib.get_close_matches(cells["model"], models, n=1, cutoff=0.3)
        problems.append(
            f"model={cells['model']!r} is no file of conf/model." + (f" Nearest: {near[0]}." if near else "")
        )
        raise Invalid(problems)
    point = None
    if not problems:
        try:
            point = _point(cells, base, models)
        except Invalid as error:
            problems = error.problems
    if point is None:
        hint = lint.swapped(cells, lambda tried: _works(tried, base, models))
        raise Invalid([*problems, *([hint] if hint else [])])
    measured = {name: float(cells[name]) for name in MEASURED if name in cells}
    return Run(
        row=number,
        id=cells.get("id", str(number)),
        source=cells.get("source", "own"),
        point=point,
        step_time_s=measured["step_time_s"],
        memory_bytes=measured["memory_gb"] * 1e9 if "memory_gb" in measured else None,
        tflops_per_gpu=measured.get("tflops_per_gpu"),
    )


def _works(cells: Cells, base: Conf, models: Conf) -> bool:
    if lint.lint(cells, NEEDED):
        return False
    try:
        _point(cells, base, models)
    except Invalid:
        return False
    return True


def _point(cells: Cells, base: Conf, models: Conf) -> Point:
    return legality.resolve(configs.build(_config(cells, base, models)))


def _has_shape(cells: Cells) -> bool:
    return "model" not in cells and any(name in cells for name in SHAPE)


def _config(cells: Cells, base: Conf, models: Conf) -> dict[str, Any]:
    """The base config with the row's values."""
    config = copy.deepcopy(dict(base))
    for group, keys in (("parallel", PARALLEL), ("training", TRAINING)):
        config[group] |= {key: _value(key, cells[key]) for key in keys if key in cells}
    if "d" not in cells:
        config["parallel"]["d"] = None
    if "schedule" in cells:
        config["schedule"] = {**config["schedule"], "name": cells["schedule"]}
    if "model" in cells:
        config["model"] = models[cells["model"]]
    elif _has_shape(cells):
        plain = dict.fromkeys(("kv_heads", "head_dim", "ffn", "mla", "moe"))
        config["model"] |= plain | {"name": "own"} | {key: _value(key, cells[key]) for key in SHAPE if key in cells}
    gpus = _gpus(cells, config["cluster"]["gpus"])
    config["cluster"] |= {"gpus": gpus, "gpus_per_node": min(gpus, config["cluster"]["gpus_per_node"])}
    return config


def _gpus(cells: Cells, otherwise: int) -> int:
    """As the row says, or what its d makes."""
    if "gpus" in cells:
        return int(float(cells["gpus"]))
    if "d" in cells:
        return math.prod(int(float(cells.get(name, "1"))) for name in ("t", "p", "c", "d"))
    return otherwise


def _value(key: str, text: str) -> Any:
    if key in lint.FLAGS:
        return lint.is_true(text)
    return int(float(text)) if key in lint.WHOLE else text
