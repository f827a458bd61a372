"""The lecture's idealised cost model: equal blocks, peak FLOP/s, free communication, and model states as all of memory.

It gives closed forms to learn from: states (2 + 2 + 12/d) bytes per parameter, bubble (p - 1) / (m + p - 1).
"""

from __future__ import annotations

import math

import numpy as np

from pipesim.costs import memory, parameters
from pipesim.costs.collectives import ring_sent_bytes
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


def price(point: Point, cut: Cut) -> Prices:
    """Every stage holds the same share; a backward takes twice a forward (2 FLOPs per parameter and token)."""
    assert point.layout.v is not None
    points, stages = np.size(cut.t), point.layout.p * point.layout.v
    even = np.ones((points, stages))
    held = even * nominal_parameters(point.model) / (stages * np.asarray(cut.t))
    states = {
        name: np.asarray(each) for name, each in memory.state_bytes(held, cut.d, cut.zero, GRADIENT_BYTES).items()
    }
    forward_s = 2 * held * cut.tokens / point.cluster.peak_flops_per_s[cut.precision]
    flops_per_token = np.full(points, 6.0 * nominal_parameters(point.model))
    nothing = 0.0 * even
    return Prices(
        seconds=StageSeconds({"matmul": forward_s}, {"matmul": forward_s}, {"matmul": forward_s}),
        hop_bytes=np.ravel(cut.tokens * point.model.hidden * memory.ELEMENT_BYTES * even[:, :1]),
        hop_s=np.zeros(points),
        model_parameters=nominal_parameters(point.model),
        parameters=held,
        weights_bytes=states["weights"],
        gradients_bytes=states["gradients"],
        optimizer_bytes=states["optimizer"],
        kept_bytes=nothing,
        working_bytes=nothing,
        logits_bytes=nothing,
        context_bytes=0.0,
        tp_sent_bytes=nothing,
        dp_sent_bytes=np.asarray(2 * ring_sent_bytes(GRADIENT_BYTES * held, cut.d)),
        dp_s=nothing,
        optimizer_s=nothing,
        model_flops_per_token=flops_per_token,
        hardware_flops_per_token=flops_per_token,
    )
