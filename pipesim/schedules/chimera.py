"""Chimera: two 1F1B pipelines in opposite directions fill each other's bubbles, p micro-batches at a time.

Source: Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional Pipelines",
SC 2021, section 3.2, with direct concatenation of units. Every stage lies on two ranks: r and p - 1 - r.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipesim.schedules.action import IntArray, Op, Schedule, by_slot


def chimera(p: int, m: int) -> Schedule:
    """Micro-batches 0 … ⌈m/2⌉ - 1 run down the ranks, the others up; a unit is p/2 of each.

    In slots of one F or one B, the i-th micro-batch of a unit that starts at 0 has its F on stage s in slot s + 2 i and
    its B in slot 2p - 1 - s + 2 i; the next unit starts 2p slots later, and no two ever want the same slot.

    >>> print(chimera(p=2, m=4))
    rank 0 | 0F0 1F2 1B2 0B0 0F1 1F3 1B3 0B1
    rank 1 | 0F2 1F0 1B0 0B2 0F3 1F1 1B1 0B3
    """
    half = (m + 1) // 2
    micro_batch, stage, op = np.meshgrid(np.arange(m), np.arange(p), [Op.F, Op.B], indexing="ij")
    up = micro_batch >= half
    unit, i = np.divmod(micro_batch - half * up, p // 2)
    slot = np.where(op == Op.F, stage, 2 * p - 1 - stage) + 2 * i + 2 * p * unit
    return by_slot("chimera", m, np.where(up, p - 1 - stage, stage), slot, stage, op, micro_batch)


def broken_rules(p: int, m: int) -> Iterator[str]:
    if p % 2:
        yield f"parallel.p={p}: schedule.name=chimera pairs ranks r and p - 1 - r; p must be even. Nearest: p={p + 1}."


def unwise(p: int, m: int) -> Iterator[str]:
    if m % p:
        yield (
            f"num_microbatches={m} with parallel.p={p}: schedule.name=chimera runs units of p, and the last one is not "
            f"full. Nearest: num_microbatches={m - m % p or p} or {m - m % p + p}."
        )


def peak_inflight(p: int, m: int) -> IntArray:
    """Rank r holds at most p/2 + 1 + min(r, p - 1 - r) activations, and never more than m."""
    rank = np.arange(p)
    law: IntArray = np.minimum(rank, p - 1 - rank) + p // 2 + 1
    return law.clip(max=m)
