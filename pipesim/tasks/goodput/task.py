"""Task: a whole training, from its token budget to days and price: phases of the batch, failures, checkpoints, restarts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipesim import config as configs
from pipesim import legality
from pipesim.checks import Checks, Invalid
from pipesim.costs import goodput as costs
from pipesim.costs.parameters import active_parameters, embedding_parameters, head_parameters
from pipesim.plan import grid
from pipesim.plan.asked.space import Axis, Slice, Space
from pipesim.results.schema import Row
from pipesim.specs import ModelSpec
from pipesim.tasks import Done
from pipesim.tasks.goodput.page import page
from pipesim.tasks.goodput.ramp import Phase, phases
from pipesim.tasks.goodput.trained import Machine, Trained

HOUR_S = 3600.0

STORAGE_BYTES_PER_S = 2e12 / 16384
"""For each GPU: 2 TB/s sustained for up to 16,384 GPUs. Source: Grattafiori et al., "The Llama 3 Herd of Models", 2024,
section 3.3.1.
"""

CHANGES = (0.25, 0.5, 2.0, 4.0)
"""By what mean time between failures, bandwidth and restarts are multiplied, to see what they matter."""

MOST, MOST_TOKENS = 1e15, 1e18
"""Of hours, GB/s and seconds: beyond what any machine has; of tokens, beyond any data."""

LEAST_USEFUL = 0.001
"""Share of the time below which a training is said never to end."""


def goodput(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` for a layout or a ramp that breaks rules, with every bad batch and the nearest ones that work."""
    asked = config["task"]["goodput"]
    point = legality.resolve(configs.build(config))
    _check(asked)
    layout, training = point.layout, point.training
    assert layout.d is not None
    planned = phases(
        asked, training.global_batch, training.micro_batch * layout.d, training.seq_length or point.model.context
    )
    rows = _rows(config, planned)
    machine = _machine(asked, rows[-1])
    _refuse_endless(asked, machine)
    ends = np.array([phase.end for phase in planned], np.float64) * rows[-1]["seq_length"]
    told = Trained(
        asked=asked,
        point=point,
        phases=planned,
        rows=rows,
        machine=machine,
        changed=_changed(machine, best=asked["interval_s"] is None),
        critical=np.asarray(costs.critical_batch_tokens(costs.expected_loss(_inner(point.model), ends))),
    )
    distinct = {row["point_id"]: row for row in rows}
    return Done(document=page(told), rows=list(distinct.values()))


def _rows(config: Mapping[str, Any], planned: Sequence[Phase]) -> list[Row]:
    """A row for every phase, each batch priced once. Raises ``Invalid`` for batches that the schedule cannot run."""
    batches = sorted({phase.batch for phase in planned})
    axis = Axis(keys=("training.global_batch",), values=tuple((batch,) for batch in batches))
    table = grid.evaluate([Slice(Space(base=config, axes=(axis,)), 0, len(batches))], details=False)
    rows = {row["global_batch"]: row for row in table.to_pylist()}
    problems = [f"batch {batch}: {rows[batch]['reason']}" for batch in batches if rows[batch]["step_time_s"] is None]
    if problems:
        raise Invalid(problems)
    return [rows[phase.batch] for phase in planned]


def _machine(asked: Mapping[str, Any], row: Row) -> Machine:
    """The best interval is one of whole steps, of the last phase."""
    given = asked["checkpoint_gb_per_s"]
    machine = Machine(
        mtbf_s=float(costs.system_mtbf_s(asked["gpu_mtbf_hours"] * HOUR_S, row["gpus"])),
        checkpoint_bytes=float(costs.checkpoint_bytes(row["model_params"])),
        bytes_per_s=STORAGE_BYTES_PER_S * row["gpus"] if given is None else given * 1e9,
        restart_s=asked["restart_s"],
    )
    step_s = row["step_time_s"]
    whole_s = max(1, round(machine.interval() / step_s)) * step_s
    return _with(machine, interval_s=asked["interval_s"] or whole_s)


def _refuse_endless(asked: Mapping[str, Any], machine: Machine) -> None:
    """Raises ``Invalid`` where failures leave next to nothing of the time."""
    interval_s = machine.interval()
    share = float(costs.useful_share(interval_s, machine.checkpoint_s, machine.mtbf_s, machine.restart_s))
    if share > LEAST_USEFUL:
        return
    given = "" if asked["interval_s"] is None else f"task.goodput.interval_s={asked['interval_s']:g} or "
    raise Invalid(
        [
            f"task.goodput: the training never ends, for of its time less than {LEAST_USEFUL:.1%} is useful: a failure comes every "
            f"{machine.mtbf_s:,.1f} s, a restart takes {machine.restart_s:,.1f} s, a checkpoint {machine.checkpoint_s:,.1f} s and "
            f"the work between two {interval_s:,.1f} s. Change {given}task.goodput.gpu_mtbf_hours={asked['gpu_mtbf_hours']:g}; "
            f"Nearest: task.goodput.interval_s=null with task.goodput.gpu_mtbf_hours={_enough_hours(asked, machine):g} or more."
        ]
    )


def _enough_hours(asked: Mapping[str, Any], machine: Machine) -> float:
    """Hours between two failures of a GPU that leave a tenth of the time: the first that does, doubling."""
    hours = asked["gpu_mtbf_hours"]
    while True:
        mtbf_s = machine.mtbf_s * hours / asked["gpu_mtbf_hours"]
        best_s = costs.best_interval_s(machine.checkpoint_s, mtbf_s)
        if costs.useful_share(best_s, machine.checkpoint_s, mtbf_s, machine.restart_s) >= 0.1:
            return float(f"{hours:.3g}")
        hours *= 2


def _changed(machine: Machine, best: bool) -> list[tuple[str, Machine]]:
    """Each with its own best interval; ``best`` says that what was asked has one too."""
    free = _with(machine, interval_s=None)
    found = [("as asked", machine), *([] if best else [("best interval", free)])]
    for name, field in (
        ("time between failures", "mtbf_s"),
        ("checkpoint bandwidth", "bytes_per_s"),
        ("restart", "restart_s"),
    ):
        found += [(f"{name} x {by:g}", _with(free, **{field: by * getattr(machine, field)})) for by in CHANGES]
    return found


def _with(machine: Machine, **changes: Any) -> Machine:
    return dataclasses.replace(machine, **changes)


def _inner(model: ModelSpec) -> int:
    """Parameters without the tables of the vocabulary, as Kaplan et al. count; of experts those that a token passes."""
    tables = embedding_parameters(model) + (0 if model.tied_embeddings else head_parameters(model))
    return active_parameters(model) - tables


def _check(asked: Mapping[str, Any]) -> None:
    checks = Checks("task.goodput")
    keys = ("tokens", "gpu_mtbf_hours", "checkpoint_gb_per_s", "interval_s")
    checks.positive(**{key: asked[key] for key in keys if asked[key] is not None})
    checks.not_negative(restart_s=asked["restart_s"])
    small = ("gpu_mtbf_hours", "checkpoint_gb_per_s", "interval_s", "restart_s")
    checks.at_most(MOST, **{key: asked[key] for key in small if asked[key] is not None})
    checks.at_most(MOST_TOKENS, tokens=asked["tokens"])
    checks.done()
