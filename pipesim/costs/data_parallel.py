"""What the ranks that hold the same parameters exchange in a step, and how much of it no computing hides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pipesim.costs import topology
from pipesim.costs.collectives import Collective
from pipesim.costs.columns import FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.memory import ELEMENT_BYTES, gathered_element_bytes
from pipesim.costs.stage import Stages, StageSeconds, table_parameters
from pipesim.costs.topology import Axis
from pipesim.specs import ModelSpec, Point


class Exchange(NamedTuple):
    """Of one step: what is exchanged, counts and bytes of shape (points, stages), and the seconds that nothing hides."""

    collectives: tuple[Collective, ...]
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
    inner = list(_among_shards(point, cut, shared, experts, table_parameters(model, cut, stages)))
    outer = list(_among_replicas(point, cut, shared, experts))
    last = _last_micro_batches(cut)
    exposed_s, left_s = 0.0 * shared, 0.0 * shared
    for backward, window_s in ((False, _stage_s(seconds, 0)), (True, _stage_s(seconds, 1) + _stage_s(seconds, 2))):
        if backward and cut.zero == 3:
            window_s = window_s * np.equal(cut.p, 1)
        times = cut.reductions if backward else cut.gathers
        busy_s = 0.0 * shared + sum(each.collective.seconds() / times for each in inner if each.backward == backward)
        exposed_s = exposed_s + times * _exposed(busy_s, last * window_s, backward, point, cut)
        left_s = np.maximum(last * window_s - busy_s, 0.0)  # of the backward, which is the last in this loop
    outer_s = 0.0 * shared + sum(each.seconds() for each in outer)
    exposed_s = exposed_s + outer_s - point.stack.dp_overlap * np.minimum(outer_s, left_s)
    tied = _tied(point, model, cut, stages)
    exposed_s = exposed_s + sum(each.seconds() for each in tied)
    return Exchange((*(each.collective for each in inner), *outer, *tied), np.asarray(exposed_s))


class _Inner(NamedTuple):
    """Within what ZeRO divides, while the backward or the forward computes."""

    collective: Collective
    backward: bool


def _among_shards(
    point: Point, cut: Cut, shared: FloatArray, experts: FloatArray, tables: FloatArray
) -> Iterator[_Inner]:
    """Reducing gradients and gathering weights. They take turns on the links.

    Without ZeRO gradients are all-reduced; with it they are reduced to their shard, with ZeRO-1 unless the stack
    ``reduces_whole``, and the updated weights gathered. ZeRO-2 reduces them with every micro-batch, as it holds but a shard
    of their sum; ZeRO-3 also gathers weights forward and backward with each; but in a pipeline both stay whole until the
    step ends. Source: Rajbhandari et al. 2020, section 7. ``tables`` are those of ``shared`` that are gathered in 16 bits
    whatever the precision.
    """
    kinds: list[tuple[str, bool, Number]] = [("all-reduce", True, cut.reductions)]
    if cut.zero:
        reduced = "all-reduce" if point.stack.reduces_whole and cut.zero == 1 else "reduce-scatter"
        kinds = [(reduced, True, cut.reductions), ("all-gather", False, cut.gathers)]
    if cut.zero == 3:
        kinds.append(("all-gather", True, cut.gathers * np.equal(cut.p, 1)))
    element_bytes = gathered_element_bytes(cut, point.stack)
    for held, shards, _ in _holders(cut, shared, experts):
        group = topology.group(point.cluster, point.costs, shards, cut.gpus)
        wide = np.minimum(tables, held) if held is shared else 0.0
        gathered_bytes = held * element_bytes + wide * (ELEMENT_BYTES - element_bytes)
        for kind, backward, times in kinds:
            message_bytes = gathered_bytes if kind == "all-gather" else held * point.stack.reduce_bytes
            yield _Inner(Collective("dp", kind, group, message_bytes, times * _some(held)), backward)


def _among_replicas(point: Point, cut: Cut, shared: FloatArray, experts: FloatArray) -> Iterator[Collective]:
    """Where several groups of shards hold the same (HSDP), each rank all-reduces its shard of the gradient with its
    peers in the others, once a step, when its last backward has reduced it (Zhao et al., "PyTorch FSDP", VLDB 2023,
    section 3.2.2).
    """
    if cut.shard is None:
        return
    for held, shards, replicas in _holders(cut, shared, experts):
        group = topology.group(point.cluster, point.costs, replicas, cut.gpus, "replicas")
        share_bytes = held * point.stack.reduce_bytes / (shards[0][0] * shards[1][0])
        yield Collective("dp", "all-reduce", group, share_bytes, _some(held))


Axes = tuple[Axis, Axis]


def _holders(cut: Cut, shared: FloatArray, experts: FloatArray) -> Iterator[tuple[FloatArray, Axes, Axes]]:
    """Parameters, the ranks that share what ZeRO divides of them, and the ranks that hold the same shard.

    Each rank of e neighbours holds other experts: fewer ranks hold the same, further apart.
    """
    if shared.any():
        yield (shared, *topology.split(cut.replica_axes, cut.shards))
    if experts.any():
        _, peers = topology.split(cut.replica_axes, cut.e)
        yield (experts, *topology.split(peers, np.maximum(cut.shards / cut.e, 1.0)))


def _some(held: FloatArray) -> FloatArray:
    """1 where there is something to exchange."""
    return np.asarray(held > 0, np.float64)


def _exposed(half_s: FloatArray, window_s: FloatArray, backward: bool, point: Point, cut: Cut) -> FloatArray:
    """ZeRO-3 fetches the next layer while one runs, so that only what takes longer shows, and some of the rest: both want
    the memory. In a pipeline nothing hides its gradients: they leave behind the last backward (PyTorch
    ``pipelining/stage.py``, ``perform_reduce_grad``). Else the stack says which share hides behind the step's last computing,
    if that is long enough.
    """
    hidden = np.minimum(half_s, window_s)
    if cut.zero == 3:
        return half_s - (1 - point.stack.gather_interference) * hidden
    return half_s - (point.stack.dp_overlap if backward else point.stack.gather_overlap) * hidden


def _last_micro_batches(cut: Cut) -> Number:
    """How many micro-batches' backwards of a stage can hide its exchange: its own last one, and where a rank holds v
    stages, the p micro-batches that the stages before it still have to do when it is ready, on average. ZeRO-3
    exchanges with every micro-batch, beside that micro-batch alone: no window hides two of them.
    """
    v = 1.0 if cut.zero == 3 else cut.v
    return 1 + (v - 1) / v * np.minimum(cut.p, cut.num_microbatches)


def _tied(point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> list[Collective]:
    """First and last stage add up the gradients of the table that they share, if they lie on two ranks."""
    apart = np.asarray((stages.head * (1 - stages.beside)).any(axis=1))
    if not model.tied_embeddings or point.layout.spread_vocab != "none" or not apart.any():
        return []
    table_bytes = model.vocab * model.hidden / cut.t * point.stack.reduce_bytes
    ends = (stages.embedding + stages.head) * apart[:, None]
    axes = [(2.0, cut.stride("p") * np.maximum(cut.p - 1, 1))]
    group = topology.group(point.cluster, point.costs, axes, cut.gpus, "tied")
    return [Collective("tied", "all-reduce", group, table_bytes, ends)]


def _stage_s(seconds: StageSeconds, op: int) -> FloatArray:
    return np.asarray(sum(seconds[op].values()))
