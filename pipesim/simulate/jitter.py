"""Steps whose single actions and messages take longer or shorter by chance, drawn through a schedule's dependencies.

A rank that waits for the later of two results loses what the earlier one gained, so chance lengthens a step even where
it leaves every mean as it is. Draws belong to the work (forward, input gradient or weight gradient of a stage and a
micro-batch), not to its place in an order: schedules with the same stages are compared under the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipesim.schedules.action import Op, Schedule
from pipesim.schedules.compiled import compiled
from pipesim.simulate import programs
from pipesim.simulate.kernel import FloatArray
from pipesim.simulate.programs import READS, WRITES

LANES = 32
"""Steps that are drawn together: their draws are all that is held at once."""

WORK = (Op.F, Op.I, Op.W)
"""What has draws of its own; a whole backward takes what both of its parts drew."""

_WORK, _HOPS, _STALLS = 0, 1, 2
"""Each kind of chance has a stream of its own: leaving one out changes no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How single actions and messages vary.

    ``spread`` and ``hop_spread`` are standard deviations over means (coefficients of variation) of lognormal factors with
    mean 1, independent of each other. With ``stall_probability`` an action takes ``stall_s`` longer.
    """

    spread: float = 0.0
    hop_spread: float = 0.0
    stall_probability: float = 0.0
    stall_s: float = 0.0

    def __post_init__(self) -> None:
        sizes = (self.spread, self.hop_spread, self.stall_s)
        if not (all(0 <= size < math.inf for size in sizes) and 0 <= self.stall_probability <= 1):
            raise ValueError(f"{self} must have finite numbers of at least 0 and a probability of at most 1.")


class Steps(NamedTuple):
    """A schedule as the kernel walks it, shape (steps,) each.

    ``parts`` (steps, 4) are the rows of the table of drawn seconds that a slot's one or two actions take, -1 for none.
    ``hops`` (steps, 2) are those of the messages that they wait for.
    """

    rank: NDArray[np.int32]
    opens: NDArray[np.bool_]
    reads: NDArray[np.int32]
    writes: NDArray[np.int32]
    parts: NDArray[np.int32]
    hops: NDArray[np.int32]
    places: int


def makespans_s(
    schedule: Schedule,
    forward_s: ArrayLike,
    input_grad_s: ArrayLike,
    weight_grad_s: ArrayLike,
    latency_s: float,
    *,
    chance: Chance,
    samples: int,
    seed: int,
    replica: int = 0,
    slow: ArrayLike = 1.0,
) -> FloatArray:
    """The makespans of ``samples`` steps, shape (samples,). Mean seconds are one number or one per stage.

    ``slow`` are factors on all that ranks compute: one, one per rank, or (p, samples). The same ``seed`` and ``replica`` give the
    same draws, the first ones whatever ``samples``; other replicas are independent of them. Without spread and stalls equal
    to ``simulate`` to the last bit. Raises ``Deadlock`` with the cycle of waiting actions.
    """
    steps, given = _steps(schedule), (forward_s, input_grad_s, weight_grad_s)
    work_s = np.stack([np.broadcast_to(np.asarray(each, np.float64), schedule.stages) for each in given])
    work_s = np.repeat(work_s.ravel(), schedule.m)[:, None]
    messages = 2 * schedule.stages * schedule.m if latency_s > 0 and chance.hop_spread > 0 else 1
    slow_of = np.asarray(slow, np.float64).reshape(-1, 1) if np.ndim(slow) < 2 else np.asarray(slow, np.float64)
    slow_of = np.broadcast_to(slow_of, (schedule.p, samples))
    used, found = np.diff(schedule.rank_start) > 0, np.empty(samples)
    table_s, factors = np.empty((len(work_s), LANES)), np.ones((schedule.p, LANES))
    for block in range(0, samples, LANES):
        width, streams = min(LANES, samples - block), (seed, replica, block // LANES)
        _draw(table_s, work_s, chance, streams)
        hops_s = latency_s * _factors(chance.hop_spread if messages > 1 else 0.0, messages, (*streams, _HOPS))
        factors[:, :width] = slow_of[:, block : block + width]
        first_s, last_s = np.zeros((2, schedule.p, LANES))
        _walk(*steps, table_s, hops_s, factors, np.zeros((steps.places, LANES)), first_s, last_s)
        found[block : block + width] = (last_s[used].max(axis=0) - first_s[used].min(axis=0))[:width]
    return found


def _draw(table_s: FloatArray, work_s: FloatArray, chance: Chance, streams: tuple[int, ...]) -> None:
    """Fills ``table_s`` (parts * stages * m, LANES) with what every piece of work takes; ``work_s`` are means."""
    np.multiply(work_s, _factors(chance.spread, len(work_s), (*streams, _WORK)), out=table_s)
    if chance.stall_probability > 0 and chance.stall_s > 0:
        table_s += chance.stall_s * (_generator(*streams, _STALLS).random(table_s.shape) < chance.stall_probability)


def _factors(spread: float, rows: int, streams: tuple[int, ...]) -> FloatArray:
    """Lognormal with mean 1: exp(sigma z - sigma**2 / 2), where sigma**2 = ln(1 + spread**2); shape (rows, LANES).

    Drawn in single precision: seven digits of chance are enough, and take half the time.
    """
    if spread == 0:
        return np.ones((rows, LANES))
    variance = np.log1p(spread**2)
    drawn = _generator(*streams).standard_normal((rows, LANES), np.float32)
    drawn *= np.float32(np.sqrt(variance))
    drawn -= np.float32(variance / 2)
    return np.exp(drawn, out=drawn)


def _generator(*streams: int) -> np.random.Generator:
    return np.random.default_rng(streams)


@lru_cache(maxsize=16)
def _steps(schedule: Schedule) -> Steps:
    rank, opens, steps, micro_batch, places = programs.unfolded(schedule)
    stages, m = schedule.stages, schedule.m
    op, stage = np.divmod(steps[:, :, programs.KIND], stages)
    parts = np.full((len(rank), 2, 2), -1, np.int32)
    for slot, ops in enumerate(((Op.F, Op.I, Op.W, Op.B), (Op.B,))):
        for each in ops:
            work = (Op.W if slot else Op.I) if each == Op.B else each
            row = (WORK.index(work) * stages + stage) * m + micro_batch
            parts[:, :, slot] = np.where(op == each, row, parts[:, :, slot])
    backward = (op != Op.F).astype(np.int32)
    hops = np.where(steps[:, :, READS] >= 0, (backward * stages + stage) * m + micro_batch, -1)
    reads, writes = (np.ascontiguousarray(steps[:, :, column]) for column in (READS, WRITES))
    return Steps(rank, opens, reads, writes, parts.reshape(len(rank), 4), hops.astype(np.int32), places)


@compiled
def _walk(rank, opens, reads, writes, parts, hops, places, table, hop_s, slow, waiting, opened, clock):  # type: ignore[no-untyped-def]
    """Fills ``opened`` and ``clock`` (p, LANES), 0 when called: when each rank's first action starts, its last one ends."""
    duration = np.zeros(LANES)
    for s in range(len(rank)):
        r = np.uint32(rank[s])
        for a in range(2):
            if reads[s, a] >= 0:
                place, row = np.uint32(reads[s, a]), np.uint32(hops[s, a] if len(hop_s) > 1 else 0)
                for lane in range(LANES):
                    clock[r, lane] = max(waiting[place, lane] + hop_s[row, lane], clock[r, lane])
        if opens[s]:
            opened[r] = clock[r]
        first = np.uint32(parts[s, 0])
        for lane in range(LANES):
            duration[lane] = table[first, lane]
        if parts[s, 1] >= 0:
            second = np.uint32(parts[s, 1])
            for lane in range(LANES):
                duration[lane] += table[second, lane]
        if parts[s, 2] >= 0:
            third, fourth = np.uint32(parts[s, 2]), parts[s, 3]
            for lane in range(LANES):
                more = table[third, lane]
                if fourth >= 0:
                    more += table[fourth, lane]
                duration[lane] += more
        for lane in range(LANES):
            clock[r, lane] += duration[lane] * slow[r, lane]
        for a in range(2):
            if writes[s, a] >= 0:
                waiting[np.uint32(writes[s, a])] = clock[r]
