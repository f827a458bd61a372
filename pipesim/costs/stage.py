"""Which units each stage holds, and what a stage costs: blocks priced once, then summed over what the stage holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.costs import compute, kernels, topology
from pipesim.costs.collectives import Collective, ring_pass_exposed_s
from pipesim.costs.columns import FloatArray, Number
from pipesim.costs.compute import BlockSeconds, Parts
from pipesim.costs.cut import Cut
from pipesim.costs.experts import exchange as expert_exchange
from pipesim.costs.matrices import head_dims, key_value_heads, key_value_width
from pipesim.costs.memory import ELEMENT_BYTES, gathered_element_bytes
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec, StackSpec

STEP_LAUNCHES = 0.25
"""Kernels of a ring's step over those of a whole layer: a send, attention, its statistics and its merging beside 16 (two norms,
four matrix products, positions, attention, activation, two residuals, five of communication). Counted in NVIDIA's Transformer
Engine 2.8 and Megatron-LM core_v0.14.
"""


class Stages(NamedTuple):
    """How many blocks of each kind the stages hold, shape (points, stages) each."""

    embedding: FloatArray
    dense: FloatArray
    moe: FloatArray
    head: FloatArray
    beside: FloatArray
    """1 for stages on the rank that holds the embedding, itself included."""
    alike: FloatArray
    """How many stages each stands for."""


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


def contents(layers: int, dense_layers: int, partition: ArrayLike, spread_vocab: bool) -> FloatArray:
    """Embeddings, dense layers, layers with experts and heads on each stage, shape (…, stages, 4), for units of each stage
    (…, stages). Units in order: the embedding, the layers (dense ones first where the model mixes), the head. A spread
    vocabulary leaves every stage its share of both ends.
    """
    units = np.asarray(partition, np.int64)
    last = np.cumsum(units, axis=-1)
    first = last - units
    dense, moe = (
        np.maximum(np.minimum(last, stop) - np.maximum(first, start), 0)
        for start, stop in ((1, 1 + dense_layers), (1 + dense_layers, 1 + layers))
    )
    embedding, head = (first == 0) & (units > 0), (first <= layers + 1) & (layers + 1 < last)
    found = np.stack([embedding, dense, moe, head], axis=-1).astype(np.float64)
    if spread_vocab:
        found[..., [0, 3]] = 1 / units.shape[-1]
    return found


def stage_seconds(
    model: ModelSpec,
    cluster: ClusterSpec,
    costs: CostConstants,
    stack: StackSpec,
    cut: Cut,
    stages: Stages,
) -> StageSeconds:
    """Items of every op: matmul, attention, elementwise, launch, recompute, tp, cp, ep; shape (points, stages)."""
    on = kernels.machine(cluster, costs, stack, cut)
    wide = replace(cut, precision="bf16") if cut.precision == "fp8" else cut
    in_bf16 = kernels.machine(cluster, costs, stack, wide)  # what is not in a layer stays in 16 bits
    again_share = recomputed_share(cut, stages)
    blocks = [
        (stages.embedding, _items_of(compute.embedding_seconds(model, cut, on))),
        (stages.head, _items_of(compute.head_seconds(model, cut, in_bf16))),
    ]
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            seconds = compute.layer_seconds(model, cut, on, moe=moe)
            ways = layer_collectives(model, cluster, costs, stack, cut, moe=moe)
            hiding = (seconds.forward.attention_s, seconds.input_grad.attention_s)
            forward_talk, backward_talk = (
                layer_communication_s(way, stack, cut, attention_s, backward=backward)
                for way, attention_s, backward in zip(ways, hiding, (False, True), strict=True)
            )
            repeated_talk = layer_communication_s(repeated(ways[0], cut), stack, cut, hiding[0])
            talk = (forward_talk, backward_talk, repeated_talk)
            forward, input_grad, weight_grad, again = _layer(seconds, talk, _host_s(stack, cluster, cut), cut, stack)
            blocks += [(count, (forward, input_grad, weight_grad)), (again_share * count, ({}, again, {}))]
    return StageSeconds(*(_sum([(count, ops[op]) for count, ops in blocks]) for op in range(3)))


def table_parameters(model: ModelSpec, cut: Cut, stages: Stages) -> FloatArray:
    """Token table and output matrix of one GPU on each stage, a tied one on both. (points, stages)."""
    return np.asarray((stages.embedding + stages.head) * (model.vocab * model.hidden / np.asarray(cut.t)))


def recomputed_share(cut: Cut, stages: Stages) -> FloatArray:
    """Of each stage's layers, how many run again backward; shape (points, stages)."""
    layers = stages.dense + stages.moe
    share = np.minimum(cut.recomputed, layers) / np.maximum(layers, 1.0)
    return np.asarray(share * (cut.recompute != "none"))


