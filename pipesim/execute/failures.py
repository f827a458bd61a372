"""Which rank failed first, and what is said about it. A rank that only lost its peer is not the culprit."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipesim.execute.seat import Doing

LOST_A_PEER = ("gloo/transport/", "Connection closed by peer", "Connection reset by peer", "ncclRemoteError")
"""What gloo and NCCL say when the process at the other end is gone."""


class RankFailed(RuntimeError):
    """A rank raised, died or hung. The message has its traceback, where there is one, and the other ranks' doings."""

    def __init__(self, message: str, *, rank: int, doing: str) -> None:
        super().__init__(message)
        self.rank = rank
        self.doing = doing


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One rank's end. ``what`` reads like "raised ValueError"; ``at_s`` is on the monotonic clock."""

    rank: int
    what: str
    doing: Doing
    at_s: float
    trace: str = ""


def lost_a_peer(failure: Failure) -> bool:
    """The rank failed because another did."""
    return failure.what.startswith("raised") and any(sign in failure.trace for sign in LOST_A_PEER)


def culprit(failures: Sequence[Failure]) -> Failure:
    """The first that failed of itself; the first at all if each lost a peer."""
    return min(failures, key=lambda each: (lost_a_peer(each), each.at_s, each.rank))


def silent_rank(unfinished: Mapping[int, Doing]) -> int:
    """Who hangs: of those that wait for nobody the longest silent one; else one of a circle of waiting ranks."""
    acting = {rank: doing for rank, doing in unfinished.items() if doing.waits_for not in unfinished}
    return min(acting or unfinished, key=lambda rank: (unfinished[rank].since_s, rank))


def ending(code: int | None) -> str:
    """How a process ended, from its return code as ``subprocess`` gives it; None: it closed its pipe and lives on."""
    if code is None:
        return "closed its pipe"
    if code >= 0:
        return f"died with exit code {code}"
    return f"died of {signal.Signals(-code).name}"


def error(failure: Failure, unfinished: Mapping[int, Doing], world: int) -> RankFailed:
    """What is raised for the whole run. ``unfinished`` are the ranks that were running when the run was ended."""
    now_s = time.monotonic()
    lines = [f"rank {failure.rank} {failure.what} in {failure.doing.text}."]
    lines += [failure.trace.rstrip()] if failure.trace else []
    for rank in range(world):
        if rank != failure.rank:
            lines.append(f"rank {rank}: {_state(unfinished.get(rank), now_s)}")
    return RankFailed("\n".join(lines), rank=failure.rank, doing=failure.doing.text)


def _state(doing: Doing | None, now_s: float) -> str:
    if doing is None:
        return "had ended"
    waits = "" if doing.waits_for is None else f", waiting for rank {doing.waits_for}"
    return f"in {doing.text}{waits} for {now_s - doing.since_s:.1f} s"
