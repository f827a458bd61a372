"""Which units each stage holds, and what a stage costs: blocks priced once, then summed over what the stage holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pipesim.costs import collectives, compute
from pipesim.costs.collectives import FloatArray, Number
from pipesim.costs.compute import BlockSeconds, Parts
from pipesim.costs.cut import Cut
from pipesim.costs.memory import ELEMENT_BYTES
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec


class Stages(NamedTuple):
    """How many blocks of each kind the stages hold, shape (stages,) each."""

    embedding: FloatArray
    dense: FloatArray
    moe: FloatArray
    head: FloatArray


class StageSeconds(NamedTuple):
    """Seconds of one micro-batch on each stage by item, shape (points, stages), for each op."""

    forward: dict[str, FloatArray]
    input_grad: dict[str, FloatArray]
    weight_grad: dict[str, FloatArray]


def balanced_partition(units: int, stages: int, ranks: Sequence[int] = ()) -> tuple[int, ...]:
    """Units per stage, as even as possible. What is left over goes to the ends first, from the first stage on: they
    hold the embedding and the head, so that 80 layers on 8 stages become 10 layers each. ``ranks`` says on which rank
    each stage lies, if several share one: a rank gets a second unit more only when every rank has one.

    >>> balanced_partition(82, 8)
    (11, 10, 10, 10, 10, 10, 10, 11)
    >>> balanced_partition(6, 4, ranks=(0, 1, 1, 0))
    (2, 2, 1, 1)
    """
    base, extra = divmod(units, stages)
    rank_of = list(ranks) or list(range(stages))
    ends_first = sorted(range(stages), key=lambda stage: (min(stage, stages - 1 - stage), stage))
    more: list[int] = []
    for _ in range(extra):
        on_rank = Counter(rank_of[stage] for stage in more)
        more.append(min((s for s in ends_first if s not in more), key=lambda s: on_rank[rank_of[s]]))
    return tuple(base + (stage in more) for stage in range(stages))


def stage_contents(model: ModelSpec, partition: tuple[int, ...]) -> Stages:
    """Units in order: the embedding, the layers (dense ones first where the model mixes), the head."""
    dense = model.layers if model.moe is None else model.moe.dense_layers
    kinds = np.zeros((model.units, 4))
    kinds[0, 0] = kinds[-1, 3] = 1
    kinds[1 : 1 + dense, 1] = 1
    kinds[1 + dense : -1, 2] = 1
    ends = np.cumsum(partition)
    held = [kinds[end - units : end].sum(axis=0) for end, units in zip(ends, partition, strict=True)]
    return Stages(*np.array(held).T)


def stage_seconds(
    model: ModelSpec, cluster: ClusterSpec, costs: CostConstants, cut: Cut, stages: Stages
) -> StageSeconds:
    """Items of every op: matmul, attention, elementwise, launch, recompute, tp, cp, ep."""
    on = compute.machine(cluster, costs, cut)
    blocks = [
        (stages.embedding, _priced(compute.embedding_seconds(model, cut, on), {}, cut, costs, is_layer=False)),
        (stages.head, _priced(compute.head_seconds(model, cut, on), {}, cut, costs, is_layer=False)),
    ]
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            talk = layer_communication_s(model, cluster, costs, cut, moe=moe)
            seconds = compute.layer_seconds(model, cut, on, moe=moe)
            blocks.append((count, _priced(seconds, talk, cut, costs, is_layer=True)))
    return StageSeconds(*(_sum([(count, ops[op]) for count, ops in blocks]) for op in range(3)))


def layer_communication_s(
    model: ModelSpec, cluster: ClusterSpec, costs: CostConstants, cut: Cut, *, moe: bool
) -> dict[str, Number]:
    """Seconds of one layer's forward communication; its backward takes the same.

    tp: one all-reduce after attention and one after the MLP, or the reduce-scatter and all-gather that sequence
    parallelism splits each into (Korthikanti et al. 2022, section 4.2.2). cp: keys and values go once around the ring
    (Liu et al., "Ring Attention", 2023); their gradients travel backward as well. ep: tokens to their experts and back.
    """
    group_link = partial(collectives.group_link, cluster, costs, gpus=cut.gpus)
    activation_bytes = cut.tokens * model.hidden * ELEMENT_BYTES
    tp = 2 * collectives.ring_all_reduce_s(activation_bytes, cut.t, group_link(cut.t, 1))
    cp = collectives.ring_half_s(cut.c * key_value_bytes(model, cut), cut.c, group_link(cut.c, cut.t))
    talk: dict[str, Number] = {"tp": tp, "cp": cp}
    if moe and model.moe is not None:
        talk["ep"] = 2 * collectives.all_to_all_s(activation_bytes * model.moe.top_k, cut.e, group_link(cut.e, cut.t))
    return talk


def key_value_bytes(model: ModelSpec, cut: Cut) -> Number:
    """Keys and values of one rank's tokens, which context parallelism passes on."""
    width = model.mla.kv_rank + model.mla.rope_head_dim if model.mla else 2 * model.kv_heads * model.head_dim / cut.t
    return cut.tokens * width * ELEMENT_BYTES


def _priced(
    block: BlockSeconds, talk: dict[str, Number], cut: Cut, costs: CostConstants, *, is_layer: bool
) -> tuple[dict[str, Number], dict[str, Number], dict[str, Number]]:
    """One block's items for F, I and W. A layer takes at least as long as the host needs to launch its kernels."""
    host_s = costs.layer_launch_s if is_layer else 0.0
    forward = _items(block.forward) | _launch(block.forward, host_s) | talk
    input_grad = _items(block.input_grad) | _launch(block.input_grad, host_s) | talk
    if is_layer and cut.recompute == "full":
        again = sum(_items(block.forward).values()) + forward["launch"]
        input_grad |= {"recompute": again, "tp": 2 * talk["tp"], "cp": 2 * talk["cp"]}
    if is_layer and cut.recompute == "selective":
        input_grad |= {"recompute": block.forward.attention_s}
    return forward, input_grad, _items(block.weight_grad)


def _items(parts: Parts) -> dict[str, Number]:
    return {"matmul": parts.matmul_s, "attention": parts.attention_s, "elementwise": parts.elementwise_s}


def _launch(parts: Parts, host_s: float) -> dict[str, Number]:
    return {"launch": np.maximum(host_s - parts.total_s(), 0.0)}


def _sum(blocks: list[tuple[FloatArray, dict[str, Number]]]) -> dict[str, FloatArray]:
    """Count times seconds, item by item; counts are (stages,), seconds (points, 1)."""
    total: dict[str, FloatArray] = {}
    for count, items in blocks:
        for name, seconds in items.items():
            total[name] = total.get(name, 0.0) + count * np.asarray(seconds)
    return total
