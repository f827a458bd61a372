"""The inside of a worker process: take the work, do it, send back the result or the traceback.

It ends when the launcher's end of the pipe closes, so no worker outlives its launcher, whatever ended that one.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from mmap import mmap
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

from pipesim.execute.seat import SLOT_BYTES, Seat, teller


class Returned(NamedTuple):
    """What the work returned."""

    result: Any


class Raised(NamedTuple):
    """The work raised an exception, at ``at_s`` on the monotonic clock."""

    at_s: float
    kind: str
    trace: str


def main(pipe_fd: int, notes_fd: int, rank: int, world: int, host: str, port: int) -> None:
    """Runs the work that comes through the pipe. ``notes_fd`` begins with the slot; tracebacks of crashes follow."""
    for fd in (pipe_fd, notes_fd):
        os.set_inheritable(fd, False)
    faulthandler.enable(notes_fd)
    faulthandler.register(signal.SIGUSR1, notes_fd)
    pipe = Connection(pipe_fd)
    work = pipe.recv_bytes()
    threading.Thread(target=_end_with_the_launcher, args=(pipe,), daemon=True).start()
    tell = teller(mmap(notes_fd, SLOT_BYTES))
    seat = Seat(rank=rank, world=world, store_address=(host, port), tell=tell)
    try:
        report = pickle.dumps(_do(work, seat))
    except BaseException as error:
        raised = Raised(time.monotonic(), type(error).__name__, traceback.format_exc())
        _leave(pipe, pickle.dumps(raised))
    pipe.send_bytes(report)


def _do(work: bytes, seat: Seat) -> Returned:
    function, given = pickle.loads(work)
    seat.tell("its work")
    return Returned(function(seat, given))


def _leave(pipe: Connection, report: bytes) -> NoReturn:
    """Sends the report and ends at once: groups and threads of a failed run may hang when they are taken down."""
    pipe.send_bytes(report)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _end_with_the_launcher(pipe: Connection) -> None:
    pipe.poll(None)
    os._exit(1)
