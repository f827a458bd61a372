"""An order made for given times, communication and memory: the best of the papers' skeletons, with W put in anew.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3.1 (ZB-1p and ZB-2p are what it finds with a
cap of p and of 2p activations), for V shapes and virtual stages too. Deterministic: no sampling, ties to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.greedy import Costs, Found, costs, list_schedule
from pipesim.schedules.interleaved_1f1b import interleaved_1f1b
from pipesim.schedules.interleaved_zb import interleaved_zb
from pipesim.schedules.phases import from_phases
from pipesim.schedules.v_half import v_half
from pipesim.schedules.v_min import v_min
from pipesim.schedules.weights import fill, skeleton, split
from pipesim.schedules.zb_h1 import zb_h1
from pipesim.schedules.zb_h2 import zb_h2
from pipesim.schedules.zbv import zbv

OBJECTIVES = ("makespan", "span")
OPTIONS = (
    "forward_s",
    "input_grad_s",
    "weight_grad_s",
    "latency_s",
    "max_inflight",
    "kept_for_weights",
    "objective",
)


def auto(
    p: int,
    m: int,
    v: int = 1,
    *,
    forward_s: ArrayLike = 1.0,
    input_grad_s: ArrayLike = 1.0,
    weight_grad_s: ArrayLike = 1.0,
    latency_s: float = 0.0,
    max_inflight: float | None = None,
    kept_for_weights: float = 1.0,
    objective: str = "makespan",
) -> Schedule:
    """Times are scalars or one per stage; no rank holds more than ``max_inflight`` activations (of one stage each).

    Without a cap it is v p, what 1F1B holds. I leaves ``kept_for_weights`` of an activation for W. ``objective`` is
    the makespan, or the span of the longest rank for steps that follow one another without a barrier.

    >>> print(auto(p=2, m=3))
    rank 0 | 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2
    rank 1 | 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
    """
    cap = float(v * p if max_inflight is None else max_inflight)
    times = costs(p * v, forward_s, input_grad_s, weight_grad_s, latency_s)
    found: list[Found | None] = []
    for known in _known_orders(p, m, v, times, cap):
        found.append(fill(split(known), m, times, cap, kept=kept_for_weights))
        for overrun, spare in product((0.0, 0.5, 1.0), (False, True)):
            found.append(fill(skeleton(known), m, times, cap, kept=kept_for_weights, overrun=overrun, spare=spare))
    if m <= 4 * p or not any(found):
        found += _races(p, m, v, times, int(cap + 1e-9))
    makespan_first = objective == "makespan"
    best = min(
        (one for one in found if one is not None),
        key=lambda one: (one.makespan_s, one.span_s) if makespan_first else (one.span_s, one.makespan_s),
    )
    return replace(best.schedule, name="auto")


def _known_orders(p: int, m: int, v: int, times: Costs, cap: float) -> Iterator[Schedule]:
    if v == 1:
        yield zb_h1(p, m)
        yield zb_h2(p, m)
        for warmup in _warmups(p, m, times, cap):
            phases = [[(n, "F0"), (m - n, "F0 B0"), (n, "B0")] for n in warmup.tolist()]
            yield from_phases("auto", m, [((rank,), phases[rank]) for rank in range(p)])
        return
    if v == 2:
        yield from (make(p, m) for make in (zbv, v_half, v_min))
    yield from (make(p, m, v) for make in (interleaved_zb, interleaved_1f1b))


def _warmups(p: int, m: int, times: Costs, cap: float) -> list[IntArray]:
    """Forwards of each rank before its first backward: as 1F1B, and what fits while that travels down and up."""
    hop_s = times.forward_s + times.input_grad_s + 2 * times.latency_s
    away_s = np.concatenate([np.cumsum(hop_s[:0:-1])[::-1], [0.0]])
    fitting = away_s / np.maximum(times.forward_s, 1e-300)
    rounded = [np.floor(fitting + 1e-9), np.rint(fitting), np.ceil(fitting - 1e-9)]
    wanted = [p - 1 - np.arange(p), *(counts + extra for counts in rounded for extra in (0, 1, -1))]
    found: dict[bytes, IntArray] = {}
    for counts in wanted:
        warmup = np.clip(counts, 0, min(cap - 1, m)).astype(np.int64)
        for rank in range(1, p):
            warmup[rank] = min(warmup[rank], max(0, warmup[rank - 1] - 1))
        found[warmup.tobytes()] = warmup
    return list(found.values())


def _races(p: int, m: int, v: int, times: Costs, cap: int) -> Iterator[Found]:
    """Orders without a skeleton, which win where there are few micro-batches or little memory."""
    chunk, rank = np.arange(v), np.arange(p)[:, None]
    looped = chunk * p + rank
    folded = chunk * p + np.where(chunk % 2, p - 1 - rank, rank)
    stage = np.arange(p * v)
    forever = 4.0 * p * v * m
    there_and_back = np.stack([stage, 2 * p * v - stage])
    backward_first = np.stack([-stage, stage * 0 - forever])
    for stages in [looped] if v == 1 else [folded, looped]:
        for due, interval, patience in product((there_and_back, backward_first), (2, 3), (0.0, 0.5, 1.0)):
            places = np.tile(cap - v + 1 + chunk, (p, 1))
            yield list_schedule("auto", m, stages, due, interval, places, times, patience=patience)


def broken_rules(p: int, m: int, v: int, **options: Any) -> Iterator[str]:
    for key in ("forward_s", "input_grad_s", "weight_grad_s"):
        seconds = np.asarray(options.get(key, 1.0), np.float64)
        if seconds.shape not in ((), (p * v,)) or not np.all(np.isfinite(seconds) & (seconds >= 0)):
            yield f"schedule.{key} must be one number, or one for each of {p * v} stages, at least 0. Nearest: 1."
    cap, kept = options.get("max_inflight"), options.get("kept_for_weights", 1.0)
    if cap is not None and cap < v:
        yield f"schedule.max_inflight={cap}: a rank holds one activation per stage, of {v}. Nearest: {v}."
    if not 0 < kept <= 1:
        yield f"schedule.kept_for_weights={kept} must be above 0 and at most 1. Nearest: 1."
    objective = options.get("objective", OBJECTIVES[0])
    if objective not in OBJECTIVES:
        yield f"schedule.objective={objective!r} must be one of {', '.join(OBJECTIVES)}. Nearest: {OBJECTIVES[0]}."


def peak_inflight(p: int, m: int, v: int, *, max_inflight: float | None = None, **_: object) -> IntArray:
    """At most what is asked for; v p without a cap."""
    return np.full(p, min(v * p if max_inflight is None else int(max_inflight), v * m))
