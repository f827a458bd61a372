"""Seconds that one micro-batch computes on one rank, layer by layer and by kind of kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.costs.collectives import Number
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import Matrix, dense_matrices, expert_matrices, head_dims
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec

BACKWARD_BYTES = 1.5
"""Memory traffic of a backward elementwise kernel over that of its forward: it reads the activation and the gradient."""


class Machine(NamedTuple):
    """What a kernel of one precision can reach on one GPU."""

    peak_flops_per_s: float
    hbm_bytes_per_s: float
    costs: CostConstants


class Parts(NamedTuple):
    """Seconds by kind of kernel."""

    matmul_s: Number
    attention_s: Number
    elementwise_s: Number

    def total_s(self) -> Number:
        return self.matmul_s + self.attention_s + self.elementwise_s


class BlockSeconds(NamedTuple):
    """One block (a layer, the embedding or the head) for one micro-batch."""

    forward: Parts
    input_grad: Parts
    weight_grad: Parts


def machine(cluster: ClusterSpec, costs: CostConstants, cut: Cut) -> Machine:
    achieved = cluster.hbm_bytes_per_s * costs.hbm_efficiency
    return Machine(cluster.peak_flops_per_s[cut.precision], achieved, costs)


def gemm_s(rows: Number, outputs: Number, inputs: Number, on: Machine) -> Number:
    """Seconds of one matrix product (rows x inputs) (inputs x outputs).

        T = 2 M N K / (P e) * (1 + c/M) (1 + c/N) (1 + c/K)

    P is the peak, e ``gemm_efficiency``, c ``gemm_half_dim``: thin products use the hardware badly. The three factors
    stand for filling the last tiles and wave and for the start of the inner loop.
    """
    thinness: Number = 1.0
    for dim in (rows, outputs, inputs):
        thinness = thinness * (1 + on.costs.gemm_half_dim / dim)
    return 2 * rows * outputs * inputs / (on.peak_flops_per_s * on.costs.gemm_efficiency) * thinness


def layer_seconds(model: ModelSpec, cut: Cut, on: Machine, *, moe: bool) -> BlockSeconds:
    """One transformer layer. The backward's two halves multiply as much as the forward each."""
    matmul = sum(_matmul_s(matrix, cut.tokens, cut.t, on) for matrix in dense_matrices(model, moe))
    if moe and model.moe is not None:
        resident = model.moe.experts / cut.e
        rows = cut.tokens * model.moe.top_k / resident  # of one expert, if the router balances
        matmul = matmul + resident * sum(_matmul_s(matrix, rows, cut.t, on) for matrix in expert_matrices(model))
    attention_forward, attention_backward = _attention_s(model, cut, on)
    elementwise = _elementwise_s(model, cut, on, moe=moe)
    return BlockSeconds(
        forward=Parts(matmul, attention_forward, elementwise),
        input_grad=Parts(matmul, attention_backward, BACKWARD_BYTES * elementwise),
        weight_grad=Parts(matmul, 0.0, 0.0),
    )


def head_seconds(model: ModelSpec, cut: Cut, on: Machine) -> BlockSeconds:
    """Output matrix and cross-entropy."""
    matmul = gemm_s(cut.tokens, model.vocab / cut.t, model.hidden, on)
    loss = cut.tokens * model.vocab / cut.t * on.costs.logits_bytes / on.hbm_bytes_per_s
    return BlockSeconds(Parts(matmul, 0.0, loss), Parts(matmul, 0.0, 0.0), Parts(matmul, 0.0, 0.0))


def embedding_seconds(model: ModelSpec, cut: Cut, on: Machine) -> BlockSeconds:
    """Looking rows up and adding their gradients: one row read and one written for each token, at 2 bytes."""
    lookup = cut.tokens * model.hidden * 4 / on.hbm_bytes_per_s
    return BlockSeconds(Parts(0.0, 0.0, lookup), Parts(0.0, 0.0, 0.0), Parts(0.0, 0.0, lookup))


def _matmul_s(matrix: Matrix, rows: Number, t: Number, on: Machine) -> Number:
    outputs = matrix.outputs / t if matrix.split == "columns" else matrix.outputs
    inputs = matrix.inputs / t if matrix.split == "rows" else matrix.inputs
    return gemm_s(rows, outputs, inputs, on)


def _attention_s(model: ModelSpec, cut: Cut, on: Machine) -> tuple[Number, Number]:
    """Scores and weighted values, forward and backward, without the projections.

    Flash attention skips the masked half and recomputes scores backward (2.5 times the forward's FLOPs; Dao,
    "FlashAttention-2", 2023, section 3.1). Unfused attention multiplies the whole square, doubles it backward, and
    moves every score through memory.
    """
    key_dim, value_dim = head_dims(model)
    scores = cut.tokens * cut.seq_length * model.heads / cut.t
    flops = 2 * scores * (key_dim + value_dim)
    if cut.attention == "flash":
        forward = flops / 2 / (on.peak_flops_per_s * on.costs.flash_efficiency)
        return forward, 2.5 * forward
    multiply = flops / (on.peak_flops_per_s * on.costs.attention_efficiency)
    move = scores * on.costs.score_bytes / on.hbm_bytes_per_s
    return multiply + move, 2 * multiply + BACKWARD_BYTES * move


def _elementwise_s(model: ModelSpec, cut: Cut, on: Machine, *, moe: bool) -> Number:
    """Norms, residuals and activations, by the bytes they move."""
    width: Number = model.ffn
    if moe and model.moe is not None:
        width = model.moe.ffn * (model.moe.top_k + model.moe.shared_experts)
    width = width * (2 if model.gated else 1) / cut.t
    moved = cut.tokens * (model.hidden / cut.norm_share * on.costs.norm_bytes + width * on.costs.mlp_bytes)
    return moved / on.hbm_bytes_per_s


def model_flops_per_token(model: ModelSpec, seq_length: Number, active_matrix_weights: float) -> Number:
    """FLOPs that training one token needs, without recomputation: 6 N + 12 L H Q T.

    N counts the weights a token is multiplied with (no embedding rows), L layers, H heads, Q head size, T tokens of
    context; the full square of scores counts, as is usual. Source: Chowdhery et al., "PaLM", 2022, appendix B.
    """
    key_dim, value_dim = head_dims(model)
    return 6 * active_matrix_weights + 6 * model.layers * model.heads * (key_dim + value_dim) * np.asarray(seq_length)
