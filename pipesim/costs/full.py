"""The full cost model: the model's real shape, rooflines and rings, with the measured constants of ``conf/costs``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipesim.costs import collectives, compute, memory, parameters
from pipesim.costs.collectives import FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import dense_matrices, expert_matrices
from pipesim.costs.prices import Prices
from pipesim.costs.stage import Stages, stage_contents, stage_seconds
from pipesim.specs import ModelSpec, ParallelLayout, Point


def price(point: Point, cut: Cut) -> Prices:
    """``point`` gives what all points of the batch share (its partition is spelt out), ``cut`` their numbers."""
    model, cluster, costs, layout = point.model, point.cluster, point.costs, point.layout
    assert not isinstance(layout.partition, str)
    stages = stage_contents(model, layout.partition)
    shared, experts = _stage_parameters(model, layout, cut, stages)
    replicas, expert_replicas = np.multiply(cut.d, cut.c), np.multiply(cut.d, cut.c) / cut.e
    states = {
        item: np.asarray(own) + memory.state_bytes(experts, expert_replicas, cut.zero, cut.gradient_bytes)[item]
        for item, own in memory.state_bytes(shared, replicas, cut.zero, cut.gradient_bytes).items()
    }

    dp_bytes, dp_s = np.zeros_like(shared), np.zeros_like(shared)
    for held, group, apart in ((shared, replicas, cut.t), (experts, expert_replicas, cut.t * cut.e)):
        link = collectives.group_link(cluster, costs, group, apart, cut.gpus)
        for count, each in _data_parallel_halves(point, cut):
            dp_bytes = dp_bytes + count * collectives.ring_sent_bytes(held * each, group)
            dp_s = dp_s + count * collectives.ring_half_s(held * each, group, link) * (held > 0)
    updated = (shared / replicas + experts / expert_replicas) if cut.zero else shared + experts

    hop_bytes = cut.tokens * model.hidden * memory.ELEMENT_BYTES / cut.norm_share
    hop_link = collectives.group_link(cluster, costs, layout.p, cut.t * replicas, cut.gpus)
    flops, again = _flops_per_token(model, cut)
    return Prices(
        seconds=stage_seconds(model, cluster, costs, cut, stages),
        hop_bytes=_flat(hop_bytes),
        hop_s=_flat(collectives.send_s(hop_bytes, hop_link) if layout.p > 1 else 0.0 * hop_bytes),
        model_parameters=parameters.total_parameters(model),
        parameters=shared + experts,
        weights_bytes=states["weights"],
        gradients_bytes=states["gradients"],
        optimizer_bytes=states["optimizer"],
        kept_bytes=_per_layer(stages, lambda moe: memory.kept_layer_bytes(model, cut, moe=moe)),
        working_bytes=_largest(stages, lambda moe: memory.working_set_bytes(model, cut, moe=moe)),
        logits_bytes=stages.head * memory.logits_bytes(model, cut, costs),
        context_bytes=costs.device_context_bytes,
        tp_sent_bytes=(stages.dense + stages.moe) * _tp_sent_bytes(model, cut),
        dp_sent_bytes=dp_bytes,
        dp_s=(1 - costs.dp_overlap) * dp_s,
        optimizer_s=updated * costs.optimizer_bytes / (cluster.hbm_bytes_per_s * costs.hbm_efficiency),
        model_flops_per_token=_flat(flops),
        hardware_flops_per_token=_flat(flops + again),
    )


def _data_parallel_halves(point: Point, cut: Cut) -> tuple[tuple[Number, int], ...]:
    """How often a step reduces gradients and gathers weights, each half an all-reduce, and the bytes per parameter.

    Without ZeRO the reduced gradients are gathered, with it the updated weights. ZeRO-3 gathers weights forward and
    backward and reduces gradients for every micro-batch. Source: Rajbhandari et al. 2020, section 7.
    """
    if cut.zero < 3:
        return (1, cut.reduce_bytes), (1, memory.ELEMENT_BYTES if cut.zero else cut.reduce_bytes)
    m = point.training.global_batch / (cut.micro_batch * cut.d)
    return (m, cut.reduce_bytes), (2 * m, memory.ELEMENT_BYTES)


def _stage_parameters(
    model: ModelSpec, layout: ParallelLayout, cut: Cut, stages: Stages
) -> tuple[FloatArray, FloatArray]:
    """Parameters of one GPU on each stage: those every data rank holds, and the routed experts. (points, stages).

    A tied head is a copy of its own unless one stage holds both ends.
    """
    table = model.vocab * model.hidden  # positions and the norm behind it are whole on every tensor rank
    shared = stages.embedding * (table / cut.t + parameters.embedding_parameters(model) - table)
    own_head = stages.head * (1 - stages.embedding) if model.tied_embeddings else stages.head
    shared = shared + own_head * parameters.head_parameters(model) / cut.t
    shared = shared + stages.head * parameters.final_norm_parameters(model)
    experts = np.zeros_like(shared)
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            layer = parameters.layer_parameters(model, moe)
            shared = shared + count * (layer.sharded / cut.t + layer.replicated)
            experts = experts + count * layer.expert / (np.multiply(cut.t, cut.e))
    return shared, experts


def _flops_per_token(model: ModelSpec, cut: Cut) -> tuple[Number, Number]:
    """Model FLOPs of a token, and those that recomputation adds."""
    layers = sum(
        count * sum(matrix.weights for matrix in dense_matrices(model, moe))
        for count, moe in ((parameters.dense_layers(model), False), (parameters.moe_layers(model), True))
    )
    if model.moe is not None:
        layers += parameters.moe_layers(model) * model.moe.top_k * sum(m.weights for m in expert_matrices(model))
    flops = compute.model_flops_per_token(model, cut.seq_length, layers + model.hidden * model.vocab)
    attention = compute.model_flops_per_token(model, cut.seq_length, 0) / 3
    return flops, {"none": 0.0 * attention, "selective": attention, "full": 2 * layers + attention}[cut.recompute]


def _tp_sent_bytes(model: ModelSpec, cut: Cut) -> Number:
    """All-reduces of one layer and micro-batch: two forward, two backward, two more where the forward runs again."""
    all_reduces = 6 if cut.recompute == "full" else 4
    message = cut.tokens * model.hidden * memory.ELEMENT_BYTES
    return all_reduces * 2 * collectives.ring_sent_bytes(message, cut.t)


def _per_layer(stages: Stages, bytes_of: Callable[..., Number]) -> FloatArray:
    total = stages.dense * bytes_of(False)
    return total + stages.moe * bytes_of(True) if stages.moe.any() else total


def _largest(stages: Stages, bytes_of: Callable[..., Number]) -> FloatArray:
    dense = np.asarray((stages.dense > 0) * bytes_of(False), np.float64)
    return np.maximum(dense, (stages.moe > 0) * bytes_of(True)) if stages.moe.any() else dense


def _flat(values: Number) -> FloatArray:
    """(points, 1) to (points,)."""
    return np.asarray(values, np.float64).reshape(-1)
