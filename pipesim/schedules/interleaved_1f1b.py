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
    """Only what deadlocks: Megatron asks for more, and PyTorch for other, than the order needs."""
    if group is None:
        return
    if not isinstance(group, int) or group < 1:
        yield f"schedule.group={group!r} must be a whole number of at least 1, or null. Nearest: group={p}."
    elif _deadlocks(p, v, group_sizes(p, m, group)):
        fewer, more = (
            next((n for n in numbers if not _deadlocks(p, v, group_sizes(p, n, group))), None)
            for numbers in (range(m, 0, -1), range(m, m + 2 * p))
        )
        near = " or ".join(str(n) for n in (fewer, more) if n)
        yield (
            f"schedule.group={group} cuts num_microbatches={m} so that two neighbouring groups have fewer than 2p - 2 "
            f"in all, and with parallel.p={p} the ranks would wait for each other for ever. Nearest: "
            f"num_microbatches={near} (training.global_batch / (training.micro_batch * parallel.d)), or group=null."
        )


def unwise(p: int, m: int, v: int, group: int | None = None) -> Iterator[str]:
    if group is not None and v > 1 and m > group and (group < p or m % group):
        yield (
            f"schedule.group={group} cuts num_microbatches={m} unevenly or below parallel.p={p}, which makes the "
            "bubble longer; Megatron refuses a rest that is smaller than p. Nearest: group=null, for equal groups."
        )


def _deadlocks(p: int, v: int, sizes: IntArray) -> bool:
    """Neighbouring groups need 2p - 2 micro-batches together; a last one of a single micro-batch passes if v is 2.

    Found by simulating all p <= 8, v <= 5, groups to 2p and up to 4 of them, and checked by the tests.
    """
    pairs = sizes[:-1] + sizes[1:]
    if v == 2 and len(sizes) > 1 and sizes[-1] == 1:
        pairs = pairs[:-1]
    return v > 1 and bool((pairs < 2 * p - 2).any())


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
