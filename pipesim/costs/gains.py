"""What the best of fixes could gain at most: the step now, less a floor that no step after the fix can go below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import FloatArray, in_order
from pipesim.costs.prices import Prices

TAIL = ("dp_exposed", "optimizer", "fixed")
OF_LAYERS = ("tp", "cp", "ep")
"""Items of what layers exchange: recomputed ones do it again."""
TALK = (*OF_LAYERS, "vocab")


class Run(NamedTuple):
    """How a schedule runs the stages: which rank holds which, shape (p, stages); micro-batches; segments of each;
    whether gradients of weights run apart from those of inputs; whether ranks wait for the slowest at the step's end.
    """

    holds: FloatArray
    m: int
    segments: int
    split: bool
    barrier: bool


def at_most(prices: Prices, seconds: Mapping[str, FloatArray], run: Run) -> dict[str, FloatArray]:
    """Seconds by fix, each alone, for the same placement of stages; ``seconds`` are the step's items now, by name.

    What a fix takes away is taken off every stage's times. The new makespan is at least (1 - x) of the old, where x is
    the largest share taken off any action, since no chain of actions shrinks more; and at least the way in, all work and
    the way out of any rank. A gain thus includes what shorter stages save in bubble and imbalance.
    """
    now_s = np.asarray(sum(each for item, each in seconds.items() if item not in TAIL))
    whole = [np.broadcast_to(np.asarray(sum(op.values())), prices.parameters.shape) for op in prices.seconds]
    fixes = {
        "recompute": _removed(prices, (), repeats=True),
        "tp": _removed(prices, ("tp",)),
        "cp and ep": _removed(prices, ("cp", "ep")),
        "vocab": _removed(prices, ("vocab",)),
        "launch": _removed(prices, ("launch",)),
    }
    gains = {fix: _gain_s(now_s, whole, less, run) for fix, less in fixes.items()}
    free = [op - less for op, less in zip(whole, _removed(prices, ("hop",)), strict=True)]
    computing_s, exposed_s = now_s - seconds["pp_exposed"], seconds["pp_exposed"] + seconds["dp_exposed"]
    gains["all communication"] = exposed_s + _gain_s(computing_s, free, _removed(prices, TALK), run)
    gains["pp"], gains["dp"] = seconds["pp_exposed"], seconds["dp_exposed"]
    gains["bubble"] = np.maximum(now_s - _busy_s(whole, run).max(axis=1), 0.0)
    gains["imbalance"] = np.maximum(now_s - _even_floor_s(whole, run), 0.0) + _uneven_tail_s(prices, run)
    return gains


def _removed(prices: Prices, items: tuple[str, ...], repeats: bool = False) -> list[FloatArray]:
    """What a fix takes off F, I and W of every stage, shape (points, stages) each."""
    nothing = np.zeros(prices.parameters.shape)
    forward, input_grad, weight_grad = (
        nothing + sum(np.asarray(op[item]) for item in items if item in op) for op in prices.seconds
    )
    if "launch" in items:  # recomputed layers launch their forward again
        input_grad = input_grad + prices.repeated_share * forward
    if repeats:
        input_grad = input_grad + _again_s(prices)
    return [forward, input_grad, weight_grad]


def _again_s(prices: Prices) -> FloatArray:
    """What running forwards again adds to I, at most: where only parts of a layer run again, all of tp and cp counts."""
    again_s = np.asarray(prices.seconds.input_grad.get("recompute", 0.0))
    in_parts = (prices.repeated_share == 0) & (again_s > 0)
    talk_s = sum(
        np.where(in_parts, item != "ep", prices.repeated_share) * prices.seconds.forward.get(item, 0.0)
        for item in OF_LAYERS
    )
    return np.asarray(again_s + talk_s)


def _gain_s(now_s: FloatArray, whole: list[FloatArray], less: list[FloatArray], run: Run) -> FloatArray:
    share: FloatArray = np.max(
        [np.divide(x, op, out=np.zeros_like(x), where=op > 0).max(axis=1) for x, op in zip(less, whole, strict=True)],
        axis=0,
    )
    floor_s = _floor_s([op - x for op, x in zip(whole, less, strict=True)], run)
    return np.maximum(np.minimum(share * now_s, now_s - floor_s), 0.0)


def _busy_s(ops: list[FloatArray], run: Run) -> FloatArray:
    """Every rank's work, shape (points, ranks); where a stage lies on several ranks, the mean of all of them."""
    total = np.asarray(sum(ops))
    if (run.holds.sum(axis=0) > 1).any():
        return np.asarray(run.m * in_order(total.T)[:, None] / len(run.holds))
    return np.asarray(run.m * _on_ranks(total, run))


def _on_ranks(of_stages: FloatArray, run: Run) -> FloatArray:
    """(points, stages) summed over what each rank holds: (points, ranks)."""
    return in_order(np.moveaxis(of_stages[:, None, :] * run.holds, 2, 0))


def _floor_s(ops: list[FloatArray], run: Run) -> FloatArray:
    """The way to a rank's first stage, all its work, and the way back from there; of the rank where this is longest."""
    busy_s = _busy_s(ops, run)
    if not run.barrier:
        return np.asarray(busy_s.max(axis=1))
    way = ops[0] if run.split else np.asarray(sum(ops))
    before = (np.cumsum(way, axis=1) - way)[:, run.holds.argmax(axis=1)] / run.segments
    return np.asarray((busy_s + (before if busy_s.shape == before.shape else 0.0)).max(axis=1))


def _even_floor_s(ops: list[FloatArray], run: Run) -> FloatArray:
    """The same for stages that all take as long as they take on average."""
    total = np.asarray(sum(ops))
    work_s = in_order(total.T)
    mean_s = run.m * work_s / len(run.holds)
    ways = 0 if run.split or not run.barrier else run.holds.argmax(axis=1).max()
    return np.asarray(mean_s + ways * work_s / total.shape[1] / run.segments)


def _uneven_tail_s(prices: Prices, run: Run) -> FloatArray:
    """What the rank with most to exchange and update needs longer than the one with least."""
    found = np.zeros(len(prices.parameters))
    for each in (prices.dp_s, prices.optimizer_s):
        on_ranks = _on_ranks(each, run)
        found = found + on_ranks.max(axis=1) - on_ranks.min(axis=1)
    return found
