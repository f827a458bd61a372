"""How many micro-batches keep the bubble below a share, by simulating them; and which size of them is best.

Only what the framework of the stack runs is told, if it has one and runs the layout with any number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipesim import schedules
from pipesim.checks import divisors
from pipesim.costs.columns import BoolArray, FloatArray
from pipesim.estimate.orders import for_times
from pipesim.launch.number_rules import numbers_of
from pipesim.launch.rules import allowed
from pipesim.plan import grid
from pipesim.plan.asked.space import Axis, Config, Slice, Space
from pipesim.plan.explain.counterfactual import placed, simulated
from pipesim.results.schema import Row
from pipesim.schedules.action import IntArray
from pipesim.simulate import simulate
from pipesim.specs import Point

MOST = 16_384
"""More micro-batches are not tried: with 512 ranks of one stage they leave a bubble of 3 %."""
MOST_ACTIONS = 2_000_000
"""Of the longest schedule that is simulated for an answer."""
ROUNDING = 1e-9
"""A bubble of just the share is not below it."""


class Enough(NamedTuple):
    """The fewest micro-batches for each definition of the bubble, None if not even ``most`` are enough.

    ``least`` is the bubble fraction with so many as ``most``, where they are not; ``unruled`` what is enough for ``fraction``
    without the framework's rules.
    """

    fraction: int | None
    overhead: int | None
    most: int
    least: float | None
    unruled: int | None


def enough(point: Point, share: float, equal: bool) -> Enough:
    """Of a resolved point: idle/total and idle/useful below ``share``; the second is the first below share / (1 + share).

    ``equal``: all stages take their mean time and results travel in none, which is what closed forms assume.
    """
    turn, bubble = int(dict(point.options).get("group", point.layout.p)), _remembered(point, equal)
    turns = _turns(point, turn)
    most = turns * turn
    total, useful = share * (1 - ROUNDING), share / (1 + share) * (1 - ROUNDING)
    one = point.training.micro_batch * (point.layout.d or 1)
    runs = _runs(point, "global_batch", np.arange(1, most + 1) * one)
    ruled: Bubble = lambda m: bubble(m) if runs[m - 1] else None  # noqa: E731
    fraction, overhead = (_fewest(ruled, turn, turns, below) for below in (total, useful))
    return Enough(
        fraction=fraction,
        overhead=overhead,
        most=most,
        least=bubble(most) if overhead is None else None,
        unruled=fraction if runs.all() else _fewest(bubble, turn, turns, total),
    )


def _runs(point: Point, key: str, values: IntArray) -> BoolArray:
    """Which values of one of the point's numbers its framework runs, or all where it runs none: then others matter."""
    columns = {name: np.full(len(values), number) for name, number in numbers_of(point).items()}
    found = np.asarray(allowed(point, {**columns, key: values}))
    return found if found.any() else np.ones(len(values), np.bool_)


Bubble = Callable[[int], float | None]
"""The bubble fraction with so many micro-batches; None where the schedule refuses them."""


def _remembered(point: Point, equal: bool) -> Bubble:
    times, hop_s = _times(point, equal)
    layout, options, known = point.layout, point.options, dict[int, float | None]()

    def bubble(m: int) -> float | None:
        if m not in known:
            legal = not schedules.problems(point.schedule, layout.p, m, layout.v, **dict(options))
            known[m] = _bubble(m) if legal else None
        return known[m]

    def _bubble(m: int) -> float:
        schedule = for_times(point.schedule, layout.p, m, layout.v or 1, options, [*times, hop_s])
        forward_s, input_grad_s, weight_grad_s = (op / schedule.segments for op in times)
        makespan_s = simulate(schedule, forward_s, input_grad_s, weight_grad_s, hop_s / schedule.segments).makespan_s
        return max(0.0, 1 - m * float(sum(op.sum() for op in times)) / (layout.p * makespan_s))

    return bubble


def _times(point: Point, equal: bool) -> tuple[list[FloatArray], float]:
    """Seconds of forward, input and weight gradient of every stage, standing still included, and of a hop; of the replica
    that computes longest.
    """
    found = simulated(placed(point), {"imbalance": 0.0, "pp": 0.0} if equal else {})[2]
    replicas = [(run, cell) for run in found for cell in range(len(run.hop_s))]
    run, cell = max(replicas, key=lambda each: float(each[0].whole_s[..., each[1]].sum()))
    return [op[:, cell] for op in run.whole_s], float(run.hop_s[cell])


def _turns(point: Point, turn: int) -> int:
    """So many turns of micro-batches are tried at most."""
    stages = point.layout.p * (point.layout.v or 1)
    return max(1, min(MOST, MOST_ACTIONS // (3 * stages)) // turn)


def _fewest(bubble: Bubble, turn: int, most: int, below: float) -> int | None:
    """The smallest m with a bubble ``below``. A turn is as many as pass a stage together, p or the group that was asked
    for: no number between two whole turns has a shorter bubble than the larger, or a longer one than all before the
    smaller. So turns are halved in on first, then the numbers of the last one are tried one by one.
    """

    def is_below(m: int) -> bool:
        found = bubble(m)
        return found is not None and found < below

    high = 1
    while not is_below(high * turn):
        if high == most:
            return None
        high = min(2 * high, most)
    low = high // 2  # of which it is known not to be
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_below(middle * turn) else (middle, high)
    return next(m for m in range(low * turn + 1, high * turn + 1) if is_below(m))


def sizes(config: Config, point: Point) -> list[Row]:
    """A row for every micro-batch that divides a data rank's sequences, the global batch as it is; smallest first. Those
    that the schedule, a rule or the framework refuses are left out, all but the point's own.
    """
    every = np.array([*divisors(point.training.global_batch // (point.layout.d or 1))])
    runs = _runs(point, "micro_batch", every) | (every == point.training.micro_batch)
    axis = Axis(keys=("training.micro_batch",), values=tuple((n,) for n in every[runs].tolist()))
    space = Space(base=config, axes=(axis,))
    rows: list[Row] = grid.evaluate([Slice(space, 0, len(space))], details=False).to_pylist()
    return sorted((row for row in rows if row["step_time_s"] is not None), key=lambda row: row["micro_batch"])
