"""Runs one function in several processes of this machine and brings back every result, or names the rank that failed.

Nothing outlives the call: workers end when their launcher does, however it ends; all listen on the loopback interface
alone; what is shared has no name in the file system.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any, TypeVar

import torch
from torch import distributed

from pipesim.execute import workers
from pipesim.execute.failures import Failure, RankFailed, culprit, error, lost_a_peer, silent_rank
from pipesim.execute.seat import STARTING, Seat, heard
from pipesim.execute.workers import Worker

__all__ = ["RankFailed", "Seat", "join", "run_processes"]

Given = TypeVar("Given")
Result = TypeVar("Result")

LOOK_S = 0.05
"""How often the launcher looks for silent ranks."""
GRACE_S = 1.0
"""How long it waits for the culprit's report when a rank lost a peer."""
EXIT_S = 5.0
"""How long processes that gave their result have to end by themselves."""
FOREVER = timedelta(days=1)
"""The launcher decides when a rank hangs, not the process group."""


def run_processes(
    work: Callable[[Seat, Given], Result],
    given: Sequence[Given],
    *,
    timeout_s: float,
    silence_s: float | None = None,
    threads: int = 1,
) -> list[Result]:
    """``work(seat, given[rank])`` in a new process for each rank; the results in rank order.

    ``work`` must be importable by its module and name; each process computes with ``threads`` threads. A rank that
    raises, dies or hangs ends all of them and raises ``RankFailed``, as does a run longer than ``timeout_s``, or one in
    which no unfinished rank told anything for ``silence_s``. Another exception here, Ctrl-C too, ends them as well.
    """
    if work.__module__ == "__main__":
        raise ValueError(f"{work.__qualname__} is of the script being run; work must stand in a module to import.")
    loads = [pickle.dumps((work, each)) for each in given]
    started_s = time.monotonic()
    with _store() as address, ExitStack() as ended:
        team: list[Worker] = []
        for rank in range(len(given)):
            team.append(workers.start(rank, len(given), address, threads))
            ended.callback(workers.end, team[-1])
        for worker, load in zip(team, loads, strict=True):
            with contextlib.suppress(BrokenPipeError):  # it died already, which its pipe will tell
                worker.pipe.send_bytes(load)
        results = _collect(team, started_s, timeout_s, silence_s)
        workers.let_end(team, EXIT_S)
    return results


@contextmanager
def join(seat: Seat, backend: str = "gloo") -> Iterator[None]:
    """The process group of all ranks. It is taken down when all have left; a rank that raises leaves with its process.

    With nccl the rank's device must be set (``torch.cuda.set_device``).
    """
    loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = loopback
    host, port = seat.store_address
    distributed.init_process_group(
        backend,
        store=distributed.TCPStore(host, port, is_master=False, timeout=FOREVER),  # type: ignore[attr-defined]
        rank=seat.rank,
        world_size=seat.world,
        timeout=FOREVER,
        device_id=torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else None,
    )
    yield
    distributed.barrier()
    distributed.destroy_process_group()


@contextmanager
def _store() -> Iterator[tuple[str, int]]:
    """A key-value store in this process for the ranks to find each other: its address, on a port that is free."""
    listening = socket.create_server(("127.0.0.1", 0))
    host, port = listening.getsockname()
    store = distributed.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )
    yield host, port
    del store


def _collect(team: Sequence[Worker], started_s: float, timeout_s: float, silence_s: float | None) -> list[Any]:
    """The results in rank order. Raises ``RankFailed``: at once if a rank failed of itself, else after ``GRACE_S``."""
    results: dict[int, Any] = {}
    failures: list[Failure] = []
    left = {worker.pipe: worker for worker in team}
    while left and all(map(lost_a_peer, failures)):
        for pipe in wait(list(left), LOOK_S):
            worker = left.pop(pipe)  # type: ignore[call-overload]
            told = workers.receive(worker)
            if isinstance(told, Failure):
                failures.append(told)
            else:
                results[worker.rank] = told.result
        if failures and time.monotonic() > failures[0].at_s + GRACE_S:
            break
        if left and not failures and (rule := _silence(left.values(), started_s, timeout_s, silence_s)):
            failures.append(_hung({worker.rank: worker for worker in left.values()}, rule))
    if failures:
        raise error(culprit(failures), {worker.rank: heard(worker.slot) for worker in left.values()}, len(team))
    return [results[rank] for rank in range(len(team))]


def _silence(left: Iterable[Worker], started_s: float, timeout_s: float, silence_s: float | None) -> str:
    """The limit that is over, or nothing. Importing torch takes its time, so a rank at its start is not silent."""
    now_s = time.monotonic()
    if now_s > started_s + timeout_s:
        return f"timeout_s={timeout_s:g} is over"
    doings = [heard(worker.slot) for worker in left]
    if silence_s is not None and all(d.text != STARTING and now_s > d.since_s + silence_s for d in doings):
        return f"no rank told anything for silence_s={silence_s:g}"
    return ""


def _hung(left: dict[int, Worker], rule: str) -> Failure:
    rank = silent_rank({rank: heard(worker.slot) for rank, worker in left.items()})
    doing, now_s = heard(left[rank].slot), time.monotonic()
    what = f"hangs, silent for {now_s - doing.since_s:.1f} s ({rule}),"
    return Failure(rank=rank, what=what, doing=doing, at_s=now_s, trace=workers.stack(left[rank]))
