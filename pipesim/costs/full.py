"""The full cost model: the model's real shape, rooflines and rings, with the measured constants of ``conf/``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesim.costs import collectives, compute, data_parallel, memory, parameters
from pipesim.costs.columns import FloatArray, Number, stacked
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import dense_matrices, expert_matrices
from pipesim.costs.prices import Prices
from pipesim.costs.stage import Stages, StageSeconds, recomputed_share, stage_contents, stage_seconds
from pipesim.specs import ModelSpec, Point


def price(points: Sequence[Point], cut: Cut, ranks: Sequence[int]) -> Prices:
    """``points`` share all words (``estimate.price_key``), ``cut`` holds their numbers, ``ranks`` each stage's rank."""
    first = points[0]
    cluster, costs, stack = first.cluster, first.costs, first.stack
    model = stacked([point.model for point in points])
    stages = _stages(points)
    shared, experts = _stage_parameters(model, cut, stages, ranks)
    states = _states(shared, experts, cut, stack.gradient_bytes)
    seconds = stage_seconds(model, cluster, costs, stack, cut, stages)
    hop_bytes = cut.tokens * model.hidden * memory.ELEMENT_BYTES / cut.norm_share
    boundary_s = _boundary_s(first, cut, hop_bytes, ranks)
    if stack.blocking_hops:
        seconds = _with_hops(seconds, boundary_s)
    exchange = data_parallel.exchange(first, model, cut, stages, seconds, shared, experts, ranks)
    flops, again = _flops_per_token(model, cut, recomputed_share(cut, stages), stages)
    expert_shards = np.maximum(cut.shards / cut.e, 1.0)
    updated = (shared / cut.shards + experts / expert_shards) if cut.zero else shared + experts
    rows = np.zeros((len(points), 1))
    return Prices(
        seconds=seconds,
        hop_bytes=_flat(hop_bytes + rows),
        hop_s=np.zeros(len(points)) if stack.blocking_hops else boundary_s.max(axis=1, initial=0.0),
        model_parameters=_flat(np.asarray(parameters.total_parameters(model), np.float64) + rows),
        parameters=shared + experts,
        weights_bytes=states["weights"],
        gradients_bytes=states["gradients"],
        optimizer_bytes=states["optimizer"],
        kept_bytes=_kept_bytes(first, model, cut, stages),
        working_bytes=_working_bytes(first, model, cut, stages),
        logits_bytes=np.asarray(memory.head_bytes(model, cut, stack, stages.head, first.layout.spread_vocab)),
        buffer_bytes=_gathered_bytes(model, cut, stages) + _narrow_copies_bytes(first, model, cut, stages),
        context_bytes=stack.device_context_bytes,
        slack=stack.slack,
        tp_sent_bytes=(stages.dense + stages.moe) * _tp_sent_bytes(model, cut),
        dp_sent_bytes=exchange.sent_bytes,
        dp_s=exchange.exposed_s,
        optimizer_s=updated * stack.optimizer_bytes / (cluster.hbm_bytes_per_s * costs.hbm_efficiency),
        step_s=stack.step_s,
        model_flops_per_token=_flat(flops + rows),
        hardware_flops_per_token=_flat(flops + again + rows),
    )


def _stages(points: Sequence[Point]) -> Stages:
    partitions = []
    for point in points:
        assert not isinstance(point.layout.partition, str)
        partitions.append(point.layout.partition)
    return stage_contents([point.model for point in points], partitions, points[0].layout.spread_vocab != "none")


def _boundary_s(point: Point, cut: Cut, hop_bytes: Number, ranks: Sequence[int]) -> FloatArray:
    """Seconds of a result over each boundary between stages, shape (points, stages - 1); 0 where it stays on its rank."""
    here, there = np.array(ranks[:-1]), np.array(ranks[1:])
    cluster, costs = point.cluster, point.costs
    stride = cut.stride("p")
    node = [np.floor(rank * np.asarray(stride) / cluster.gpus_per_node) for rank in (here, there)]
    crosses = (node[0] != node[1]) | (np.abs(here - there) * np.asarray(stride) >= cluster.gpus_per_node)
    inside = collectives.intra_node_link(cluster, costs)
    sharing = np.minimum(stride, cluster.gpus_per_node)
    network = collectives.network_bytes_per_s(cluster, costs, 2.0)
    across = np.minimum(network / sharing, inside.bandwidth_bytes_per_s)
    slow = hop_bytes / across + cluster.inter_node.latency_s
    fast = hop_bytes / inside.bandwidth_bytes_per_s + cluster.intra_node.latency_s
    return np.asarray((here != there) * (point.stack.hop_start_s + np.where(crosses, slow, fast)))


def _with_hops(seconds: StageSeconds, boundary_s: FloatArray) -> StageSeconds:
    """Each stage stands still while its output goes on to the next and its gradient back to the one before."""
    nothing = np.zeros((len(boundary_s), 1))
    return StageSeconds(
        seconds.forward | {"hop": np.hstack([boundary_s, nothing])},
        seconds.input_grad | {"hop": np.hstack([nothing, boundary_s])},
        seconds.weight_grad,
    )


