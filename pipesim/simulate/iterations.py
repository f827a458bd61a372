"""Several iterations back to back: with an optimizer step between them, and a barrier or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pipesim.simulate import engine
from pipesim.simulate.engine import Setup
from pipesim.simulate.kernel import FloatArray, State
from pipesim.simulate.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iterations:
    """One timeline per iteration, on one clock. ``ready_s`` is when each rank may begin the next, shape (count, p)."""

    timelines: tuple[Timeline, ...]
    ready_s: FloatArray
    optimizer_s: FloatArray  # of each rank
    barrier: bool

    @property
    def makespan_s(self) -> float:
        """From the first start to the end of the last optimizer step."""
        return float(self.ready_s[-1].max() - self.timelines[0].start_s.min())


def run(setup: Setup, count: int, optimizer_s: ArrayLike, barrier: bool) -> Iterations:
    if count < 1:
        raise ValueError(f"iterations={count} must be at least 1. Nearest: 1.")
    optimizer = _optimizer_s(setup, optimizer_s)
    state, timelines, ready_s = engine.fresh_state(setup), [], []
    for _ in range(count):
        timelines.append(engine.run(setup, state))
        _step(state, optimizer, barrier)
        ready_s.append(state.clock_s.copy())
    return Iterations(timelines=tuple(timelines), ready_s=np.array(ready_s), optimizer_s=optimizer, barrier=barrier)


def steady_period_s(setup: Setup, optimizer_s: ArrayLike, barrier: bool) -> float:
    """Seconds from one iteration to the next when many run back to back, exactly.

    An iteration maps the times at which ranks and links are free to such times again by sums and maxima only, so the
    period is the greatest mean weight of a cycle of that map. With x(k) the times after k iterations from rest and N of
    them: ``max over i of min over k < N of (x_i(N) - x_i(k)) / (N - k)``.

    Source: Karp, "A characterization of the minimum cycle mean in a digraph", Discrete Mathematics 23, 1978, theorem 1.
    """
    optimizer = _optimizer_s(setup, optimizer_s)
    state = engine.fresh_state(setup)
    history: list[FloatArray] = []
    while not history or len(history) <= len(history[0]):
        engine.run(setup, state)
        _step(state, optimizer, barrier)
        free_s = np.concatenate([state.clock_s, state.link_free_s.ravel()])
        if not history:
            used = free_s > 0
            history.append(np.zeros(used.sum()))
            if not used.any():
                return 0.0
        history.append(free_s[used])
        step_s = history[-1] - history[-2]
        if np.ptp(step_s) == 0:
            return float(step_s[0])  # everything moved by the same time: so it will for ever
    x = np.array(history)
    count = len(x) - 1
    return float(((x[-1] - x[:-1]) / (count - np.arange(count))[:, None]).min(axis=0).max())


def _optimizer_s(setup: Setup, optimizer_s: ArrayLike) -> FloatArray:
    """Seconds of each rank's optimizer step, shape (p,)."""
    seconds = np.asarray(optimizer_s, np.float64)
    p = setup.schedule.p
    if seconds.shape not in ((), (p,)):
        raise ValueError(f"optimizer_s has shape {seconds.shape}; give one number or one for each of {p} ranks.")
    if not np.all(np.isfinite(seconds) & (seconds >= 0)):
        raise ValueError(f"optimizer_s={optimizer_s!r} must be finite and at least 0. Nearest: 0.")
    return np.broadcast_to(seconds, (p,))


def _step(state: State, optimizer_s: FloatArray, barrier: bool) -> None:
    """Every rank takes its optimizer step after its own last action, or, with a barrier, after everybody's."""
    state.clock_s[:] = (state.clock_s.max() if barrier else state.clock_s) + optimizer_s
    if barrier:
        state.clock_s[:] = state.clock_s.max()