def layer_collectives(
    model: ModelSpec, cluster: ClusterSpec, costs: CostConstants, stack: StackSpec, cut: Cut, *, moe: bool
) -> tuple[list[Collective], list[Collective]]:
    """What one layer exchanges for one micro-batch, forward and backward.

    tp: one all-reduce after attention and one after the MLP, or the reduce-scatter and all-gather that sequence
    parallelism splits each into (Korthikanti et al. 2022, section 4.2.2); each direction. cp: keys and values go once
    around the ring, and twice backward, with their gradients (Liu et al., "Ring Attention", 2023); or they are gathered,
    backward again, and their gradients reduced (Grattafiori et al., "The Llama 3 Herd of Models", 2024, section 3.3.2); or
    all-to-alls of queries, keys, values and outputs (Jacobs et al., "DeepSpeed Ulysses", 2023), where each rank needs one
    head of keys at least. ep: tokens to their experts and back (``costs.experts``).
    Experts that are cut by t gather each copy of a token from the ranks of sequence parallelism, in 16 bits, and no
    computing hides that.
    """
    activation_bytes = cut.tokens * model.hidden * ELEMENT_BYTES
    tensor = topology.group(cluster, costs, [(cut.t, cut.stride("t"))], cut.gpus, "tp")
    kinds = ("all-gather", "reduce-scatter") if cut.sequence_parallel else ("all-reduce",)
    narrow = gathered_element_bytes(cut, stack) / ELEMENT_BYTES
    sent_bytes = [activation_bytes * (narrow if kind == "all-gather" else 1.0) for kind in kinds]
    times = 1.0 if moe else 2.0
    forward = [Collective("tp", kind, tensor, each, times) for kind, each in zip(kinds, sent_bytes, strict=True)]
    if moe:
        copies_bytes = activation_bytes * mlp_copies(model, cut)
        forward += [Collective("tp", kind, tensor, copies_bytes, 1.0, hidden=False) for kind in kinds]
    backward = list(forward)
    context = topology.group(cluster, costs, [(cut.c, cut.stride("c"))], cut.gpus, "cp")
    context_forward, context_backward = _context_collectives(model, context, cut)
    forward, backward = forward + context_forward, backward + context_backward
    if moe and model.moe is not None:
        experts, _ = topology.split(cut.replica_axes, cut.e)  # they lie on the ranks of c and d
        among = topology.group(cluster, costs, experts, cut.gpus, "ep")
        there_and_back = expert_exchange(model, model.moe, among, cut, stack)
        forward, backward = [*forward, *there_and_back], [*backward, *there_and_back]
    return forward, backward


def _context_collectives(
    model: ModelSpec, group: topology.Group, cut: Cut
) -> tuple[list[Collective], list[Collective]]:
    whole_bytes = cut.c * key_value_bytes(model, cut)
    if cut.context == "ring":
        around = Collective("cp", "ring pass", group, whole_bytes, 1.0)
        return [around], [around._replace(times=2.0)]
    if cut.context == "all_gather":
        gathered = Collective("cp", "all-gather", group, whole_bytes, 1.0, hidden=False)
        return [gathered], [gathered, gathered._replace(kind="reduce-scatter")]
    head_dim = sum(head_dims(model)) / 2  # mean of a query and an output, a key and a value
    head_bytes = cut.tokens * head_dim * ELEMENT_BYTES
    heads = model.heads / cut.t, np.maximum(key_value_heads(model, cut.t), cut.c)
    exchanged = [Collective("cp", "all-to-all", group, each * head_bytes, 2.0, hidden=False) for each in heads]
    return exchanged, exchanged


def repeated(forward: Sequence[Collective], cut: Cut) -> list[Collective]:
    """What of a layer's forward communication runs again where the layer does: all of it; where only attention does, what
    its context ranks exchange; where operators are chosen what tensor ranks gather, as only results of products and
    reductions are kept. Source: torchtitan ``parallelize_llama.py``, 2024, its save list.
    """
    match cut.recompute:
        case "full":
            return list(forward)
        case "selective":
            return [each for each in forward if each.dimension == "cp"]
        case "operators":
            return [each for each in forward if each.dimension == "tp" and each.kind == "all-gather"]
    return []


