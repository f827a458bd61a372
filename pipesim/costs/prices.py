"""What a cost model says about points that share a schedule: the numbers that a simulated step is assembled from."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.costs.collectives import FloatArray
from pipesim.costs.stage import StageSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Shapes: (points, stages) for what a stage does or holds, (points,) for the rest. Bytes and parameters of one GPU."""

    seconds: StageSeconds
    hop_bytes: FloatArray
    hop_s: FloatArray
    model_parameters: int
    parameters: FloatArray
    weights_bytes: FloatArray
    gradients_bytes: FloatArray
    optimizer_bytes: FloatArray
    kept_bytes: FloatArray
    """Activations of one micro-batch in flight."""
    working_bytes: FloatArray
    """Held while one block's backward runs, once on a rank."""
    logits_bytes: FloatArray
    context_bytes: float
    tp_sent_bytes: FloatArray
    """Of one micro-batch, forward and backward."""
    dp_sent_bytes: FloatArray
    dp_s: FloatArray
    optimizer_s: FloatArray
    model_flops_per_token: FloatArray
    hardware_flops_per_token: FloatArray
