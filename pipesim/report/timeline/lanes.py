"""Where a schedule's actions belong in a picture: which of its rank's stages each is of, and which way it runs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.schedules.action import IntArray, Schedule

BACK = "‹"
"""Stands by micro-batches that do not take the way of micro-batch 0."""


class Lanes(NamedTuple):
    """``chunk`` counts a rank's stages in the order in which the action's micro-batch passes them. Shape (actions,)."""

    chunk: IntArray
    chunks: int  # the most on one rank
    back: NDArray[np.bool_]  # the micro-batch takes another way through the ranks than micro-batch 0
    enters_at: IntArray  # the rank where the micro-batch begins
    back_micro_batches: str  # "4–7", or "" where all take one way

    @property
    def shades(self) -> int:
        return self.chunks * (2 if self.back_micro_batches else 1)

    @property
    def shade(self) -> IntArray:
        """Tells chunks and ways apart; 0 is the first chunk of the first way."""
        return self.chunk + self.chunks * self.back

    @property
    def back_ranks(self) -> str:
        """Where the micro-batches that go another way begin: "3"."""
        return _ranges(np.unique(self.enters_at[self.back]).tolist())

    def letters(self) -> list[str]:
        """For each action a capital for its chunk, "A" the first, or "" where no rank has several."""
        names = [capital(chunk) if self.chunks > 1 else "" for chunk in range(self.chunks)]
        return [names[chunk] for chunk in self.chunk.tolist()]

    def marks(self) -> list[str]:
        return [BACK if back else "" for back in self.back.tolist()]


def lanes(schedule: Schedule) -> Lanes:
    rank_at = np.full((schedule.stages, schedule.m), -1)
    rank_at[schedule.stage, schedule.micro_batch] = schedule.rank_of()
    ways, way_of = np.unique(rank_at, axis=1, return_inverse=True)
    way_of = way_of.reshape(-1)
    chunk_at = np.zeros_like(ways)  # of each stage, on each way
    for stage in range(1, schedule.stages):
        chunk_at[stage] = (ways[:stage] == ways[stage]).sum(axis=0)
    back = way_of != way_of[0]
    chunk = chunk_at[schedule.stage, way_of[schedule.micro_batch]]
    return Lanes(
        chunk=chunk,
        chunks=int(chunk.max(initial=0)) + 1,
        back=back[schedule.micro_batch],
        enters_at=rank_at[0, schedule.micro_batch],
        back_micro_batches=_ranges(np.flatnonzero(back).tolist()),
    )


def capital(chunk: int) -> str:
    """A to Z, then AA, AB, … as spreadsheets count."""
    before, letter = divmod(chunk, 26)
    return (capital(before - 1) if before else "") + chr(ord("A") + letter)


def chunk_names(chunks: int) -> str:
    return ", ".join(map(capital, range(chunks))) if chunks < 5 else f"A–{capital(chunks - 1)}"


def _ranges(numbers: list[int]) -> str:
    """
    >>> _ranges([1, 2, 3, 7])
    '1–3, 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    texts = ["–".join(map(str, run)) for run in runs]
    return ", ".join(texts if len(texts) <= 4 else [*texts[:3], "…"])
