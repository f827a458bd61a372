"""What the ranks that hold the same parameters exchange in a step, and how much of it no computing hides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.costs import collectives
from pipesim.costs.columns import FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.memory import ELEMENT_BYTES
from pipesim.costs.stage import Stages, StageSeconds
from pipesim.specs import ModelSpec, Point


class Exchange(NamedTuple):
    """Of one step, shape (points, stages)."""

    sent_bytes: FloatArray
    exposed_s: FloatArray


def exchange(
    point: Point,
    model: ModelSpec,
    cut: Cut,
    stages: Stages,
    seconds: StageSeconds,
    shared: FloatArray,
    experts: FloatArray,
) -> Exchange:
    """Gradients, weights and, where the ends of a pipeline share one table, its gradient.

    ``shared`` are parameters that all d c ranks hold, ``experts`` those of d c / e ranks.
    """
    last = _last_micro_batches(cut)
    forward_s, backward_s = last * _stage_s(seconds, 0), last * (_stage_s(seconds, 1) + _stage_s(seconds, 2))
    sent_bytes, exposed_s = np.zeros_like(shared), np.zeros_like(shared)
    windows_s, busy_s = {True: backward_s, False: forward_s}, {True: 0.0 * shared, False: 0.0 * shared}
    times, halves = _halves(point, cut)
    groups = ((shared, cut.replicas, cut.shards, cut.stride("c")), (experts, *_expert_group(cut)))
    for held, group, shards, stride in groups:
        if not held.any():
            continue
        link = collectives.group_link(point.cluster, point.costs, shards, stride, cut.gpus)
        for half in halves:
            half_s = collectives.collective_half_s(held * half.bytes_each, shards, link)
            sent_bytes = sent_bytes + times * collectives.ring_sent_bytes(held * half.bytes_each, shards)
            busy_s[half.backward] = busy_s[half.backward] + half_s
        if np.any(np.asarray(group) > np.asarray(shards)):  # replicas of the sharded groups
            outer, apart = group / shards, stride * shards
            link = collectives.group_link(point.cluster, point.costs, outer, apart, cut.gpus)
            share_bytes = held * point.stack.reduce_bytes / shards
            sent_bytes = sent_bytes + 2 * collectives.ring_sent_bytes(share_bytes, outer)
            exposed_s = exposed_s + (1 - point.stack.dp_overlap) * 2 * collectives.collective_half_s(
                share_bytes, outer, link
            )
    for backward, window_s in windows_s.items():
        exposed_s = exposed_s + times * _exposed(busy_s[backward], window_s, backward, point, cut)
    return Exchange(sent_bytes, exposed_s + _tied_s(point, model, cut, stages))


class _Half(NamedTuple):
    """A reduce-scatter or all-gather of all parameters, half an all-reduce, beside the backward or the forward."""

    bytes_each: int
    backward: bool


def _halves(point: Point, cut: Cut) -> tuple[Number, tuple[_Half, ...]]:
    """How often a step reduces gradients and gathers weights, and the bytes per parameter. They take turns on the links.

    Without ZeRO the reduced gradients are gathered, with it the updated weights. ZeRO-3 gathers weights forward and
    backward and reduces gradients for every micro-batch. Source: Rajbhandari et al. 2020, section 7.
    """
    reduce_bytes = point.stack.reduce_bytes
    if cut.zero < 3:
        gathered = ELEMENT_BYTES if cut.zero else reduce_bytes
        return 1.0, (_Half(reduce_bytes, True), _Half(gathered, not cut.zero))
    return cut.num_microbatches, (_Half(reduce_bytes, True), _Half(ELEMENT_BYTES, False), _Half(ELEMENT_BYTES, True))


def _exposed(half_s: FloatArray, window_s: FloatArray, backward: bool, point: Point, cut: Cut) -> FloatArray:
    """ZeRO-3 fetches the next layer while one runs, so that only what takes longer shows, and some of the rest: both
    want the memory. Else the stack says which share hides behind the step's last computing, if that is long enough.
    """
    hidden = np.minimum(half_s, window_s)
    if cut.zero == 3:
        return half_s - (1 - point.stack.gather_interference) * hidden
    return half_s - (point.stack.dp_overlap if backward else point.stack.gather_overlap) * hidden


def _last_micro_batches(cut: Cut) -> Number:
    """How many micro-batches' backwards of a stage can hide its exchange: its own last one, and where a rank holds v
    stages, the p micro-batches that the stages before it still have to do when it is ready, on average.
    """
    return 1 + (cut.v - 1) / cut.v * np.minimum(cut.p, cut.num_microbatches)


def _expert_group(cut: Cut) -> tuple[Number, Number, Number]:
    """Ranks that hold the same experts, those that share what ZeRO divides of them, and how far apart they lie."""
    group = np.maximum(cut.replicas / cut.e, 1.0)
    return group, np.maximum(cut.shards / cut.e, 1.0), cut.stride("c") * cut.e


def _tied_s(point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> FloatArray:
    """First and last stage add up the gradients of the table that they share, if they lie on two ranks."""
    apart = np.asarray((stages.head * (1 - stages.beside)).any(axis=1))
    if not model.tied_embeddings or point.layout.spread_vocab != "none" or not apart.any():
        return np.zeros_like(stages.head)
    table_bytes = model.vocab * model.hidden / cut.t * point.stack.reduce_bytes
    link = collectives.group_link(point.cluster, point.costs, 2.0, cut.stride("p") * np.maximum(cut.p - 1, 1), cut.gpus)
    ends = (stages.embedding + stages.head) * apart[:, None]
    return np.asarray(ends * 2 * collectives.collective_half_s(table_bytes, 2.0, link))


def _stage_s(seconds: StageSeconds, op: int) -> FloatArray:
    return np.asarray(sum(seconds[op].values()))
