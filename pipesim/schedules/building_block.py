"""A schedule from one micro-batch's building block, repeated and then squeezed.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", NeurIPS 2024, sections 3 and 4. A block tells in
which slot each rank runs the forwards and backwards of micro-batch 0; the block of micro-batch i starts ``6 i`` slots
later. How long an activation lives in the block decides the memory, before any schedule is drawn. Squeezing then moves
the actions of the warm-up and the cool-down into earlier empty slots, without ever holding more.
"""

from __future__ import annotations

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.compiled import compiled

INTERVAL = 6
"""Slots of one micro-batch on each rank: two stages with F, I and W each."""

# What fills a slot: (kind << _SHIFT) + micro-batch; _EMPTY; or _REST, the second slot of a whole backward.
_F_DOWN, _F_UP, _B_UP, _B_DOWN, _W_UP, _W_DOWN = range(6)
_SHIFT, _EMPTY, _REST = 32, -1, -2


def repeat_block(name: str, m: int, block: IntArray, *, whole: bool = False, level: bool = False) -> Schedule:
    """The schedule of a V (rank r has the stages r and 2p - 1 - r) from its building block.

    ``block[:, r]`` are the slots of F down, F up, backward up, backward down of micro-batch 0 on rank r. With ``whole``
    a backward fills two slots, else W goes where there is room. With ``level`` every rank may hold what the fullest one
    holds in the steady state, else only its own. A long run is drawn short and repeats its middle.
    """
    p = block.shape[1]
    drawn = min(m, 2 * (int(block.max()) // INTERVAL + 4))
    grid = _squeezed(block.astype(np.int64), drawn, whole, level)
    middle = int(block.max() + INTERVAL * drawn) // 2
    stage, op, micro_batch = _read(grid, middle, m - drawn, whole)
    size = p * m * (4 if whole else 6)
    assert len(stage) == size, f"{name}: {len(stage)} of {size} actions drawn"
    return Schedule(
        name=name, p=p, m=m, stages=2 * p, rank_start=np.arange(p + 1) * (size // p),
        stage=stage, op=op, micro_batch=micro_batch, joined=np.zeros(size, np.bool_),
    )  # fmt: skip


@compiled
def _read(grid, middle, more, whole):  # type: ignore[no-untyped-def]
    """Stage, op and micro-batch in order, with the period that starts at ``middle`` run ``more`` times again."""
    p, width = grid.shape
    full = np.count_nonzero(grid >= 0) + more * np.count_nonzero(grid[:, middle : middle + INTERVAL] >= 0)
    stage, micro_batch, op = np.empty(full, np.int32), np.empty(full, np.int32), np.empty(full, np.int8)
    n = 0
    for rank in range(p):
        for again in range(more + 2):  # the start and the first period, its repetitions, the end
            begin = 0 if again == 0 else (middle if again <= more else middle + INTERVAL)
            end = middle + INTERVAL if again <= more else width
            for slot in range(begin, end):
                if grid[rank, slot] >= 0:
                    kind = grid[rank, slot] >> _SHIFT
                    down = kind in (_F_DOWN, _B_DOWN, _W_DOWN)
                    stage[n] = rank if down else 2 * p - 1 - rank
                    op[n] = 0 if kind <= _F_UP else (3 if kind >= _W_UP else (1 if whole else 2))
                    micro_batch[n] = (grid[rank, slot] & 0xFFFFFFFF) + min(again, more)
                    n += 1
    return stage, op, micro_batch


@compiled
def _squeezed(block, m, whole, level):  # type: ignore[no-untyped-def]
    """The grid (rank, slot) of a run of m micro-batches."""
    p = block.shape[1]
    width = block.max() + INTERVAL * m + 2 * p + 2
    grid = np.full((p, width), _EMPTY, np.int64)
    for rank in range(p):
        for kind in range(4):
            for i in range(m):
                at = block[kind, rank] + INTERVAL * i
                grid[rank, at] = (kind << _SHIFT) + i
                if whole and kind >= _B_UP:
                    grid[rank, at + 1] = _REST
    if not whole:
        _put_weights(grid)
    limit = np.array([_held(grid[rank], whole).max() for rank in range(p)])
    if level:
        limit[:] = limit.max()
    _move_earlier(grid, m, whole, limit, np.zeros(p, np.int64))
    for _ in range(0 if whole else 2):
        cooldown = np.zeros(p, np.int64)
        for rank in range(p):
            for slot in range(width):
                if grid[rank, slot] >= 0 and grid[rank, slot] >> _SHIFT <= _F_UP:
                    cooldown[rank] = slot + 1
        for rank in range(p):
            for slot in range(cooldown[rank], width):
                if grid[rank, slot] >= _W_UP << _SHIFT:
                    grid[rank, slot] = _EMPTY
        _move_earlier(grid, m, whole, limit, cooldown)
        _put_weights(grid)
    return grid


@compiled
def _put_weights(grid):  # type: ignore[no-untyped-def]
    """Puts each W that is missing into the first empty slot after its input gradient, those of the stage up first."""
    for rank in range(grid.shape[0]):
        ran, put = np.zeros(2, np.int64), np.zeros(2, np.int64)
        for slot in range(grid.shape[1]):
            if grid[rank, slot] >= _W_UP << _SHIFT:
                put[(grid[rank, slot] >> _SHIFT) - _W_UP] += 1
        for slot in range(grid.shape[1]):
            kind = grid[rank, slot] >> _SHIFT
            if kind in (_B_UP, _B_DOWN):
                ran[kind - _B_UP] += 1
            elif grid[rank, slot] == _EMPTY:
                for side in range(2):
                    if put[side] < ran[side]:
                        grid[rank, slot] = ((_W_UP + side) << _SHIFT) + put[side]
                        put[side] += 1
                        break


@compiled
def _held(row, whole):  # type: ignore[no-untyped-def]
    """Activations held after each slot of one rank."""
    held = np.zeros(len(row), np.int64)
    now = 0
    for slot in range(len(row)):
        if row[slot] >= 0:
            now += _change(row[slot] >> _SHIFT, whole)
        held[slot] = now
    return held


@compiled
def _change(kind, whole):  # type: ignore[no-untyped-def]
    if kind <= _F_UP:
        return 1
    return -1 if whole or kind >= _W_UP else 0


@compiled
def _move_earlier(grid, m, whole, limit, since):  # type: ignore[no-untyped-def]
    """Moves each action from slot ``since[rank]`` on to the first empty slot that its needs and the memory allow."""
    p, width = grid.shape
    over = np.zeros((6, p, m), np.int64)  # the first slot after each action
    held = np.zeros((p, width), np.int64)
    for rank in range(p):
        held[rank] = _held(grid[rank], whole)
    for slot in range(width):
        for rank in range(p):
            if grid[rank, slot] < 0:
                continue
            kind, i = grid[rank, slot] >> _SHIFT, grid[rank, slot] & 0xFFFFFFFF
            length = 2 if whole and kind >= _B_UP else 1
            at = slot
            if slot >= since[rank]:
                at = over[kind, rank, i - 1] if i > 0 else 0
                if kind == _F_DOWN and rank > 0:
                    at = max(at, over[_F_DOWN, rank - 1, i])
                elif kind == _F_UP:
                    at = max(at, over[_F_UP, rank + 1, i] if rank < p - 1 else over[_F_DOWN, rank, i])
                elif kind == _B_UP:
                    at = max(at, over[_B_UP, rank - 1, i] if rank > 0 else over[_F_UP, rank, i])
                elif kind == _B_DOWN:
                    at = max(at, over[_B_DOWN, rank + 1, i] if rank < p - 1 else over[_B_UP, rank, i])
                elif kind >= _W_UP:
                    at = max(at, over[kind - 2, rank, i])
                if kind <= _F_UP:
                    lowest = slot
                    while lowest > at and held[rank, lowest - 1] < limit[rank]:
                        lowest -= 1
                    at = lowest
                while at < slot and not _fits(grid[rank], at, slot, length):
                    at += 1
            if at < slot:
                change = _change(kind, whole)
                for between in range(at, slot):
                    held[rank, between] += change
                grid[rank, at + length - 1], grid[rank, slot + length - 1] = _REST, _EMPTY
                grid[rank, slot] = _EMPTY
                grid[rank, at] = (kind << _SHIFT) + i
                if length == 2 and at + 1 == slot:
                    grid[rank, slot] = _REST
            over[kind, rank, i] = at + length
    return grid


@compiled
def _fits(row, at, slot, length):  # type: ignore[no-untyped-def]
    """Whether an action of one or two slots that stands at ``slot`` may begin at ``at``, before it."""
    return row[at] == _EMPTY and (length == 1 or at + 1 == slot or row[at + 1] == _EMPTY)
