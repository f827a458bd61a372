"""Seconds that one micro-batch computes on one rank, layer by layer and by kind of kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.costs.attention import attention_s, merging_s
from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.costs.kernels import BACKWARD_BYTES, Machine, gemm_s
from pipesim.costs.matrices import Matrix, dense_matrices, expert_matrices, head_dims
from pipesim.costs.memory import ELEMENT_BYTES
from pipesim.costs.parameters import layer_parameters
from pipesim.specs import ModelSpec, StackSpec

TRANSPOSE_BYTES = 2.0
"""Read and written at one byte: tensor cores of fp8 take both operands with the inner dimension last, so that backward
needs them transposed. One kernel that casts and transposes moves 4 bytes, 2 read and 1 written twice; one that casts alone
moves 1 less. Source: NVIDIA, Transformer Engine's user guide, "Using FP8".
"""

PERMUTE_BYTES = 8.0
"""For each element of a token on its way to an expert: read and written sorted by expert, and again in its own order."""

PADDED_BYTES = 8.0
"""For each element that enters and leaves an expert in fp8: copied to where each expert's rows are a multiple of 16, and
back. Source: Megatron-Core ``transformer/moe/experts.py``, ``fp8_padding``."""


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


def layer_seconds(model: ModelSpec, cut: Cut, on: Machine, *, moe: bool) -> BlockSeconds:
    """One transformer layer; each of the backward's two halves multiplies as much as the forward, in another shape."""
    write_bytes, add_bytes = gradient_bytes(cut, on.stack)
    products = [_products_s(matrix, cut.tokens, cut.t, on, write_bytes) for matrix in dense_matrices(model, moe)]
    if moe and model.moe is not None:
        resident = model.moe.experts / cut.e
        rows = cut.tokens * model.moe.top_k / resident  # of one expert, if the router balances
        for matrix in expert_matrices(model):
            products.append(tuple(resident * s for s in _products_s(matrix, rows, cut.t, on, write_bytes)))
    forward, input_grad, weight_grad = (sum(op) for op in zip(*products, strict=True))
    attention_forward, attention_backward = attention_s(model, cut, on)
    merge_forward, merge_backward = merging_s(model, cut, on)
    elementwise = _elementwise_s(model, cut, on, moe=moe)
    cast_forward, cast_backward = _casts_s(model, cut, on, moe=moe)
    own, routed = layer_parameters(model, moe).on_rank(cut.t, cut.e)
    return BlockSeconds(
        forward=Parts(forward, attention_forward + merge_forward, elementwise + cast_forward),
        input_grad=Parts(input_grad, attention_backward + merge_backward, BACKWARD_BYTES * elementwise + cast_backward),
        weight_grad=Parts(weight_grad, 0.0, (own + routed) * add_bytes / on.hbm_bytes_per_s),
    )


def gradient_bytes(cut: Cut, stack: StackSpec) -> tuple[float, Number]:
    """Bytes for each parameter and micro-batch, moved by the product that makes its gradient and by kernels that add it to
    those of earlier micro-batches.

    A fused product reads and writes the sum itself (Megatron-LM's default). ZeRO-2 and 3 reduce each micro-batch's gradient
    and add up their shares of it, but in a pipeline. Leaves out that a step's first has nothing to be added to.
    """
    if not stack.accumulation_bytes and cut.zero < 2:
        return 2 * stack.gradient_bytes, 0.0
    return ELEMENT_BYTES, stack.accumulation_bytes / cut.gradient_shards


def head_seconds(model: ModelSpec, cut: Cut, on: Machine) -> BlockSeconds:
    """Output matrix and cross-entropy."""
    head, (write_bytes, add_bytes) = Matrix("head", model.hidden, model.vocab, "columns"), gradient_bytes(cut, on.stack)
    forward, input_grad, weight_grad = _products_s(head, cut.tokens, cut.t, on, write_bytes)
    add = head.weights / cut.t * add_bytes / on.hbm_bytes_per_s
    held_by = 1.0 if on.stack.logits_gathered else cut.t
    loss = cut.tokens * model.vocab / held_by * on.stack.logits_bytes / on.hbm_bytes_per_s
    return BlockSeconds(Parts(forward, 0.0, loss), Parts(input_grad, 0.0, 0.0), Parts(weight_grad, 0.0, add))


