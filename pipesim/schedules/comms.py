"""Schedules with their communication written out, as PyTorch's pipeline runtime takes them (format ``compute_comms``).

Between the computing of a schedule stand ``0SEND_F3``/``1RECV_F3`` (an activation) and ``1SEND_B3``/``0RECV_B3`` (its
gradient), ``0UNSHARD``/``0RESHARD`` (a stage's sharded parameters are gathered and freed) and ``0REDUCE_GRAD``. The
lowering is that of ``torch.distributed.pipelining`` 2.13, action for action (see ``transfers``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipesim import inputs
from pipesim.schedules import action, rules
from pipesim.schedules.action import Op, Schedule
from pipesim.schedules.transfers import Receive, Send, slots, weave

MAX_ACTIVE_STAGES = 3
"""Stages of a rank whose parameters are gathered at a time: for F, for B, and one fetched ahead (PyTorch's)."""

_COMM = re.compile(r"(\d{1,9})(?:(UNSHARD|RESHARD|REDUCE_GRAD)|(SEND_F|RECV_F|SEND_B|RECV_B)(\d{1,9}))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """The cells of each rank in order: computing as in a schedule, communication as above."""

    name: str
    ranks: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return "\n".join(f"rank {rank} | {' '.join(cells)}" for rank, cells in enumerate(self.ranks))

    def to_csv(self) -> str:
        """A line per rank, cells separated by commas."""
        return "".join(",".join(cells) + "\n" for cells in self.ranks)

    def transfers(self) -> int:
        """How many sends and receives there are."""
        return sum(map(_is_transfer, (cell for cells in self.ranks for cell in cells)))

    def computing(self) -> Schedule:
        """The schedule without its communication."""
        lines = (",".join(cell for cell in cells if not _COMM.fullmatch(cell)) for cells in self.ranks)
        return action.parse("\n".join(lines), self.name)


def lower(schedule: Schedule) -> Lowered:
    """Writes out the communication of a legal schedule. ``ValueError`` if a stage is on two ranks or ranks deadlock.

    >>> from pipesim.schedules.one_f_one_b import one_f_one_b
    >>> print(lower(one_f_one_b(p=2, m=1)))
    rank 0 | 0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD 0RESHARD
    rank 1 | 1UNSHARD 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD 1RESHARD
    """
    _check_stages_have_one_rank(schedule)
    woven = weave(schedule, [list(_with_parameters(schedule, rank)) for rank in range(schedule.p)])
    cells = ((step if isinstance(step, str) else _cell(schedule, step) for step in steps) for steps in woven)
    return Lowered(name=schedule.name, ranks=tuple(map(tuple, cells)))


def read_comms(path_or_text: str | Path) -> Lowered:
    """Reads PyTorch's ``compute_comms`` CSV and checks it; ``ValueError`` names the bad line, step or transfer."""
    lowered = parse(path_or_text)
    check(lowered)
    return lowered


def parse(path_or_text: str | Path) -> Lowered:
    """The cells of a CSV file, or of the text itself, unchecked; empty cells are fillers."""
    is_text = isinstance(path_or_text, str) and ("," in path_or_text or "\n" in path_or_text)
    text = str(path_or_text) if is_text else inputs.read_text(path_or_text)
    ranks = tuple(tuple(filter(None, (cell.strip() for cell in line.split(",")))) for line in text.splitlines())
    return Lowered(name="custom" if is_text else Path(path_or_text).stem, ranks=ranks)


def check(lowered: Lowered) -> None:
    """Raises ``ValueError`` unless the computing is legal and every result that travels is sent and received once.

    It is sent after it is computed and received before it is needed.
    """
    schedule = lowered.computing()
    rules.validate(schedule)
    _check_stages_have_one_rank(schedule)
    step = [{cell: k for k, cell in enumerate(cells)} for cells in lowered.ranks]
    for rank, cells in enumerate(lowered.ranks):
        for cell, times in Counter(cell for cell in cells if _is_transfer(cell)).items():
            if times > 1:
                raise ValueError(f"{cell} of rank {rank} runs {times} times; each result travels once.")
    rank_of, remote = schedule.rank_of(), rules.dependencies(schedule).remote
    slot = _slots(lowered, schedule)
    wanted = 0
    for i in np.flatnonzero((remote >= 0) & (rank_of != rank_of[remote])).tolist():
        source = int(remote[i])
        send, receive = _cell(schedule, Send(source, i)), _cell(schedule, Receive(source, i))
        for cell, at, wrong, sign in ((send, source, "comes before", 1), (receive, i, "comes after", -1)):
            rank = int(rank_of[at])
            if cell not in step[rank]:
                raise ValueError(f"{cell} of rank {rank} is missing: {schedule.action(i)} needs what travels.")
            if sign * (step[rank][cell] - slot[at]) < 0:
                raise ValueError(f"{cell} of rank {rank} {wrong} {schedule.action(at)}.")
        wanted += 2
    if lowered.transfers() != wanted:
        raise ValueError(
            f"{lowered.transfers()} sends and receives where {wanted} are needed: some bring what nobody waits for."
        )


def _check_stages_have_one_rank(schedule: Schedule) -> None:
    ranks = np.unique(np.stack([schedule.stage, schedule.rank_of()]), axis=1)
    stage, count = np.unique(ranks[0], return_counts=True)
    for shared in stage[count > 1]:
        raise ValueError(
            f"{schedule.name}: stage {shared} is on ranks {', '.join(map(str, ranks[1][ranks[0] == shared]))}; "
            "PyTorch's runtime keeps each stage on one rank. Nearest: dualpipev instead of dualpipe."
        )


def _with_parameters(schedule: Schedule, rank: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The rank's cells with UNSHARD, RESHARD and REDUCE_GRAD put in, and the actions in each."""
    own = [slot.actions for slot in slots(schedule, rank)]
    stages = [tuple(int(schedule.stage[i]) for i in actions) for actions in own]
    active: set[int] = set()
    left = Counter({stage: schedule.m for slot in stages for stage in slot})
    for text, actions, following in zip(schedule.cells(rank), own, _next_stages(stages), strict=True):
        for stage in sorted(active.difference(following)):
            yield f"{stage}RESHARD", ()
        for stage in following:
            if stage not in active:
                yield f"{stage}UNSHARD", ()
        active = set(following)
        yield text, actions
        for i in actions:
            if schedule.op[i] in (Op.B, Op.W):
                stage = int(schedule.stage[i])
                left[stage] -= 1
                if not left[stage]:
                    yield f"{stage}REDUCE_GRAD", ()
    for stage in sorted(active):
        yield f"{stage}RESHARD", ()


def _next_stages(stages: list[tuple[int, ...]]) -> list[list[int]]:
    """For each slot the stages that run next, nearest first, this slot's own included."""
    found, nearest = [], list[int]()
    for own in reversed(stages):
        nearest = [*dict.fromkeys((*own, *nearest))]
        found.append(nearest[:MAX_ACTIVE_STAGES])
    return found[::-1]


def _cell(schedule: Schedule, transfer: Send | Receive) -> str:
    """Reads like ``0SEND_F3``, with the sender's stage, or ``1RECV_F3``, with the reader's."""
    letter = "F" if schedule.op[transfer.source] == Op.F else "B"
    number = schedule.micro_batch[transfer.source]
    if isinstance(transfer, Send):
        return f"{schedule.stage[transfer.source]}SEND_{letter}{number}"
    return f"{schedule.stage[transfer.target]}RECV_{letter}{number}"


def _is_transfer(cell: str) -> bool:
    match = _COMM.fullmatch(cell)
    return match is not None and match[3] is not None


def _slots(lowered: Lowered, schedule: Schedule) -> list[int]:
    """In which step of its rank each action stands, communication counted."""
    found: list[int] = []
    for cells in lowered.ranks:
        for k, cell in enumerate(cells):
            if not _COMM.fullmatch(cell):
                found += [k, k] if cell.startswith("(") else [k]
    assert len(found) == len(schedule)
    return found
