"""Simulation of a schedule: from seconds per stage to a timeline, its causes and its bounds."""

from __future__ import annotations

from numpy.typing import ArrayLike

from pipesim.schedules.action import Schedule
from pipesim.simulate import engine, iterations
from pipesim.simulate.batch import Batch, simulate_many
from pipesim.simulate.beside import Beside
from pipesim.simulate.bounds import Bounds, lower_bounds
from pipesim.simulate.causes import Cause, Idle, idle, idle_between
from pipesim.simulate.critical import Step, critical_path
from pipesim.simulate.deadlock import Deadlock
from pipesim.simulate.iterations import Iterations
from pipesim.simulate.links import Link, Links, placed
from pipesim.simulate.memory import peak_counts, peak_held
from pipesim.simulate.periodic import Figures, figures
from pipesim.simulate.timeline import Timeline

__all__ = [
    "Batch", "Beside", "Bounds", "Cause", "Deadlock", "Figures", "Idle", "Iterations", "Link", "Links", "Step", "Timeline",
    "critical_path", "figures", "idle", "idle_between", "lower_bounds", "peak_counts", "peak_held", "placed", "simulate",
    "simulate_iterations", "simulate_many", "steady_period_s",
]  # fmt: skip


def simulate(
    schedule: Schedule,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
    *,
    pair_s: ArrayLike | None = None,
    links: Links | None = None,
) -> Timeline:
    """When everything runs, if every rank works through its list and starts each action as early as it can.

    Times are one number, one per stage, or stages x micro-batches; a whole backward takes ``input_grad_s +
    weight_grad_s``, an overlapped pair ``pair_s`` (one number, one per stage of its first action, or stages x stages)
    or else the sum of its two. ``latency_s`` is added to every dependency between two ranks, and sends overlap with
    computing; ``links`` says more. Raises ``Deadlock`` with the cycle of waiting actions and ``ValueError`` for times
    that are negative or not finite.
    """
    setup = engine.prepare(schedule, forward_s, input_grad_s, weight_grad_s, latency_s, pair_s=pair_s, links=links)
    return engine.run(setup, engine.fresh_state(setup))


def simulate_iterations(
    schedule: Schedule,
    count: int,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
    *,
    pair_s: ArrayLike | None = None,
    links: Links | None = None,
    optimizer_s: ArrayLike = 0.0,
    barrier: bool = True,
) -> Iterations:
    """``count`` iterations back to back, times as in ``simulate``.

    Each rank's optimizer step takes ``optimizer_s`` (one number or one per rank) after its own last action; with
    ``barrier`` it waits for every rank's last action first, and no rank goes on before the slowest step is done.
    """
    setup = engine.prepare(schedule, forward_s, input_grad_s, weight_grad_s, latency_s, pair_s=pair_s, links=links)
    return iterations.run(setup, count, optimizer_s, barrier)


def steady_period_s(
    schedule: Schedule,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
    *,
    pair_s: ArrayLike | None = None,
    links: Links | None = None,
    optimizer_s: ArrayLike = 0.0,
    barrier: bool = False,
) -> float:
    """Seconds from one iteration to the next when many run back to back; arguments as in ``simulate_iterations``."""
    setup = engine.prepare(schedule, forward_s, input_grad_s, weight_grad_s, latency_s, pair_s=pair_s, links=links)
    return iterations.steady_period_s(setup, optimizer_s, barrier)
