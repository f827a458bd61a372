"""List scheduling: an order found by simulating, each rank taking the most urgent action that is ready and fits.

Two of the papers' tools in one: the heuristic of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024, section 3.1)
and the squeezing of a repeated building block of Qi et al., "Pipeline Parallelism with Controllable Memory"
(NeurIPS 2024, section 3): there a block says when each action is due, here ranks run it earlier where they can.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.compiled import compiled

FloatArray = NDArray[np.float64]


class Costs(NamedTuple):
    """Seconds of each stage, shape (stages,), and of a hop between two ranks."""

    forward_s: FloatArray
    input_grad_s: FloatArray
    weight_grad_s: FloatArray
    latency_s: float = 0.0


def costs(
    stages: int, forward_s: ArrayLike = 1, input_s: ArrayLike = 1, weight_s: ArrayLike = 1, latency_s: float = 0
) -> Costs:
    """Costs from scalars or from one value per stage."""
    seconds = np.zeros((3, stages))
    seconds[0], seconds[1], seconds[2] = forward_s, input_s, weight_s
    return Costs(seconds[0], seconds[1], seconds[2], float(latency_s))


class Found(NamedTuple):
    schedule: Schedule
    makespan_s: float
    span_s: float


def list_schedule(
    name: str,
    m: int,
    stages: IntArray,
    due: NDArray[Any],
    interval: float,
    cap: IntArray,
    times: Costs,
    *,
    whole: bool = False,
    patience: float = 0.0,
) -> Found:
    """The order that a rank-by-rank race makes, with its makespan and longest-rank span under ``times``.

    stages    (p, v)       the stages of each rank, in the order in which a micro-batch passes them
    due       (2, stages)  when F and I (or B) are due, micro-batch i by ``interval * i`` later; the earliest runs first
    cap       (p, v)       the k-th stage of a rank runs an F only while the rank holds fewer activations than this
    whole                  backwards are not split; otherwise W fills the gaps and makes room
    patience               a W does not start if an F or I arrives within this part of its time

    A deadlock cannot happen if ``cap`` grows along each rank's stages: each then has a place that no earlier one takes.
    """
    p, v = stages.shape
    place = np.empty((p * v, 2), np.int64)
    place[stages.ravel()] = np.stack(np.divmod(np.arange(p * v), v), axis=1)
    last_s = times.weight_grad_s if not whole else np.zeros(p * v)
    back_s = times.input_grad_s + (times.weight_grad_s if whole else 0)
    seconds = np.stack([times.forward_s, back_s, last_s])
    stage, op, micro_batch, first_s, end_s = _race(
        m, stages, place, due.astype(np.float64), float(interval), cap, seconds, times.latency_s, whole, patience
    )
    size = p * v * m * (2 if whole else 3)
    assert len(stage) == size, f"{name}: {len(stage)} of {size} actions found a place"
    rank = place[stage, 0]
    order = np.argsort(rank, kind="stable")
    schedule = Schedule(
        name=name, p=p, m=m, stages=p * v, rank_start=np.arange(p + 1) * (size // p),
        stage=stage[order], op=op[order], micro_batch=micro_batch[order], joined=np.zeros(size, np.bool_),
    )  # fmt: skip
    return Found(schedule, float(end_s.max()), float((end_s - first_s).max()))


@compiled
def _race(m, stages, place, due, interval, cap, seconds, latency_s, whole, patience):  # type: ignore[no-untyped-def]
    """Stage, op and micro-batch of every action as they start, and each rank's first start and last end."""
    p, v = stages.shape
    last = p * v - 1
    size = p * v * m * (2 if whole else 3)
    stage_out, micro_out = np.empty(size, np.int32), np.empty(size, np.int32)
    op_out = np.empty(size, np.int8)
    done_s = np.full((2, p * v, m), np.inf)  # end of F and of I or B, known once it starts
    count = np.zeros((3, p * v), np.int64)  # the next micro-batch of F, of I or B, of W
    held = np.zeros(p, np.int64)
    wake_s = np.zeros(p)
    free_s = np.zeros(p)
    first_s, end_s = np.full(p, np.inf), np.zeros(p)
    n = 0
    while n < size:
        rank = np.argmin(wake_s)
        now_s = wake_s[rank]
        if now_s == np.inf:
            break
        best, best_due, best_kind, best_stage = -1, np.inf, -1, -1
        soon_s = np.inf
        for k in range(v):
            stage = stages[rank, k]
            for kind in range(2):
                i = count[kind, stage]
                if i >= m:
                    continue
                if kind == 0:
                    ready_s = 0.0
                    if stage > 0:
                        ready_s = done_s[0, stage - 1, i]
                        if place[stage - 1, 0] != rank:
                            ready_s += latency_s
                else:
                    ready_s = done_s[0, stage, i]
                    if stage < last and ready_s < np.inf:
                        back_s = done_s[1, stage + 1, i]
                        if place[stage + 1, 0] != rank:
                            back_s += latency_s
                        ready_s = max(ready_s, back_s)
                if kind == 0 and held[rank] >= cap[rank, k]:
                    continue  # a W makes room first, and then this is looked at again
                if ready_s <= now_s:
                    urgency = due[kind, stage] + interval * i
                    if best < 0 or urgency < best_due:
                        best, best_due, best_kind, best_stage = i, urgency, kind, stage
                else:
                    soon_s = min(soon_s, ready_s)
        if best < 0 and not whole:
            for k in range(v - 1, -1, -1):
                stage = stages[rank, k]
                i = count[2, stage]
                if i < count[1, stage] and done_s[1, stage, i] <= now_s and (best < 0 or i < best):
                    best, best_kind, best_stage = i, 2, stage
            if best >= 0 and soon_s < now_s + patience * seconds[2, best_stage]:
                best = -1
        if best < 0:
            wake_s[rank] = soon_s
            continue
        stage_out[n], micro_out[n] = best_stage, best
        op_out[n] = 0 if best_kind == 0 else (1 if whole else 2) if best_kind == 1 else 3
        n += 1
        count[best_kind, best_stage] += 1
        over_s = now_s + seconds[best_kind, best_stage]
        if best_kind == 0:
            held[rank] += 1
        elif best_kind == 2 or whole:
            held[rank] -= 1
        first_s[rank] = min(first_s[rank], now_s)
        end_s[rank] = max(end_s[rank], over_s)
        free_s[rank] = over_s
        wake_s[rank] = over_s
        if best_kind < 2:
            done_s[best_kind, best_stage, best] = over_s
            following = best_stage + 1 if best_kind == 0 else best_stage - 1
            if 0 <= following <= last:
                other = place[following, 0]
                arrival_s = over_s if other == rank else over_s + latency_s
                wake_s[other] = min(wake_s[other], max(arrival_s, free_s[other]))
    return stage_out[:n], op_out[:n], micro_out[:n], first_s, end_s
