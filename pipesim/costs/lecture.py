"""The lecture's idealised cost model: equal blocks, peak FLOP/s, free communication, and model states as all of memory.

It gives closed forms to learn from: states (2 + 2 + 12/d) bytes per parameter, bubble (p - 1) / (m + p - 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipesim.costs import hops, memory, parameters, topology
from pipesim.costs.collectives import Collective
from pipesim.costs.cut import Cut
from pipesim.costs.prices import Prices
from pipesim.costs.stage import StageSeconds
from pipesim.specs import ModelSpec, Point

GRADIENT_BYTES = 2
"""Gradients are kept and reduced in bf16."""


def nominal_parameters(model: ModelSpec) -> int:
    """The model's parameters to three significant digits, as its name says them: 176e9 for BLOOM's 176,247,271,424."""
    total = parameters.total_parameters(model)
    digits = int(10 ** max(0, math.floor(math.log10(total)) - 2))
    return round(total / digits) * digits


def price(points: Sequence[Point], cut: Cut, ranks: Sequence[int]) -> Prices:
    """Every stage holds the same share; a backward takes twice a forward (2 FLOPs per parameter and token)."""
    cluster = points[0].cluster
    even = np.ones((len(points), len(ranks)))
    model_parameters = np.array([nominal_parameters(point.model) for point in points], np.float64)
    hidden = np.array([point.model.hidden for point in points], np.float64)
    held = even * model_parameters[:, None] / (len(ranks) * np.asarray(cut.t))
    states = {
        name: np.asarray(each) for name, each in memory.state_bytes(held, cut.d, cut.zero, GRADIENT_BYTES).items()
    }
    forward_s = 2 * held * cut.tokens / cluster.peak_flops_per_s[cut.precision]
    nothing = 0.0 * even
    hop_bytes = np.asarray(cut.tokens * even[:, :1]) * hidden[:, None] * memory.ELEMENT_BYTES
    replicas = topology.group(cluster, points[0].costs, cut.replica_axes, cut.gpus)
    reduced = Collective("dp", "all-reduce", replicas, GRADIENT_BYTES * held, even)
    return Prices(
        seconds=StageSeconds({"matmul": forward_s}, {"matmul": forward_s}, {"matmul": forward_s}),
        repeated_share=nothing,
        hop_bytes=hop_bytes[:, 0],
        hop_s=np.zeros(len(points)),
        model_parameters=model_parameters,
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
        collectives=(reduced, hops.sends(points[0], cut, hop_bytes, ranks)),
        tp_sent_bytes=nothing,
        dp_sent_bytes=np.asarray(reduced.sent_bytes()),
        dp_s=nothing,
        optimizer_s=nothing,
        step_s=0.0,
        model_flops_per_token=6 * model_parameters,
        hardware_flops_per_token=6 * model_parameters,
    )
