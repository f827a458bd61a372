"""Interleaved 1F1B: v stages per rank, in turns of one group of micro-batches, make the bubble v times shorter.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021,
section 2.2; groups of any size as Megatron's ``microbatch_group_size_per_vp_stage`` and PyTorch's rounds have them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.phases import Order, Phases, from_phases


def interleaved_1f1b(p: int, m: int, v: int, group: int | None = None) -> Schedule:
    """Rank r has the v stages r, r + p, r + 2p … ; ``group`` micro-batches pass a stage before the next has its turn.

    >>> print(interleaved_1f1b(p=2, m=2, v=2))
    rank 0 | 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    rank 1 | 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
    """
    sizes = group_sizes(p, m, group)

    def phases(rank: int) -> Phases:
        warmup = _warmup(p, m, v, sizes)[rank]
        return [(warmup, "F"), (m * v - warmup, "F B"), (warmup, "B")]

    ranks = [(range(rank, p * v, p), phases(rank)) for rank in range(p)]
    return from_phases("interleaved_1f1b", m, ranks, order=in_groups(v, sizes))


def peak_inflight(p: int, m: int, v: int, group: int | None = None) -> IntArray:
    """Rank r holds min(v m, (v - 1) group + 2 (p - 1 - r) + 1) activations."""
    return np.minimum(_warmup(p, m, v, group_sizes(p, m, group)) + 1, m * v)


def broken_rules(p: int, m: int, v: int, group: int | None = None) -> Iterator[str]:
    """A rank that waits for its own first group's return must have a full group of p micro-batches to work on."""
    if group is None:
        return
    if group < min(p, m):
        yield f"schedule.group={group} with parallel.p={p}: a group has at least p micro-batches. Nearest: group={p}."
    rest = m % group
    if v > 1 and group >= p and m > group and 0 < rest < p:
        legal = [n for n in range(max(1, m - p), m + p + 1) if n <= group or n % group == 0 or n % group >= p]
        near = sorted(legal, key=lambda n: abs(n - m))[:2]
        yield (
            f"{m} micro-batches in groups of schedule.group={group} leave a last group of {rest}; with parallel.p={p} "
            f"it needs none or at least p. Nearest: {' or '.join(map(str, near))} micro-batches, or group=null."
        )


def group_sizes(p: int, m: int, group: int | None) -> IntArray:
    """Micro-batches in each group: ``group`` and a last rest, or without it groups of p or more, as equal as can be."""
    if group is not None:
        return np.minimum(group, m - np.arange(0, m, group))
    rounds = max(1, m // p)
    return m // rounds + (np.arange(rounds) < m % rounds)


def in_groups(v: int, sizes: IntArray) -> Order:
    """Group by group, all of the rank's stages in turn (backwards from the last stage), micro-batches counting up."""
    m = int(sizes.sum())
    group = np.tile(np.repeat(np.arange(len(sizes)), sizes), v)
    chunk, micro_batch = np.repeat(np.arange(v), m), np.tile(np.arange(m), v)
    rows = np.stack([chunk, micro_batch], axis=1)
    return Order(rows[np.lexsort((micro_batch, chunk, group))], rows[np.lexsort((micro_batch, -chunk, group))])


def _warmup(p: int, m: int, v: int, sizes: IntArray) -> IntArray:
    return np.minimum(2 * (p - 1 - np.arange(p)) + (v - 1) * int(sizes[0]), m * v)