def mlp_copies(model: ModelSpec, cut: Cut) -> int:
    """How often a token is gathered from the ranks of sequence parallelism for a layer's experts, shared ones together."""
    if model.moe is None or not cut.sequence_parallel:
        return 1
    return model.moe.top_k + (model.moe.shared_experts > 0)


def layer_communication_s(
    way: Sequence[Collective], stack: StackSpec, cut: Cut, attention_s: Number, *, backward: bool = False
) -> dict[str, Number]:
    """Seconds of one layer's communication of one direction that its computing does not hide.

    The stack hides a share of tp; a ring of keys and values runs while attention computes, nothing else of cp is hidden.
    """
    found: dict[str, Number] = {}
    for each in way:
        if each.kind == "ring pass":
            seconds = ring_pass_exposed_s(each, attention_s / cut.c, backward)
        else:
            seconds = (1 - stack.tp_overlap if each.dimension == "tp" and each.hidden else 1.0) * each.seconds()
        found[each.dimension] = found.get(each.dimension, 0.0) + seconds
    return found


def key_value_bytes(model: ModelSpec, cut: Cut) -> Number:
    """Keys and values of one rank's tokens, which context parallelism passes on."""
    return cut.tokens * key_value_width(model, cut.t) * ELEMENT_BYTES


Items = dict[str, Number]


def _layer(
    block: BlockSeconds, talk: tuple[Items, Items, Items], host_s: Sequence[Number], cut: Cut, stack: StackSpec
) -> tuple[Items, Items, Items, Items]:
    """One layer's items for F, I and W, and what its backward adds where the layer runs again.

    ``host_s`` is what the host needs to launch the kernels of each; they take at least as long.
    """
    forward_talk, backward_talk, repeated_talk = talk
    forward = _items(block.forward) | forward_talk
    input_grad = _items(block.input_grad) | backward_talk
    weight_grad = _items(block.weight_grad)
    for items, host in zip((forward, input_grad, weight_grad), host_s, strict=True):
        items["launch"] = _launch(sum(items.values()), host, stack.synchronous)
    again_s = {
        "selective": block.forward.attention_s,
        "operators": block.forward.matmul_s / 2 + block.forward.elementwise_s,
    }.get(cut.recompute, block.forward.total_s() + forward["launch"])
    return forward, input_grad, weight_grad, {"recompute": again_s} | repeated_talk


def _host_s(stack: StackSpec, cluster: ClusterSpec, cut: Cut) -> tuple[Number, Number, Number]:
    """The host's seconds for one layer's F, I and W: half of a backward for each of I and W; attention in steps launches
    more kernels, forward and backward.
    """
    spans = (np.asarray(cut.p) > 1) & (np.asarray(cut.gpus) > cluster.gpus_per_node)
    third = spans * (stack.spanning_launch_s + stack.spanning_rank_launch_s * cut.t) / 3
    half = stack.backward_launch_s / 2
    more = STEP_LAUNCHES * ((cut.c if cut.context == "ring" else 1.0) - 1)
    forward, input_grad = (1 + more) * stack.forward_launch_s, half + more * stack.backward_launch_s
    return np.maximum(forward, third), np.maximum(input_grad, third), np.maximum(half, third)


def _items_of(block: BlockSeconds) -> tuple[Items, Items, Items]:
    return _items(block.forward), _items(block.input_grad), _items(block.weight_grad)


def _items(parts: Parts) -> Items:
    return {"matmul": parts.matmul_s, "attention": parts.attention_s, "elementwise": parts.elementwise_s}


def _launch(gpu_s: Number, host_s: Number, synchronous: bool) -> Number:
    """What waiting for the host adds: all of it if the GPU stands still meanwhile, else a rounded maximum of both."""
    if synchronous:
        return host_s + 0.0 * gpu_s
    return (gpu_s**4 + host_s**4) ** 0.25 - gpu_s


def _sum(blocks: list[tuple[FloatArray, Items]]) -> dict[str, FloatArray]:
    """Count times seconds, item by item; counts are (points, stages), seconds (points, 1)."""
    total: dict[str, FloatArray] = {}
    for count, items in blocks:
        for name, seconds in items.items():
            total[name] = total.get(name, 0.0) + count * np.asarray(seconds)
    return total
