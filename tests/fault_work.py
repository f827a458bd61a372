"""What goes wrong in the ranks of test_execute_faults.py: one rank raises, dies or hangs in one action."""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from torch import Tensor

from pipesim.execute import actions, distributed
from pipesim.execute.actions import Bench
from pipesim.execute.launch import Seat
from pipesim.execute.rank import Outcome, Task
from pipesim.schedules.action import Action

LONG_S = 600.0

run_as_written = actions.run


class Fault(NamedTuple):
    """``action`` is what the rank was told to do, of whichever stage has it."""

    action: str
    way: str

    def strike(self) -> None:
        if self.way == "raises":
            raise FloatingPointError("a gradient is not a number")
        if self.way == "exits":
            os._exit(3)
        if self.way == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(LONG_S)


def work(fault: Fault, seat: Seat, task: Task) -> Outcome:
    """A rank's whole life, with the fault."""
    actions.run = faulty(fault)
    return distributed.work(seat, task)


def faulty(fault: Fault):
    """``actions.run`` with the fault."""

    def run(action: Action, given: Tensor | None, bench: Bench) -> Tensor | None:
        if str(action) == fault.action:
            fault.strike()
        return run_as_written(action, given, bench)

    return run
