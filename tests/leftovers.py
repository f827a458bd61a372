"""What this process holds: its child processes, ports, files and shared memory, from /proc and /dev/shm."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch_work import listening


def children(pid: int) -> set[int]:
    """The processes whose parent is ``pid``, from /proc; those that ended but were not waited for too."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.add(int(status.parent.name))
    return found


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def becomes(condition: Callable[[], bool], within_s: float = 10.0) -> bool:
    ends_s = time.monotonic() + within_s
    while not condition() and time.monotonic() < ends_s:
        time.sleep(0.05)
    return condition()


def belongings() -> dict[str, Any]:
    return {
        "processes": children(os.getpid()),
        "ports": listening(os.getpid()),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "shared memory": sorted(
            path.name for path in Path("/dev/shm").iterdir() if path.owner() == Path.home().owner()
        ),
    }
