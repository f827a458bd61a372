"""What the processes of test_execute_launch.py do. It stands apart, so that most of them need not import torch."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from pipesim.execute.seat import Seat

LONG_S = 600.0


def square(seat: Seat, given: int) -> tuple[int, int, int]:
    return seat.rank, seat.world, given * given


def threads_allowed(seat: Seat, given: None) -> int:
    import torch

    return torch.get_num_threads()


def many_bytes(seat: Seat, given: bytes) -> bytes:
    return given


def raise_on(seat: Seat, culprit: int) -> None:
    seat.tell("1B2")
    if seat.rank == culprit:
        raise LookupError("no such micro-batch")
    time.sleep(LONG_S)


def exit_on(seat: Seat, culprit: int) -> None:
    seat.tell("1B2")
    if seat.rank == culprit:
        os._exit(3)
    time.sleep(LONG_S)


def leave_on(seat: Seat, culprit: int) -> None:
    if seat.rank == culprit:
        sys.exit(4)
    time.sleep(LONG_S)


def kill_oneself_on(seat: Seat, culprit: int) -> None:
    seat.tell("0W1")
    if seat.rank == culprit:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(LONG_S)


def crash_on(seat: Seat, culprit: int) -> None:
    seat.tell("0I7")
    if seat.rank == culprit:
        ctypes.string_at(0)
    time.sleep(LONG_S)


def hang_on(seat: Seat, culprit: int) -> int:
    """The others wait for a neighbour, since before the culprit hangs."""
    if seat.rank == culprit:
        time.sleep(0.2)
        seat.tell("2F0")
        time.sleep(LONG_S)
    if seat.rank == (culprit + 1) % seat.world:
        return 0
    seat.tell("3RECV_F0", waits_for=culprit)
    time.sleep(LONG_S)
    return 0


def wait_in_a_circle(seat: Seat, given: None) -> None:
    seat.tell(f"{seat.rank}RECV_F0", waits_for=1 - seat.rank)
    time.sleep(LONG_S)


def tell_often(seat: Seat, for_s: float) -> str:
    ends_s = time.monotonic() + for_s
    while time.monotonic() < ends_s:
        seat.tell("0F0")
        time.sleep(0.05)
    return "done"


def start_a_sleeper(seat: Seat, file: str) -> None:
    """A process of one's own, which must not stay behind."""
    import subprocess

    sleeper = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_S})"])
    Path(file).write_text(str(sleeper.pid))
    raise_on(seat, 1 - seat.rank)


def give_what_cannot_travel(seat: Seat, given: None) -> object:
    return lambda: None


def sum_over_ranks(seat: Seat, given: int) -> tuple[float, list[str]]:
    """The sum by an all-reduce, and the addresses this process listens on meanwhile."""
    import torch
    from torch import distributed

    from pipesim.execute.launch import join

    with join(seat):
        total = torch.tensor(float(given))
        distributed.all_reduce(total)
        return total.item(), listening(os.getpid())


def fail_while_others_reduce(seat: Seat, way: str) -> None:
    """Rank 1 fails in its third round, while the others stand in a collective that needs it."""
    import torch
    from torch import distributed

    from pipesim.execute.launch import join

    with join(seat):
        for k in range(5):
            seat.tell(f"round {k}")
            if seat.rank == 1 and k == 2:
                if way == "raises":
                    raise LookupError("no such micro-batch")
                if way == "dies":
                    os._exit(3)
                os.kill(os.getpid(), signal.SIGKILL)
            distributed.all_reduce(torch.zeros(4))


def sleep_and_say_so(seat: Seat, folder: str) -> None:
    (Path(folder) / str(seat.rank)).write_text(str(os.getpid()))
    time.sleep(LONG_S)


def listening(pid: int) -> list[str]:
    """The local addresses on which a process listens, in hexadecimal as the kernel writes them."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(fd.readlink()).removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:
            continue
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]


if __name__ == "__main__":
    from launch_work import sleep_and_say_so as work

    from pipesim.execute.launch import run_processes

    run_processes(work, [sys.argv[1]] * 2, timeout_s=LONG_S)
