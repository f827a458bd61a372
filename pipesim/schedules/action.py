"""The language of schedules: actions such as ``2F0`` (stage 2, forward, micro-batch 0), and one ordered list per rank.

The letters and the text form are those of ``torch.distributed.pipelining``; zero-bubble papers call I "B".
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class Op(enum.IntEnum):
    """What an action computes: forward, full backward, or its input-gradient and weight-gradient parts."""

    F = 0
    B = 1
    I = 2  # noqa: E741 - torch's letter
    W = 3


class Action(NamedTuple):
    """One cell of a schedule. Prints and parses as ``2F0``."""

    stage: int
    op: Op
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op.name}{self.micro_batch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Reads ``2F0``; raises ``ValueError`` for anything else.

        >>> Action.parse("12W3")
        Action(stage=12, op=<Op.W: 3>, micro_batch=3)
        """
        match = _ACTION.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is no action; one reads like 2F0: stage, one of F B I W, micro-batch.")
        return cls(int(match[1]), Op[match[2]], int(match[3]))


_ACTION = re.compile(r"(\d{1,9})([FBIW])(\d{1,9})")
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """One ordered list of actions per rank, as flat arrays: rank r owns ``rank_start[r]:rank_start[r + 1]``.

    ``joined[i]`` says that action i runs overlapped with action i + 1 (a pair, in one slot). A stage lives on whichever
    ranks list it, so bidirectional pipelines and virtual stages need nothing of their own. Costs 10 bytes an action.
    With ``segments`` > 1 a micro-batch here is one segment of a sequence: number ``segments * sequence + segment``.
    """

    name: str
    p: int
    m: int
    stages: int
    rank_start: IntArray
    stage: NDArray[np.int32]
    op: NDArray[np.int8]
    micro_batch: NDArray[np.int32]
    joined: NDArray[np.bool_]
    segments: int = 1

    def __len__(self) -> int:
        return len(self.stage)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        arrays = ("rank_start", "stage", "op", "micro_batch", "joined")
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays)

    __hash__ = object.__hash__

    def action(self, i: int) -> Action:
        return Action(int(self.stage[i]), Op(int(self.op[i])), int(self.micro_batch[i]))

    def rank_of(self) -> IntArray:
        """The rank of every action, shape (actions,)."""
        return np.repeat(np.arange(self.p), np.diff(self.rank_start))

    def cells(self, rank: int) -> Iterator[str]:
        """The rank's actions as text, an overlapped pair as torch prints it: ``(0F4;1B0)OVERLAP_F_B``."""
        i, stop = int(self.rank_start[rank]), int(self.rank_start[rank + 1])
        while i < stop:
            if self.joined[i]:
                yield f"({self.action(i)};{self.action(i + 1)})OVERLAP_F_B"
                i += 1
            else:
                yield str(self.action(i))
            i += 1

    def __str__(self) -> str:
        return "\n".join(f"rank {rank} | {' '.join(self.cells(rank))}" for rank in range(self.p))

    def to_csv(self) -> str:
        """PyTorch's compute-only format: a line per rank, cells separated by commas."""
        return "".join(",".join(self.cells(rank)) + "\n" for rank in range(self.p))


def by_slot(
    name: str, m: int, rank: IntArray, slot: IntArray, stage: IntArray, op: IntArray, micro_batch: IntArray
) -> Schedule:
    """A schedule from the time slot of every action (arrays of one shape); each rank runs its actions in slot order."""
    p, width = int(rank.max()) + 1, int(slot.max()) + 1
    grid = np.full(p * width, -1)
    grid[(rank * width + slot).ravel()] = np.arange(rank.size)
    order = grid[grid >= 0]
    assert len(order) == rank.size, "two actions in one slot"
    return Schedule(
        name=name,
        p=p,
        m=m,
        stages=int(stage.max()) + 1,
        rank_start=np.cumsum([0, *np.bincount(rank.ravel(), minlength=p)]),
        stage=stage.ravel()[order].astype(np.int32),
        op=op.ravel()[order].astype(np.int8),
        micro_batch=micro_batch.ravel()[order].astype(np.int32),
        joined=np.zeros(rank.size, np.bool_),
    )


def make(name: str, m: int, rows: Sequence[IntArray]) -> Schedule:
    """A schedule from each rank's rows (stage, op, micro-batch, joined)."""
    table = np.concatenate(rows)
    return Schedule(
        name=name,
        p=len(rows),
        m=m,
        stages=int(table[:, 0].max(initial=-1)) + 1,
        rank_start=np.cumsum([0, *map(len, rows)]),
        stage=table[:, 0].astype(np.int32),
        op=table[:, 1].astype(np.int8),
        micro_batch=table[:, 2].astype(np.int32),
        joined=table[:, 3].astype(np.bool_),
    )


def parse(text: str, name: str = "custom") -> Schedule:
    """Reads PyTorch's compute-only CSV: a line per rank, empty cells are fillers. Inverse of ``Schedule.to_csv``.

    Raises ``ValueError`` naming the line and the cell that cannot be read. Legality is checked by ``rules.validate``.
    """
    ranks = []
    for number, line in enumerate(text.splitlines(), start=1):
        rows: list[tuple[int, int, int, int]] = []
        for cell in filter(None, (cell.strip() for cell in line.split(","))):
            pair = _PAIR.fullmatch(cell)
            try:
                actions = [Action.parse(part) for part in (pair.groups() if pair else (cell,))]
            except ValueError as error:
                raise ValueError(f"line {number} (rank {number - 1}): {error}") from None
            rows += [(a.stage, int(a.op), a.micro_batch, int(len(actions) == 2 and a is actions[0])) for a in actions]
        ranks.append(np.array(rows, np.int64).reshape(-1, 4))
    if not any(len(rows) for rows in ranks):
        raise ValueError("the schedule has no actions.")
    m = 1 + max(int(rows[:, 2].max(initial=-1)) for rows in ranks)
    return make(name, m, ranks)
