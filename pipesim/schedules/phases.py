"""The papers' phase notation: a rank's work as ``[(3, "F0"), (5, "F0 B0"), (3, "B0")]``, micro-batches counted up.

A token is an op and which of the rank's stages it runs on: ``F1`` forwards the next micro-batch on the second one.
``F0&B1`` is an overlapped pair. Tokens without a number follow an order: ``F`` and ``B`` (or ``I``) the given one,
``W`` takes the oldest input gradient whose weights still wait, whatever its stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipesim.schedules.action import IntArray, Op, Schedule

Phases = Sequence[tuple[int, str]]
"""How often, and what: ``(n, "F0 F1")`` is the papers' nF0F1. A count below zero is zero."""


class Order(NamedTuple):
    """In which order (which of the rank's stages, micro-batch) numberless tokens run; the same on every rank."""

    forward: IntArray
    backward: IntArray


class _Token(NamedTuple):
    """``line`` is what the token takes its turns from: (0 for F, 1 for B and I, 2 for W; which stage, or -1).

    In one run of its phase it takes turn number ``turn`` of the ``turns`` that are taken from that line.
    """

    op: Op
    joined: bool
    line: tuple[int, int]
    turn: int
    turns: int


class _Columns(NamedTuple):
    """Of one rank or of all; stage -1 is a step that is to be dropped."""

    stage: NDArray[np.int32]
    op: NDArray[np.int8]
    micro_batch: NDArray[np.int32]
    joined: NDArray[np.bool_]


def from_phases(
    name: str,
    m: int,
    ranks: Sequence[tuple[Sequence[int], Phases]],
    *,
    first: ArrayLike = 0,
    until: ArrayLike | None = None,
    order: Order | None = None,
) -> Schedule:
    """A schedule of ranks that each have (their stages, their phases).

    The k-th stage of rank r has micro-batches ``first[r, k]`` to ``until[r, k] - 1`` (shapes broadcast to (p, v)).
    Steps beyond ``until`` are dropped, so phases may be written for a longer run: what is left keeps a legal order.
    """
    stages = np.array([own for own, _ in ranks], np.int32)
    edges = [np.broadcast_to(edge, stages.shape).tolist() for edge in (first, m if until is None else until)]
    phases = [[(n, _read(text)) for n, text in phases if n > 0] for _, phases in ranks]
    rank_start = np.cumsum([0, *(sum(n * len(tokens) for n, tokens in own) for own in phases)])
    size = int(rank_start[-1])
    columns = _Columns(
        np.empty(size, np.int32), np.empty(size, np.int8), np.empty(size, np.int32), np.zeros(size, np.bool_)
    )
    for rank, (own, begin, end) in enumerate(zip(stages, *edges, strict=True)):
        rows = slice(rank_start[rank], rank_start[rank + 1])
        _write(_part(columns, rows), phases[rank], own, begin, end, order)
    kept = columns.stage >= 0
    if not kept.all():
        columns.joined[:-1] &= kept[1:]  # not with a half that is dropped
        rank_start = np.concatenate([[0], np.cumsum(kept)])[rank_start]
        columns = _part(columns, kept)
    return Schedule(
        name=name, p=len(ranks), m=m, stages=int(stages.max()) + 1, rank_start=rank_start, **columns._asdict()
    )


@cache
def _read(text: str) -> list[_Token]:
    """Reads ``"F0&B1 W"``."""
    tokens: list[_Token] = []
    taken: Counter[tuple[int, int]] = Counter()
    for slot in text.split():
        pair = slot.split("&")
        for half in pair:
            line = {"F": 0, "W": 2}.get(half[0], 1), int(half[1:] or -1)
            tokens.append(_Token(Op[half[0]], half is not pair[-1], line, taken[line], 0))
            taken[line] += 1
    return [token._replace(turns=taken[token.line]) for token in tokens]


def _part(columns: _Columns, rows: slice | NDArray[np.bool_]) -> _Columns:
    return _Columns(columns.stage[rows], columns.op[rows], columns.micro_batch[rows], columns.joined[rows])


def _write(
    to: _Columns,
    phases: list[tuple[int, list[_Token]]],
    stages: NDArray[np.int32],
    first: list[int],
    until: list[int],
    order: Order | None,
) -> None:
    """One rank. A token of a phase is a slice of every column: plain numpy is fast enough and need not compile."""
    counted = np.arange(max(first) + len(to.op), dtype=np.int32)
    ordered = [(stages[chunk], number) for chunk, number in (source.T for source in order or ())]
    taken: Counter[tuple[int, int]] = Counter()
    weights: list[tuple[slice, slice]] = []
    stop = 0
    for n, tokens in phases:
        start, stop = stop, stop + n * len(tokens)
        for i, (op, joined, line, turn, turns) in enumerate(tokens):
            here, (kind, chunk) = slice(start + i, stop, len(tokens)), line
            there = slice(taken[line] + turn, taken[line] + n * turns, turns)
            to.op[here] = op
            if joined:
                to.joined[here] = True
            if chunk >= 0:
                to.micro_batch[here] = numbers = counted[first[chunk] :][there]
                to.stage[here] = stages[chunk]
                if numbers[-1] >= until[chunk]:
                    to.stage[here][numbers >= until[chunk]] = -1
            elif kind < 2:
                to.stage[here], to.micro_batch[here] = (column[there] for column in ordered[kind])
            else:
                weights.append((here, there))
        for _, _, line, *_ in tokens:
            taken[line] += n
    if not weights:
        return
    inputs = np.flatnonzero(to.op == Op.I)
    for here, there in weights:
        for column in (to.stage, to.micro_batch):
            column[here] = column[inputs[there]]
