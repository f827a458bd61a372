"""One clock for all processes: how far each one's monotonic clock is behind that of process 0."""

from __future__ import annotations

import time

import torch

from pipesim.execute.groups import Shape, Wire

ROUNDS = 8


def offset_s(wire: Wire, number: int, world: int, tag: int, device: torch.device) -> float:
    """Seconds to add to this process's clock to read that of process 0, from the fastest of some round trips.

    Exactly 0 where the trip cannot tell it from 0, as on one machine, whose processes share the clock. Collective.
    Source: Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989.
    """
    if number:
        return _ask(wire, tag, device)
    for other in range(1, world):
        for _ in range(ROUNDS):
            wire.receive(_SHAPE, other, tag).wait()
            wire.send(torch.tensor([time.monotonic()], dtype=torch.float64, device=device), other, tag).wait()
    return 0.0


def between(asked_s: float, told_s: float, answered_s: float) -> float:
    """The offset if the clock of process 0 read ``told_s`` half way between asking and the answer; 0 if it may be 0."""
    offset = told_s - (asked_s + answered_s) / 2
    return 0.0 if abs(offset) <= (answered_s - asked_s) / 2 else offset


_SHAPE = Shape((1,), torch.float64)


def _ask(wire: Wire, tag: int, device: torch.device) -> float:
    trips = []
    for _ in range(ROUNDS):
        asked_s = time.monotonic()
        wire.send(torch.zeros(1, dtype=torch.float64, device=device), 0, tag)
        told_s = float(wire.receive(_SHAPE, 0, tag).wait())
        answered_s = time.monotonic()
        trips.append((answered_s - asked_s, between(asked_s, told_s, answered_s)))
    return min(trips)[1]