def _states(shared: FloatArray, experts: FloatArray, cut: Cut, gradient_bytes: int) -> dict[str, FloatArray]:
    """Experts are divided among fewer ranks: each rank of a group of e holds others."""
    expert_shards = np.maximum(cut.shards / cut.e, 1.0)
    own = memory.state_bytes(shared, cut.shards, cut.zero, gradient_bytes)
    routed = memory.state_bytes(experts, expert_shards, cut.zero, gradient_bytes)
    return {item: np.asarray(own[item] + routed[item]) for item in own}


def _stage_parameters(
    model: ModelSpec, cut: Cut, stages: Stages, ranks: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Parameters of one GPU on each stage: those every data rank holds, and the routed experts. (points, stages).

    A tied head is a copy of its own unless its rank holds the embedding too.
    """
    table = model.vocab * model.hidden  # positions and the norm behind it are whole on every tensor rank
    shared = stages.embedding * (table / cut.t + parameters.embedding_parameters(model) - table)
    rank_of = np.array(ranks)
    beside = (stages.embedding > 0) | (rank_of == rank_of[stages.embedding.argmax(axis=1)][:, None])
    own_head = stages.head * ~beside if model.tied_embeddings else stages.head
    shared = shared + own_head * parameters.head_parameters(model) / cut.t
    shared = shared + stages.head * parameters.final_norm_parameters(model)
    experts = np.zeros_like(shared)
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            layer = parameters.layer_parameters(model, moe)
            shared = shared + count * (layer.sharded / cut.t + layer.replicated)
            experts = experts + count * layer.expert / (np.multiply(cut.t, cut.e))
    return shared, experts


def _gathered_bytes(model: ModelSpec, cut: Cut, stages: Stages) -> FloatArray:
    """Weights of two layers and the gradients of one that ZeRO-3 holds whole while it runs a layer and fetches the next."""
    if cut.zero < 3:
        return np.zeros_like(stages.head)
    moe = bool(stages.moe.any())
    layer = parameters.layer_parameters(model, moe)
    held = layer.sharded / cut.t + layer.replicated + layer.expert / np.multiply(cut.t, cut.e)
    divided = np.asarray(cut.shards) > 1  # one rank alone holds everything as it is
    return np.asarray(3 * memory.ELEMENT_BYTES * held * divided * (stages.dense + stages.moe > 0))


def _narrow_copies_bytes(point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> FloatArray:
    """fp8 copies of the layers' matrices and their transposes; of two layers where ZeRO-3 gathers them for use."""
    total = np.zeros_like(stages.head)
    if not memory.narrow_copies(cut, point.stack):
        return total
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            layer = parameters.layer_parameters(model, moe)
            copies = 2 * memory.NARROW_BYTES * (layer.sharded / cut.t + layer.expert / np.multiply(cut.t, cut.e))
            total = total + copies * (np.minimum(count, 2) if cut.zero >= 3 else count)
    return total


def _kept_bytes(point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> FloatArray:
    """Activations of one micro-batch on each stage: of layers that run again and of those that do not."""
    again, total = recomputed_share(cut, stages), np.zeros_like(stages.head)
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            whole = memory.layer_activation_bytes(model, cut, point.stack, moe=moe)
            kept = memory.recomputed_layer_bytes(model, cut, point.stack, moe=moe)
            total = total + count * ((1 - again) * whole + again * kept)
    return total


def _working_bytes(point: Point, model: ModelSpec, cut: Cut, stages: Stages) -> FloatArray:
    """What recomputation brings back while one layer's backward runs."""
    again, largest = recomputed_share(cut, stages) > 0, np.zeros_like(stages.head)
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            whole = memory.layer_activation_bytes(model, cut, point.stack, moe=moe)
            kept = memory.recomputed_layer_bytes(model, cut, point.stack, moe=moe)
            largest = np.maximum(largest, (count > 0) * again * (whole - kept))
    return largest


def _flops_per_token(model: ModelSpec, cut: Cut, again: FloatArray, stages: Stages) -> tuple[Number, Number]:
    """Model FLOPs of a token, and those that recomputation adds."""
    layers: Number = 0.0
    for count, moe in ((parameters.dense_layers(model), False), (parameters.moe_layers(model), True)):
        layers = layers + count * sum(matrix.weights for matrix in dense_matrices(model, moe))
    if model.moe is not None:
        layers = layers + parameters.moe_layers(model) * model.moe.top_k * sum(
            m.weights for m in expert_matrices(model)
        )
    flops = compute.model_flops_per_token(model, cut.seq_length, layers + model.hidden * model.vocab)
    attention = compute.model_flops_per_token(model, cut.seq_length, 0.0) / 3
    layer_count = stages.dense + stages.moe
    share = ((again * layer_count).sum(axis=1) / np.maximum(layer_count.sum(axis=1), 1.0))[:, None]
    extra = {"none": 0.0, "selective": attention, "operators": 1.0 * layers, "full": 2 * layers + attention}[
        cut.recompute
    ]
    return flops, share * extra


def _tp_sent_bytes(model: ModelSpec, cut: Cut) -> Number:
    """All-reduces of one layer and micro-batch: two forward, two backward, two more where the forward runs again."""
    all_reduces = 6 if cut.recompute == "full" else 4
    message = cut.tokens * model.hidden * memory.ELEMENT_BYTES
    return all_reduces * 2 * collectives.ring_sent_bytes(message, cut.t)


def _flat(values: Number) -> FloatArray:
    """(points, 1) to (points,)."""
    return np.asarray(values, np.float64).reshape(-1)
