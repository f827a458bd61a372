"""The full cost model: the model's real shape, rooflines and rings, with the measured constants of ``conf/``."""

from __future__ import annotations

import numpy as np

from pipesim.costs import data_parallel, memory, parameters, traffic, vocabulary
from pipesim.costs import flops as flops_
from pipesim.costs.columns import FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.prices import Prices
from pipesim.costs.stage import Stages, recomputed_share, stage_seconds, table_parameters
from pipesim.specs import ModelSpec, Point, StackSpec


def price(first: Point, model: ModelSpec, cut: Cut, stages: Stages) -> Prices:
    """``first`` is any of the points: all share its words. ``model`` may be stacked, ``stages`` are kinds of stages."""
    cluster, costs, stack = first.cluster, first.costs, first.stack
    shared, experts = _stage_parameters(model, cut, stages)
    states = _states(shared, experts, cut, stack)
    spread = first.layout.spread_vocab
    seconds = vocabulary.added(stage_seconds(model, cluster, costs, stack, cut, stages), first, model, cut, stages)
    hop_bytes = cut.tokens * model.hidden * memory.ELEMENT_BYTES / cut.norm_share
    exchange = data_parallel.exchange(first, model, cut, stages, seconds, shared, experts)
    layers = traffic.of_layers(first, model, cut, stages)
    forward, backward = vocabulary.collectives(model, cluster, costs, cut, spread)
    talk = (*layers, *forward, *backward, *exchange.collectives)
    none = np.zeros_like(shared)
    flops, hardware = flops_.per_token(costs.convention, model, cut, recomputed_share(cut, stages), stages)
    expert_shards = np.maximum(cut.shards / cut.e, 1.0)
    updated = (shared / cut.shards + experts / expert_shards) if cut.zero else shared + experts
    rows = np.zeros((len(stages.head), 1))
    return Prices(
        seconds=seconds,
        repeated_share=none + recomputed_share(cut, stages) * (cut.recompute == "full"),
        hop_bytes=_flat(hop_bytes + rows),
        model_parameters=_flat(np.asarray(parameters.total_parameters(model), np.float64) + rows),
        parameters=shared + experts,
        weights_bytes=states["weights"],
        gradients_bytes=states["gradients"],
        optimizer_bytes=states["optimizer"],
        kept_bytes=_kept_bytes(first, model, cut, stages),
        working_bytes=_working_bytes(first, model, cut, stages),
        logits_bytes=np.asarray(memory.head_bytes(model, cut, stack, stages.head, spread)),
        buffer_bytes=_whole_bytes(first, model, cut, stages, shared, experts)
        + _narrow_copies_bytes(first, model, cut, stages),
        context_bytes=stack.device_context_bytes,
        slack=stack.slack,
        collectives=talk,
        tp_sent_bytes=none + traffic.sent_bytes(talk, "tp"),
        dp_sent_bytes=none + traffic.sent_bytes(talk, "dp"),
        dp_s=exchange.exposed_s,
        optimizer_s=updated * stack.optimizer_bytes / (cluster.hbm_bytes_per_s * costs.hbm_efficiency),
        step_s=stack.step_s,
        model_flops_per_token=_flat(flops + rows),
        hardware_flops_per_token=_flat(hardware + rows),
    )


def _states(shared: FloatArray, experts: FloatArray, cut: Cut, stack: StackSpec) -> dict[str, FloatArray]:
    """Experts are divided among fewer ranks: each rank of a group of e holds others."""
    expert_shards = np.maximum(cut.shards / cut.e, 1.0)
    own = memory.state_bytes(shared, cut.shards, cut.zero, stack.gradient_bytes, stack.fsdp)
    routed = memory.state_bytes(experts, expert_shards, cut.zero, stack.gradient_bytes, stack.fsdp)
    return {item: np.asarray(own[item] + routed[item]) for item in own}


def _stage_parameters(model: ModelSpec, cut: Cut, stages: Stages) -> tuple[FloatArray, FloatArray]:
    """Parameters of one GPU on each stage: those every data rank holds, and the routed experts. (points, stages).

    A tied head is a copy of its own unless its rank holds the embedding too.
    """
    table = model.vocab * model.hidden  # positions and the norm behind it are whole on every tensor rank
    shared = stages.embedding * (table / cut.t + parameters.embedding_parameters(model) - table)
    own_head = stages.head * (1 - stages.beside) if model.tied_embeddings else stages.head
    shared = shared + own_head * parameters.head_parameters(model) / cut.t
    shared = shared + stages.head * parameters.final_norm_parameters(model)
    experts = np.zeros_like(shared)
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            own, routed = parameters.layer_parameters(model, moe).on_rank(cut.t, cut.e)
            shared, experts = shared + count * own, experts + count * routed
    return shared, experts


def _whole_bytes(
    point: Point, model: ModelSpec, cut: Cut, stages: Stages, shared: FloatArray, experts: FloatArray
) -> FloatArray:
    """What ZeRO-2 and 3 hold undivided. Without a pipeline ZeRO-3 has weights of two layers and the gradients of one while it
    runs a layer and fetches the next; FSDP also both ends of the model, from the forward's start to the backward's end, and
    the buffer in which they arrived (PyTorch ``_fsdp_collectives.py``: it is of another stream, which keeps it). In one, all
    weights of a stage from their first use to the end of the step, so that no micro-batch fetches them again, and with both
    stages of ZeRO all its gradients until the last micro-batch sends them, beyond the shares that ``memory.state_bytes``
    counts. Source: torchtitan ``distributed/fsdp.py`` (no resharding after forward in a pipeline); PyTorch
    ``pipelining/stage.py`` (neither gradient exchange nor resharding before the last micro-batch).
    """
    elsewhere = shared * (1 - 1 / np.asarray(cut.shards)) + experts * (1 - 1 / np.maximum(cut.shards / cut.e, 1.0))
    accumulated = point.stack.gradient_bytes * elsewhere * np.greater(cut.num_microbatches, 1)
    if cut.zero < 3:
        return accumulated * np.greater(cut.p, 1) * (cut.zero == 2)
    layer = sum(parameters.layer_parameters(model, moe=bool(stages.moe.any())).on_rank(cut.t, cut.e))
    passing = 3 * memory.ELEMENT_BYTES * layer * (stages.dense + stages.moe > 0)
    passing = passing + 2 * memory.ELEMENT_BYTES * table_parameters(model, cut, stages) * point.stack.fsdp
    staying = memory.ELEMENT_BYTES * (shared + experts) + accumulated
    divided = np.asarray(cut.shards) > 1  # one rank alone holds everything as it is
    return np.asarray(divided * np.where(np.greater(cut.p, 1), np.maximum(staying, passing), passing))


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
    """What recomputation brings back while one layer's backward runs, and what context ranks hold beside."""
    again, largest = recomputed_share(cut, stages) > 0, np.zeros_like(stages.head)
    for count, moe in ((stages.dense, False), (stages.moe, True)):
        if count.any():
            whole = memory.layer_activation_bytes(model, cut, point.stack, moe=moe)
            kept = memory.recomputed_layer_bytes(model, cut, point.stack, moe=moe)
            largest = np.maximum(largest, (count > 0) * again * (whole - kept))
    return largest + (stages.dense + stages.moe > 0) * memory.context_bytes(model, cut)


def _flat(values: Number) -> FloatArray:
    """(points, 1) to (points,)."""
    return np.asarray(values, np.float64).reshape(-1)
