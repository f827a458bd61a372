"""The papers' phase notation: a rank's work as ``[(3, "F0"), (5, "F0 B0"), (3, "B0")]``, micro-batches counted up.

A token is an op and which of the rank's stages it runs on: ``F1`` forwards the next micro-batch on the second one.
``F0&B1`` is an overlapped pair. Tokens without a number follow an order: ``F`` and ``B`` (or ``I``) the given one,
``W`` takes the oldest input gradient whose weights still wait, whatever its stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.schedules.action import IntArray, Op, Schedule
from pipesim.schedules.compiled import compiled

Phases = Sequence[tuple[int, str]]
"""How often, and what: ``(n, "F0 F1")`` is the papers' nF0F1. A count below zero is zero."""


class Order(NamedTuple):
    """In which order (which of the rank's stages, micro-batch) numberless tokens run; the same on every rank."""

    forward: IntArray
    backward: IntArray


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
    stages = np.array([own for own, _ in ranks], np.int64)
    repeats, texts, rank_phases = [], [], [0]
    for _, phases in ranks:
        repeats += [max(0, n) for n, _ in phases]
        texts += [text for _, text in phases]
        rank_phases.append(len(repeats))
    tokens = [_read(text) for text in texts]
    token_start = np.cumsum([0, *map(len, tokens)])
    if order is None:
        order = Order(*np.zeros((2, 0, 2), np.int64))
    rank_start, *columns = _expand(
        np.array(rank_phases), np.array(repeats), token_start, np.concatenate(tokens), stages,
        np.broadcast_to(first, stages.shape), np.broadcast_to(m if until is None else until, stages.shape), *order,
    )  # fmt: skip
    stage, op, micro_batch, joined = columns
    return Schedule(
        name=name, p=len(ranks), m=m, stages=int(stages.max()) + 1,
        rank_start=rank_start, stage=stage, op=op, micro_batch=micro_batch, joined=joined,
    )  # fmt: skip


@cache
def _read(text: str) -> IntArray:
    """``"F0&B1 W"`` as rows (op, which of the rank's stages or -1, joined)."""
    rows = []
    for slot in text.split():
        tokens = slot.split("&")
        for token in tokens:
            rows.append((Op[token[0]], int(token[1:] or -1), int(token is not tokens[-1])))
    return np.array(rows, np.int64)


@compiled
def _expand(rank_phases, repeats, token_start, tokens, stages, first, until, forward, backward):  # type: ignore[no-untyped-def]
    """The columns of a schedule: rank_start, stage, op, micro_batch, joined."""
    size = 0
    for phase in range(len(repeats)):
        size += repeats[phase] * (token_start[phase + 1] - token_start[phase])
    stage, micro_batch = np.empty(size, np.int32), np.empty(size, np.int32)
    op, joined = np.empty(size, np.int8), np.zeros(size, np.bool_)
    ranks, chunks = stages.shape
    rank_start = np.zeros(ranks + 1, np.int64)
    waiting = np.empty((size, 2), np.int64)  # input gradients in the order they run
    i = 0
    for rank in range(ranks):
        count = np.empty((3, chunks), np.int64)  # the next micro-batch of F, of B or I, of W
        for kind in range(3):
            count[kind] = first[rank]
        asked = np.zeros(3, np.int64)  # how many numberless tokens were taken
        inputs = 0
        for phase in range(rank_phases[rank], rank_phases[rank + 1]):
            for _ in range(repeats[phase]):
                for t in range(token_start[phase], token_start[phase + 1]):
                    what, chunk = tokens[t, 0], tokens[t, 1]
                    kind = 0 if what == 0 else (2 if what == 3 else 1)
                    if chunk < 0:
                        source = forward if kind == 0 else (backward if kind == 1 else waiting[:inputs])
                        k = asked[kind]
                        asked[kind] += 1
                        exists = k < len(source)
                        chunk, number = (source[k, 0], source[k, 1]) if exists else (0, 0)
                    else:
                        exists = True
                        number = count[kind, chunk]
                        count[kind, chunk] += 1
                    if exists and what == 2:
                        waiting[inputs] = chunk, number
                        inputs += 1
                    if exists and number < until[rank, chunk]:
                        stage[i], op[i], micro_batch[i] = stages[rank, chunk], what, number
                        joined[i] = tokens[t, 2]
                        i += 1
                    elif t > token_start[phase] and tokens[t - 1, 2] and i > 0:
                        joined[i - 1] = False  # its other half was dropped
        rank_start[rank + 1] = i
    return rank_start, stage[:i].copy(), op[:i].copy(), micro_batch[:i].copy(), joined[:i].copy()
