"""Measures messages between two real processes: an all-reduce, and a message there and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor, distributed

from pipesim.execute.launch import Seat, join, run_processes
from pipesim.execute.profile import wait

SHORT_BYTES = 1 << 20
"""Shorter messages are sent ``SHORT_CALLS`` times in a row and counted together. Both ranks must agree, so size decides."""
SHORT_CALLS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Seconds of an all-reduce of two ranks that hold ``message_bytes`` each, and of a message one way."""

    message_bytes: int
    all_reduce_s: float
    send_s: float


class Asked(NamedTuple):
    """What each process is to measure."""

    kind: str
    sizes: tuple[int, ...]
    repeats: int


def messages(kind: str, sizes: Sequence[int], *, repeats: int, threads: int, timeout_s: float) -> tuple[Message, ...]:
    """Of float32 (4 bytes; sizes are rounded down, to one at least), medians. Gloo on a CPU, NCCL between two GPUs.

    Raises ``RankFailed`` as ``launch.run_processes``.
    """
    asked = Asked(kind, tuple(sizes), repeats)
    return run_processes(work, [asked, asked], timeout_s=timeout_s, threads=threads)[0]


def work(seat: Seat, asked: Asked) -> tuple[Message, ...]:
    """The whole life of one process."""
    if asked.kind == "cuda":
        torch.cuda.set_device(seat.rank)
    with join(seat, "nccl" if asked.kind == "cuda" else "gloo"):
        return tuple(_message(size, asked, seat) for size in asked.sizes)


def _message(size: int, asked: Asked, seat: Seat) -> Message:
    held = torch.zeros(max(1, size // 4), device=asked.kind)
    seat.tell(f"an all-reduce of {size} bytes")
    all_reduce_s = _seconds(lambda: distributed.all_reduce(held), size, asked)
    seat.tell(f"a message of {size} bytes")
    there_and_back_s = _seconds(lambda: _there_and_back(held, seat.rank), size, asked)
    return Message(message_bytes=held.nbytes, all_reduce_s=all_reduce_s, send_s=there_and_back_s / 2)


def _there_and_back(held: Tensor, rank: int) -> None:
    if rank == 0:
        distributed.send(held, 1)
        distributed.recv(held, 1)
    else:
        distributed.recv(held, 0)
        distributed.send(held, 0)


def _seconds(work: Callable[[], object], size: int, asked: Asked) -> float:
    calls = SHORT_CALLS if size < SHORT_BYTES else 1
    taken = []
    for _ in range(1 + asked.repeats):
        distributed.barrier()
        wait(asked.kind)
        start_s = time.perf_counter()
        for _ in range(calls):
            work()
        wait(asked.kind)
        taken.append((time.perf_counter() - start_s) / calls)
    return median(taken[1:])
