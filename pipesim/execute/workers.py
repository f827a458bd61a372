"""The worker processes as the launcher sees them: started, heard, ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from pipesim.execute.child import Raised, Returned
from pipesim.execute.failures import Failure, ending
from pipesim.execute.seat import SLOT_BYTES, STARTING, heard, teller

REAP_S = 1.0
"""How long a process has to end after its pipe closed, and to write down its stack when it is asked for it."""

_CHILD = "import sys; from pipesim.execute.child import main; a = sys.argv; main(*map(int, a[1:5]), a[5], int(a[6]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One process. ``notes_fd`` is an anonymous file: the slot, then what faulthandler writes."""

    rank: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    notes_fd: int
    slot: mmap


def start(rank: int, world: int, address: tuple[str, int], threads: int) -> Worker:
    """A new process with its own group of processes, so that Ctrl-C reaches the launcher alone."""
    ours, theirs = Pipe()
    with theirs, tempfile.TemporaryFile(buffering=0) as notes:
        notes.truncate(SLOT_BYTES)
        notes.seek(SLOT_BYTES)
        slot = mmap(notes.fileno(), SLOT_BYTES)
        teller(slot)(STARTING)
        fds = (theirs.fileno(), notes.fileno())
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, *map(str, (*fds, rank, world, *address))],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            process_group=0,
            env=os.environ | {"PYTHONPATH": _path(), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)},
        )
        return Worker(rank=rank, process=process, pipe=ours, notes_fd=os.dup(notes.fileno()), slot=slot)


def receive(worker: Worker) -> Returned | Failure:
    """The report that is ready in the pipe, or how the process ended without one."""
    try:
        report = pickle.loads(worker.pipe.recv_bytes())
    except (EOFError, ConnectionResetError):
        code, at_s = _exit_code(worker), time.monotonic()
        return Failure(rank=worker.rank, what=ending(code), doing=heard(worker.slot), at_s=at_s, trace=_notes(worker))
    if isinstance(report, Raised):
        what = f"raised {report.kind}"
        return Failure(rank=worker.rank, what=what, doing=heard(worker.slot), at_s=report.at_s, trace=report.trace)
    assert isinstance(report, Returned)
    return report


def stack(worker: Worker) -> str:
    """Where a hanging process stands: the stack of each of its threads. Empty if it does not answer."""
    worker.process.send_signal(signal.SIGUSR1)
    deadline_s = time.monotonic() + REAP_S
    before, notes = "", _notes(worker)
    while time.monotonic() < deadline_s and (not notes or notes != before):
        time.sleep(REAP_S / 20)
        before, notes = notes, _notes(worker)
    return notes


def let_end(team: Sequence[Worker], patience_s: float) -> None:
    """Waits until all processes have ended by themselves, at most so long."""
    deadline_s = time.monotonic() + patience_s
    for worker in team:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(max(0.0, deadline_s - time.monotonic()))


def end(worker: Worker) -> None:
    """Ends the process, if it lives, and what it started; there is nothing in it that must be put away."""
    if worker.process.poll() is None:
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    worker.pipe.close()
    worker.slot.close()
    os.close(worker.notes_fd)


def _exit_code(worker: Worker) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return worker.process.wait(REAP_S)
    return None


def _notes(worker: Worker) -> str:
    size = os.fstat(worker.notes_fd).st_size - SLOT_BYTES
    return os.pread(worker.notes_fd, size, SLOT_BYTES).decode(errors="replace")


def _path() -> str:
    """Modules are found in the workers where they are found here."""
    return os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
