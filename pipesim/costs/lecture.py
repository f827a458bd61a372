"""The lecture's idealised cost model: equal blocks, peak FLOP/s, free communication, and model states as all of memory.

It gives closed forms to learn from: states (2 + 2 + 12/d) bytes per parameter, bubble (p - 1) / (m + p - 1).
"""

from __future__ import annotations

import numpy as np

from pipesim.costs import memory, parameters, topology
from pipesim.costs.collectives import Collective
from pipesim.costs.columns import FloatArray
from pipesim.costs.cut import Cut
from pipesim.costs.prices import Prices
from pipesim.costs.stage import Stages, StageSeconds
from pipesim.specs import ModelSpec, Point

GRADIENT_BYTES = 2
"""Gradients are kept and reduced in bf16."""


def nominal_parameters(model: ModelSpec) -> FloatArray:
    """The model's parameters to three significant digits, as its name says them: 176e9 for BLOOM's 176,247,271,424."""
    total = np.asarray(parameters.total_parameters(model), np.float64)
    digits = 10.0 ** np.maximum(0, np.floor(np.log10(total)) - 2)
    return np.asarray(np.round(total / digits) * digits)


def price(first: Point, model: ModelSpec, cut: Cut, stages: Stages) -> Prices:
    """Every stage holds the same share; a backward takes twice a forward (2 FLOPs per parameter and token)."""
    cluster, even = first.cluster, np.ones_like(stages.head)
    model_parameters = nominal_parameters(model) * even[:, :1]
    held = model_parameters / (cut.p * np.asarray(cut.v) * cut.t) * even
    states = {
        name: np.asarray(each) for name, each in memory.state_bytes(held, cut.d, cut.zero, GRADIENT_BYTES).items()
    }
    forward_s = 2 * held * cut.tokens / cluster.peak_flops_per_s[cut.precision]
    nothing = 0.0 * even
    flat = model_parameters.reshape(-1)
    replicas = topology.group(cluster, first.costs, cut.replica_axes, cut.gpus)
    reduced = Collective("dp", "all-reduce", replicas, GRADIENT_BYTES * held, even)
    return Prices(
        seconds=StageSeconds({"matmul": forward_s}, {"matmul": forward_s}, {"matmul": forward_s}),
        repeated_share=nothing,
        hop_bytes=(cut.tokens * model.hidden * memory.ELEMENT_BYTES * even[:, :1]).reshape(-1),
        model_parameters=flat,
        parameters=held,
        weights_bytes=states["weights"],
        gradients_bytes=states["gradients"],
        optimizer_bytes=states["optimizer"],
        kept_bytes=nothing,
        working_bytes=nothing,
        logits_bytes=nothing,
        buffer_bytes=nothing,
        context_bytes=0.0,
        slack=0.0,
        collectives=(reduced,),
        tp_sent_bytes=nothing,
        dp_sent_bytes=np.asarray(reduced.sent_bytes()),
        dp_s=nothing,
        optimizer_s=nothing,
        step_s=0.0,
        model_flops_per_token=6 * flat,
        hardware_flops_per_token=6 * flat,
    )
