"""From a schedule and what it costs to the kernel's arrays, and through the kernel once."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import Schedule
from pipesim.schedules.rules import results
from pipesim.simulate import deadlock, kernel
from pipesim.simulate.kernel import Order, Record, State, Times, Wires
from pipesim.simulate.links import Links
from pipesim.simulate.seconds import times_of
from pipesim.simulate.timeline import Deliveries, Timeline


class Setup(NamedTuple):
    """Everything that one iteration needs."""

    schedule: Schedule
    order: Order
    times: Times
    wires: Wires


def prepare(
    schedule: Schedule,
    forward_s: ArrayLike,
    input_grad_s: ArrayLike,
    weight_grad_s: ArrayLike,
    latency_s: float = 0.0,
    *,
    pair_s: ArrayLike | None = None,
    links: Links | None = None,
) -> Setup:
    """Checks every time and every link; raises ``ValueError`` with what is wrong."""
    if links is not None and latency_s != 0:
        raise ValueError(f"latency_s={latency_s} and links are both given; put the latency into links.latency_s.")
    times = times_of(schedule, forward_s, input_grad_s, weight_grad_s, pair_s)
    order = order_of(schedule)
    return Setup(schedule, order, times, wires_of(schedule, order, links or Links(latency_s=latency_s)))


@lru_cache(maxsize=4)
def order_of(schedule: Schedule) -> Order:
    """Kept for the schedules of the last few calls: sweeps and iterations run one many times."""
    plan = np.empty((len(schedule), 2), np.uint32)
    kind = np.multiply(schedule.op, schedule.stages, dtype=np.int32)
    kind += schedule.stage
    kind *= 2
    plan[:, kernel.KIND] = np.add(kind, schedule.joined, out=kind)
    plan[:, kernel.MICRO_BATCH] = schedule.micro_batch
    rows = np.stack([table.ravel() for table in results(schedule.stages)], axis=1)
    return Order(schedule.rank_start, plan, rows)


def wires_of(schedule: Schedule, order: Order, links: Links) -> Wires:
    latency_s, s_per_byte = links.hop_s(schedule.p), links.s_per_byte(schedule.p)
    message_bytes = links.result_bytes(schedule.stages)
    transfers = links.rendezvous or links.blocking_sends or bool(s_per_byte.any() and message_bytes.any())
    reader = np.full((2 * schedule.stages, schedule.m) if transfers else (1, 1), -1, np.int32)
    if transfers:
        kernel.find_readers(order, reader)
    hops = transfers or bool(latency_s.any())
    return Wires(latency_s, s_per_byte, message_bytes, reader, hops, transfers, links.rendezvous, links.blocking_sends)


def fresh_state(setup: Setup) -> State:
    p = setup.schedule.p
    return State(np.zeros(p), np.zeros((p, p) if setup.wires.transfers else (1, 1)))


def fresh_record(setup: Setup) -> Record:
    schedule, wires = setup.schedule, setup.wires
    results_shape = (2 * schedule.stages, schedule.m)
    return Record(
        np.empty((len(schedule), 2)),
        np.full(results_shape, np.nan),
        np.empty(results_shape if wires.transfers else (1, 1)),
        np.empty(results_shape if wires.hops else (1, 1), np.int32),
    )


def run(setup: Setup, state: State) -> Timeline:
    """One iteration from ``state`` on, which is advanced. Raises ``Deadlock`` with the cycle of waiting actions."""
    schedule, record = setup.schedule, fresh_record(setup)
    work = np.empty((3, schedule.p), np.int64)
    wires, pair_s = setup.wires, setup.times.pair_s if schedule.joined.any() else None
    latency_s, transfers = wires.latency_s if wires.hops else None, wires if wires.transfers else None
    seconds = setup.times.seconds if setup.times.seconds.shape[1] > 1 else setup.times.seconds.ravel()
    if kernel.run(setup.order, seconds, pair_s, latency_s, transfers, state, record, work) < schedule.p:
        raise deadlock.Deadlock(deadlock.describe(schedule, head=work[0], unsent=work[1]))
    deliveries = Deliveries(record.left_s, record.sent_s, wires) if wires.hops else None
    start_s, end_s = record.span_s.T
    return Timeline(schedule=schedule, start_s=start_s, end_s=end_s, deliveries=deliveries)
