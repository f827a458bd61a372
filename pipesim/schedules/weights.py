"""Weight gradients put where they cost least, into a given order of forwards and backwards.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3.1: with F and I in a fixed order
on each rank, W fills the gaps that are long enough, makes room when the memory is full, and comes last otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.compiled import compiled
from pipesim.schedules.greedy import Costs, Found


class Skeleton(NamedTuple):
    """What each rank runs in order, with W or without: rank r owns ``rank_start[r]:rank_start[r + 1]``."""

    rank_start: IntArray
    stage: IntArray
    kind: IntArray
    """0 for F, 1 for I, 2 for W."""
    micro_batch: IntArray


def skeleton(schedule: Schedule) -> Skeleton:
    """The order of a schedule without its weight gradients, each backward whole or split."""
    return _select(schedule, (schedule.op != Op.W).astype(np.int64), schedule.op != Op.F)


def split(schedule: Schedule) -> Skeleton:
    """The order of a schedule with its weight gradients, those of whole backwards at once."""
    kind = np.array([0, 1, 1, 2])[schedule.op]
    order = _select(schedule, 1 + (schedule.op == Op.B), kind)
    again = np.concatenate([[False], np.repeat(schedule.op == Op.B, 1 + (schedule.op == Op.B))[:-1]])
    second = again & (order.kind == 1) & (np.roll(order.stage, 1) == order.stage)
    second &= np.roll(order.micro_batch, 1) == order.micro_batch
    return order._replace(kind=order.kind + second)


def _select(schedule: Schedule, times: IntArray, kind: NDArray[Any]) -> Skeleton:
    rank_start = np.concatenate([[0], np.cumsum(times)])[schedule.rank_start]
    columns = (schedule.stage, kind, schedule.micro_batch)
    return Skeleton(rank_start, *(np.repeat(column, times).astype(np.int64) for column in columns))


def fill(
    order: Skeleton, m: int, times: Costs, cap: float, *, kept: float = 1.0, overrun: float = 0.0, spare: bool = False
) -> Found | None:
    """The order with W in it, its makespan and longest-rank span; None if it cannot stay below ``cap`` activations.

    An order that has W already is only timed.

    kept     the part of an activation that I leaves for W; F holds a whole one
    overrun  W also starts in a gap shorter than it is, of at least this part of its time
    spare    but not if the rank has had less idle time than the idlest one and can afford the gap
    """
    seconds = np.stack([times.forward_s, times.input_grad_s, times.weight_grad_s])
    place = np.empty(seconds.shape[1], np.int64)
    place[order.stage] = np.repeat(np.arange(len(order.rank_start) - 1), np.diff(order.rank_start))
    p, size = len(order.rank_start) - 1, 3 * len(place) * m
    stage, op, micro_batch, first_s, end_s = _fill(
        *order, m, place, seconds, times.latency_s, cap + 1e-9, kept, overrun, spare
    )
    if (stage < 0).any():
        return None
    schedule = Schedule(
        name="auto", p=p, m=m, stages=len(place), rank_start=np.arange(p + 1) * (size // p),
        stage=stage, op=op, micro_batch=micro_batch, joined=np.zeros(size, np.bool_),
    )  # fmt: skip
    return Found(schedule, float(end_s.max()), float((end_s - first_s).max()))


@compiled
def _fill(rank_start, stages, kinds, micro_batches, m, place, seconds, latency_s, cap, kept, overrun, spare):  # type: ignore[no-untyped-def]
    """Stage, op, micro-batch (stage -1 where the memory did not suffice), each rank's first start and last end."""
    p, last = len(rank_start) - 1, len(place) - 1
    own = 3 * len(place) // p * m  # actions of each rank
    size, placed = p * own, len(stages) == p * own
    stage_out, micro_out, op_out = np.full(size, -1, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int8)
    done_s = np.full((2, len(place), m), np.inf)
    head, n = rank_start[:-1].copy(), np.arange(p) * own
    inputs, weights = np.arange(p) * (own // 3), np.arange(p) * (own // 3)  # each rank's queue of I that wait for W
    waiting = np.zeros((size // 3, 2), np.int64)
    clock_s, idle_s, held = np.zeros(p), np.zeros(p), np.zeros(p)
    first_s = np.full(p, np.inf)
    moved = True
    while moved:
        moved = False
        for rank in range(p):
            while head[rank] < rank_start[rank + 1]:
                i = head[rank]
                stage, kind, number = stages[i], kinds[i], micro_batches[i]
                ready_s = 0.0
                before = stage - 1 if kind == 0 else stage + 1
                if kind < 2 and 0 <= before <= last:
                    ready_s = done_s[kind, before, number] + (latency_s if place[before] != rank else 0.0)
                if kind == 1:
                    ready_s = max(ready_s, done_s[0, stage, number])
                if ready_s == np.inf:
                    break
                while weights[rank] < inputs[rank]:
                    weight_s = seconds[2, waiting[weights[rank], 0]]
                    gap_s = ready_s - clock_s[rank]
                    needed = kind == 0 and held[rank] + 1 > cap
                    partly = gap_s > 0 and gap_s >= overrun * weight_s
                    if partly and gap_s < weight_s and spare:
                        partly = gap_s > idle_s.max() - idle_s[rank]
                    if not (needed or gap_s >= weight_s or partly):
                        break
                    stage_out[n[rank]], micro_out[n[rank]] = waiting[weights[rank]]
                    op_out[n[rank]] = 3
                    n[rank] += 1
                    weights[rank] += 1
                    clock_s[rank] += weight_s
                    held[rank] -= kept
                if kind == 0 and held[rank] + 1 > cap:
                    return stage_out, op_out, micro_out, first_s, clock_s
                if ready_s > clock_s[rank] and first_s[rank] < np.inf:
                    idle_s[rank] += ready_s - clock_s[rank]
                start_s = max(clock_s[rank], ready_s)
                first_s[rank] = min(first_s[rank], start_s)
                clock_s[rank] = start_s + seconds[kind, stage]
                if kind < 2:
                    done_s[kind, stage, number] = clock_s[rank]
                stage_out[n[rank]], micro_out[n[rank]], op_out[n[rank]] = stage, number, (0, 2, 3)[kind]
                n[rank] += 1
                held[rank] += 1 if kind == 0 else (kept - 1 if kind == 1 else -kept)
                if kind == 1 and not placed:
                    waiting[inputs[rank], 0], waiting[inputs[rank], 1] = stage, number
                    inputs[rank] += 1
                head[rank] += 1
                moved = True
    for rank in range(p):
        for k in range(weights[rank], inputs[rank]):
            stage_out[n[rank]], micro_out[n[rank]] = waiting[k]
            op_out[n[rank]] = 3
            n[rank] += 1
            clock_s[rank] += seconds[2, waiting[k, 0]]
    return stage_out, op_out, micro_out, first_s, clock_s
