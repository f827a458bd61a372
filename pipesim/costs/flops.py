"""FLOPs of a token by the conventions that publications use. They change what MFU, HFU and TFLOP/s say, never a time."""

from __future__ import annotations

import numpy as np

from pipesim.costs import compute, parameters
from pipesim.costs.columns import FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import dense_matrices, expert_matrices
from pipesim.costs.stage import Stages
from pipesim.specs import FlopConvention, ModelSpec


def per_token(
    convention: FlopConvention, model: ModelSpec, cut: Cut, again: FloatArray, stages: Stages
) -> tuple[Number, Number]:
    """Model FLOPs of a token, and hardware FLOPs, which add what recomputation repeats.

        palm       6 (N + h V) + 12 L H Q T    Chowdhery et al. 2022, appendix B: the full square of scores
        causal     6 (N + h V) + 6 L H Q T     the same, without the masked half of the square
        kaplan     6 N                         Kaplan et al. 2020, section 2.1: neither head nor attention
        narayanan  96 L h^2 (1 + s / 6h + V / 16Lh)   Narayanan et al. 2021, equation 3: a GPT whose layers all run again,
                                               whatever really runs; model and hardware FLOPs are one

    N      weights of the layers that a token is multiplied with     h V     those of the head
    L, H   layers, heads; Q head size (mean of keys and values)      T, s    tokens of context

    ``again`` is the share of each stage's layers that run again, shape (points, stages).
    """
    if convention == "narayanan":
        flops = narayanan(model, cut.seq_length)
        return flops, flops
    layers = _layer_weights(model)
    head = 0.0 if convention == "kaplan" else model.hidden * model.vocab
    square = compute.model_flops_per_token(model, cut.seq_length, 0.0)
    attention = {"palm": 1.0, "causal": 0.5, "kaplan": 0.0}[convention] * square
    count = (stages.dense + stages.moe) * stages.alike
    share = ((again * count).sum(axis=1) / np.maximum(count.sum(axis=1), 1.0))[:, None]
    repeated = {
        "none": 0.0, "selective": attention / 3, "operators": 1.0 * layers, "full": 2 * layers + attention / 3,
    }[cut.recompute]  # fmt: skip
    flops = 6 * (layers + head) + attention
    return flops, flops + share * repeated


def narayanan(model: ModelSpec, seq_length: Number) -> Number:
    """Equation 3 for one token (B s = 1)."""
    layers, hidden = np.asarray(model.layers), np.asarray(model.hidden, np.float64)
    more = 1 + np.asarray(seq_length) / (6 * hidden) + model.vocab / (16 * layers * hidden)
    return 96 * layers * hidden**2 * more


def _layer_weights(model: ModelSpec) -> Number:
    """Weights of all layers that one token is multiplied with."""
    weights: Number = 0.0
    for count, moe in ((parameters.dense_layers(model), False), (parameters.moe_layers(model), True)):
        weights = weights + count * sum(matrix.weights for matrix in dense_matrices(model, moe))
    if model.moe is not None:
        routed = sum(matrix.weights for matrix in expert_matrices(model))
        weights = weights + parameters.moe_layers(model) * model.moe.top_k * routed
    return weights
