"""Bytes that one rank holds: model states by ZeRO stage, and activations by what the backward needs again."""

from __future__ import annotations

from pipesim.costs.collectives import Number
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import head_dims
from pipesim.specs import CostConstants, ModelSpec

ELEMENT_BYTES = 2
"""Weights and activations are held in bf16 or fp16."""

OPTIMIZER_BYTES = 12
"""Adam in mixed precision, per parameter: fp32 master weight, first and second moment.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, section 3.1.
"""


def state_bytes(parameters: Number, shards: Number, zero: int, gradient_bytes: int) -> dict[str, Number]:
    """Weights, gradients and optimizer state of one rank's parameters, divided over ``shards`` as the ZeRO stage says.

    Stage 1 divides the optimizer state, 2 the gradients too, 3 the weights too.
    Source: Rajbhandari et al. 2020, section 5.
    """
    return {
        "weights": parameters * ELEMENT_BYTES / (shards if zero >= 3 else 1),
        "gradients": parameters * gradient_bytes / (shards if zero >= 2 else 1),
        "optimizer": parameters * OPTIMIZER_BYTES / (shards if zero >= 1 else 1),
    }


def layer_activation_bytes(model: ModelSpec, cut: Cut, *, moe: bool) -> Number:
    """What one layer keeps of one micro-batch without any recomputation, counting saved tensors.

    For a GPT layer with dropout masks and unfused attention this is s b h (10 + 24/t + 5 a s / (h t)), with sequence
    parallelism everything over t. Source: Korthikanti et al. 2022, equations 1 to 4.
    """
    whole = model.hidden * (4 * ELEMENT_BYTES + (2 if cut.dropout else 0))  # inputs of two norms and of two matrices
    return cut.tokens * (whole / cut.norm_share + (_attention_saved(model) + _mlp_saved(model, moe=moe)) / cut.t) + (
        attention_score_bytes(model, cut)
    )


def attention_score_bytes(model: ModelSpec, cut: Cut) -> Number:
    """Softmax input and output (and dropout's mask and output) of every score; flash attention keeps none."""
    if cut.attention == "flash":
        return 0.0
    each = 2 * ELEMENT_BYTES + 1 if cut.dropout else ELEMENT_BYTES
    return each * cut.tokens * cut.seq_length * model.heads / cut.t


def kept_layer_bytes(model: ModelSpec, cut: Cut, *, moe: bool) -> Number:
    """What one layer keeps between its forward and its backward under the chosen recomputation."""
    if cut.recompute == "full":
        return cut.tokens * model.hidden * ELEMENT_BYTES / cut.norm_share
    kept = layer_activation_bytes(model, cut, moe=moe)
    return kept - attention_score_bytes(model, cut) if cut.recompute == "selective" else kept


def working_set_bytes(model: ModelSpec, cut: Cut, *, moe: bool) -> Number:
    """What recomputation brings back while one layer's backward runs."""
    return layer_activation_bytes(model, cut, moe=moe) - kept_layer_bytes(model, cut, moe=moe)


def logits_bytes(model: ModelSpec, cut: Cut, costs: CostConstants) -> Number:
    """Logits, their softmax and their gradient of one micro-batch, on the stage with the head."""
    return costs.logits_held_bytes * cut.tokens * model.vocab / cut.t


def _attention_saved(model: ModelSpec) -> Number:
    """Bytes per token: queries, keys, values and the output matrix's input."""
    key_dim, value_dim = head_dims(model)
    kv_heads = model.heads if model.mla else model.kv_heads
    return ELEMENT_BYTES * (model.heads * (key_dim + value_dim) + kv_heads * (key_dim + value_dim))


def _mlp_saved(model: ModelSpec, *, moe: bool) -> Number:
    """Bytes per token: the activation function's input (two when gated) and the down matrix's input."""
    width = model.ffn
    if moe and model.moe is not None:
        width = model.moe.ffn * (model.moe.top_k + model.moe.shared_experts)
    return ELEMENT_BYTES * width * (3 if model.gated else 2)
