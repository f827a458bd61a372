"""A schedule of your own, read from a file in PyTorch's CSV: a line per rank, stages placed by the rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from pipesim.schedules import comms, rules
from pipesim.schedules.action import IntArray, Op, Schedule


def custom(p: int, m: int, v: int = 1, *, path: str = "") -> Schedule:
    """What the file says; ``p``, ``m`` and ``v`` must be the file's own (``broken_rules``)."""
    return _read(path)


def broken_rules(p: int, m: int, v: int, *, path: str = "") -> Iterator[str]:
    if not path:
        yield "schedule.path is missing: schedule.name=custom needs the CSV file to read."
        return
    try:
        schedule = _read(path)
    except (OSError, ValueError) as error:
        yield f"schedule.path={path} cannot be used: {getattr(error, 'strerror', None) or error}"
        return
    if schedule.p != p:
        yield f"parallel.p={p}, but schedule.path={path} has {schedule.p} ranks. Nearest: p={schedule.p}."
    if schedule.m != m:
        yield f"num_microbatches={m}, but schedule.path={path} has {schedule.m}. Nearest: num_microbatches={schedule.m}."
    if schedule.p == p and schedule.stages != p * v:
        nearest = f"v={schedule.stages // p}" if schedule.stages % p == 0 else "a file with a multiple of p stages"
        yield f"parallel.v={v} makes {p * v} stages, but schedule.path={path} has {schedule.stages}. Nearest: {nearest}."


def peak_inflight(p: int, m: int, v: int, *, path: str = "") -> IntArray:
    """Counted, for a file has no law: a forward stores an activation, a whole backward or a W frees it."""
    schedule = _read(path)
    change = np.zeros(len(Op), np.int64)
    change[[Op.F, Op.B, Op.W]] = 1, -1, -1
    ends = zip(schedule.rank_start[:-1], schedule.rank_start[1:], strict=True)
    return np.array([np.cumsum(change[schedule.op[start:stop]]).max(initial=0) for start, stop in ends])


def ranks_of_stages(path: str) -> list[int]:
    """The rank of each stage; of one that two ranks hold, the first."""
    schedule = _read(path)
    _, first = np.unique(schedule.stage, return_index=True)
    return [int(rank) for rank in schedule.rank_of()[first]]


def read_schedule(path_or_text: str | Path) -> Schedule:
    """Reads PyTorch's CSV from a file, or from the text itself, and validates it: a line per rank, stages by the rows.

    Communication (``compute_comms``) is checked too and left out. Raises ``FileNotFoundError`` for a missing file and
    ``ValueError`` with the bad line, cell or step.
    """
    lowered = comms.parse(path_or_text)
    if lowered.transfers():
        comms.check(lowered)
    schedule = lowered.computing()
    rules.validate(schedule)
    return schedule


def _read(path: str) -> Schedule:
    """The file as it is now; read once while it stays the same."""
    state = Path(path).stat()
    return _read_once(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _read_once(path: str, mtime_ns: int, size: int) -> Schedule:
    return read_schedule(Path(path))
