"""What a cost model says about points: the numbers that a simulated step is assembled from."""

from __future__ import annotations

from dataclasses import dataclass

from pipesim.costs.collectives import Collective
from pipesim.costs.columns import FloatArray
from pipesim.costs.stage import StageSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Shapes: (points, kinds of stages) for what a stage does or holds, (points,) for the rest. Bytes and parameters of
    one GPU.
    """

    seconds: StageSeconds
    repeated_share: FloatArray
    """How much of a stage's forward runs again whole in its backward, communication and launches included."""
    hop_bytes: FloatArray
    model_parameters: FloatArray
    parameters: FloatArray
    weights_bytes: FloatArray
    gradients_bytes: FloatArray
    optimizer_bytes: FloatArray
    kept_bytes: FloatArray
    """Activations of one micro-batch in flight."""
    working_bytes: FloatArray
    """Held while one block's backward runs, once on a rank."""
    logits_bytes: FloatArray
    buffer_bytes: FloatArray
    """Weights gathered for use, communication buffers."""
    context_bytes: float
    slack: float
    """What the allocator holds above what is asked for, as a share."""
    collectives: tuple[Collective, ...]
    """Everything that is exchanged, what layers exchange for one micro-batch, the rest in a step; what differs between
    cells has shape (cells, ...).
    """
    tp_sent_bytes: FloatArray
    """Of one micro-batch, forward and backward."""
    dp_sent_bytes: FloatArray
    dp_s: FloatArray
    optimizer_s: FloatArray
    step_s: float
    model_flops_per_token: FloatArray
    hardware_flops_per_token: FloatArray