def embedding_seconds(model: ModelSpec, cut: Cut, on: Machine) -> BlockSeconds:
    """Looking rows up and adding their gradients: one row read and one written for each token, at 2 bytes."""
    lookup = cut.tokens * model.hidden * 4 / on.hbm_bytes_per_s
    return BlockSeconds(Parts(0.0, 0.0, lookup), Parts(0.0, 0.0, 0.0), Parts(0.0, 0.0, lookup))


def _products_s(matrix: Matrix, rows: Number, t: Number, on: Machine, write_bytes: float) -> tuple[Number, ...]:
    """Seconds of one linear operator's products: forward, gradient of its input, gradient of its weights."""
    outputs = matrix.outputs / t if matrix.split == "columns" else matrix.outputs
    inputs = matrix.inputs / t if matrix.split == "rows" else matrix.inputs
    weight_grad = gemm_s(inputs, outputs, rows, on, write_bytes)
    return gemm_s(rows, outputs, inputs, on), gemm_s(rows, inputs, outputs, on), weight_grad


def _elementwise_s(model: ModelSpec, cut: Cut, on: Machine, *, moe: bool) -> Number:
    """Norms, residuals, activations and the way of tokens to their experts and back, by the bytes they move.

    Tokens are sorted by expert before they leave, and where a rank holds several experts again when they arrive; in fp8
    each of t ranks pads all that its expert works on.
    """
    width: Number = model.ffn
    sorted_width: Number = 0.0
    padded_width: Number = 0.0
    if moe and model.moe is not None:
        width = model.moe.ffn * (model.moe.top_k + model.moe.shared_experts)
        again = np.asarray(model.moe.experts / cut.e > 1)
        sorted_width = model.moe.top_k * model.hidden * (1 / cut.norm_share + again)
        padded_width = model.moe.top_k * model.hidden * (on.cast_bytes > 0)
    width = width * (2 if model.gated else 1) / cut.t
    moved = model.hidden / cut.norm_share * on.stack.norm_bytes + width * on.stack.mlp_bytes
    moved = moved + sorted_width * PERMUTE_BYTES + padded_width * PADDED_BYTES
    return cut.tokens * moved / on.hbm_bytes_per_s


def _casts_s(model: ModelSpec, cut: Cut, on: Machine, *, moe: bool) -> tuple[Number, Number]:
    """Bringing the inputs of products to fp8, and backward the gradients of their outputs; weights stay from step to step.

    Where sequence parallelism gathers them in fp8, each rank casts its own tokens and transposes all; not so what experts
    work on, which is sent and gathered in 16 bits.
    """
    if not on.cast_bytes:
        return 0.0, 0.0
    own = np.asarray(cut.norm_share) * on.stack.fp8_gathers
    gathered = np.where(own > 1, (on.cast_bytes - 1) / np.maximum(own, 1.0) + TRANSPOSE_BYTES, on.cast_bytes)
    routed = expert_matrices(model) if moe else ()
    moved_in: Number = 0.0
    moved_out: Number = 0.0
    for matrix in (*dense_matrices(model, moe), *routed):
        times = model.moe.top_k if model.moe is not None and matrix in routed else 1.0
        whole = times * (on.cast_bytes if matrix in routed else gathered)
        split = times * on.cast_bytes / cut.t
        moved_in = moved_in + matrix.inputs * (split if matrix.split == "rows" else whole)
        moved_out = moved_out + matrix.outputs * (split if matrix.split == "columns" else whole)
    return moved_in * cut.tokens / on.hbm_bytes_per_s, moved_out * cut.tokens / on.hbm_bytes_per_s


def model_flops_per_token(model: ModelSpec, seq_length: Number, active_matrix_weights: Number) -> Number:
    """FLOPs that training one token needs, without recomputation: 6 N + 12 L H Q T.

    N counts the weights a token is multiplied with (no embedding rows), L layers, H heads, Q head size, T tokens of
    context; the full square of scores counts, as is usual. Source: Chowdhery et al., "PaLM", 2022, appendix B.
    """
    key_dim, value_dim = head_dims(model)
    return 6 * active_matrix_weights + 6 * model.layers * model.heads * (key_dim + value_dim) * np.asarray(seq_length)
