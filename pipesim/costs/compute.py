"""Seconds that one micro-batch computes on one rank, layer by layer and by kind of kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import Matrix, dense_matrices, expert_matrices, head_dims
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec, StackSpec

BACKWARD_BYTES = 1.5
"""Memory traffic of a backward elementwise kernel over that of its forward: it reads the activation and the gradient."""

FLASH_BACKWARD_FLOPS = 2.5
"""Of a flash-attention backward over its forward: five products for two. Source: Dao, "FlashAttention-2", 2023, section 4.1."""

FLASH_BACKWARD_SPEED = 0.88
"""FLOP/s of a flash-attention backward over its forward's. Source: the same, figures 4 to 6, causal, head size 128."""

TILES = ((256, 128, 1.0), (128, 128, 0.95), (256, 64, 0.9), (128, 64, 0.8), (64, 64, 0.65))
"""Output tiles (rows, columns) that a matrix product may be cut into, and the speed of each over the largest's.
Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections 3 and 4 (tile efficiency, tile and wave quantization).
"""

BALANCE = 312e12 / 2039e9
"""FLOPs for each byte of an A100 80GB (its datasheet): what ``gemm_inner_half_dim`` was fitted to."""

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

FLASH_KERNELS = ("flash1", "flash", "flash3")


class Machine(NamedTuple):
    """What a kernel of one precision can reach on one GPU."""

    peak_flops_per_s: float
    hbm_bytes_per_s: float
    multiprocessors: int
    gemm_efficiency: float
    flash_efficiency: float
    costs: CostConstants
    stack: StackSpec
    balance: float = 1.0
    """FLOPs at peak for each byte of memory traffic, over those of the machine that the constants are for."""
    cast_bytes: float = 0.0
    """Moved for each element of a product's operand that is brought to fp8."""


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


def machine(cluster: ClusterSpec, costs: CostConstants, stack: StackSpec, cut: Cut) -> Machine:
    gemm = stack.gemm_efficiency.get(cluster.chip, stack.gemm_efficiency["default"])
    return Machine(
        peak_flops_per_s=cluster.peak_flops_per_s[cut.precision],
        hbm_bytes_per_s=cluster.hbm_bytes_per_s * costs.hbm_efficiency,
        multiprocessors=cluster.multiprocessors,
        gemm_efficiency=gemm * (stack.fp8_efficiency if cut.precision == "fp8" else 1.0),
        flash_efficiency=flash_efficiency(cluster, cut),
        costs=costs,
        stack=stack,
        balance=balance(cluster.peak_flops_per_s[cut.precision], cluster.hbm_bytes_per_s),
        cast_bytes=stack.fp8_cast_bytes if cut.precision == "fp8" else 0.0,
    )


def balance(peak_flops_per_s: float, hbm_bytes_per_s: float) -> float:
    """Of a machine, by its datasheet, over that of the machine that ``gemm_inner_half_dim`` was fitted to."""
    return peak_flops_per_s / hbm_bytes_per_s / BALANCE


def flash_efficiency(cluster: ClusterSpec, cut: Cut) -> float:
    """Of the peak of the precision asked for; attention itself stays in bf16 where matrices are multiplied in fp8."""
    if cut.attention not in FLASH_KERNELS:
        return 1.0
    known = cluster.flash_efficiency
    reached = known.get(cut.attention, known.get("flash", 0.5))
    if cut.precision == "fp8":
        reached *= cluster.peak_flops_per_s["bf16"] / cluster.peak_flops_per_s["fp8"]
    return reached


def gemm_s(rows: Number, outputs: Number, inputs: Number, on: Machine) -> Number:
    """Seconds of one matrix product (rows x inputs) (inputs x outputs): the longer of computing and moving.

        T = max(2 M N K / (P e q) (1 + c / K), 2 (M N + N K + M K) / bandwidth)

    P is the peak, e the stack's ``gemm_efficiency``, q the useful share of the tiles that are computed, c
    ``gemm_inner_half_dim`` times the machine's ``balance``: the inner loop has to start up and its result to be written,
    which a faster multiplier does not shorten.
    """
    compute = 2 * rows * outputs * inputs / (on.peak_flops_per_s * on.gemm_efficiency)
    compute = compute / tile_efficiency(rows, outputs, on.multiprocessors)
    compute = compute * (1 + on.costs.gemm_inner_half_dim * on.balance / inputs)
    move = 2 * (rows * outputs + outputs * inputs + rows * inputs) / on.hbm_bytes_per_s
    return np.maximum(compute, move)


def tile_efficiency(rows: Number, outputs: Number, multiprocessors: int) -> Number:
    """Useful share of what is computed when the output is cut into tiles and these into waves of one tile for each
    multiprocessor, with the best of ``TILES``, whichever way it lies.
    """
    best: Number = 0.0
    for long, short, speed in TILES:
        for high, wide in {(long, short), (short, long)}:
            tiles = np.ceil(rows / high) * np.ceil(outputs / wide)
            computed = np.ceil(tiles / multiprocessors) * multiprocessors * high * wide
            best = np.maximum(best, speed * rows * outputs / computed)
    return best


def layer_seconds(model: ModelSpec, cut: Cut, on: Machine, *, moe: bool) -> BlockSeconds:
    """One transformer layer; each of the backward's two halves multiplies as much as the forward, in another shape."""
    products = [_products_s(matrix, cut.tokens, cut.t, on) for matrix in dense_matrices(model, moe)]
    if moe and model.moe is not None:
        resident = model.moe.experts / cut.e
        rows = cut.tokens * model.moe.top_k / resident  # of one expert, if the router balances
        for matrix in expert_matrices(model):
            products.append(tuple(resident * s for s in _products_s(matrix, rows, cut.t, on)))
    forward, input_grad, weight_grad = (sum(op) for op in zip(*products, strict=True))
    attention_forward, attention_backward = _attention_s(model, cut, on)
    elementwise = _elementwise_s(model, cut, on, moe=moe)
    cast_forward, cast_backward = _casts_s(model, cut, on, moe=moe)
    return BlockSeconds(
        forward=Parts(forward, attention_forward, elementwise + cast_forward),
        input_grad=Parts(input_grad, attention_backward, BACKWARD_BYTES * elementwise + cast_backward),
        weight_grad=Parts(weight_grad, 0.0, 0.0),
    )


def head_seconds(model: ModelSpec, cut: Cut, on: Machine) -> BlockSeconds:
    """Output matrix and cross-entropy."""
    forward, input_grad, weight_grad = _products_s(
        Matrix("head", model.hidden, model.vocab, "columns"), cut.tokens, cut.t, on
    )
    held_by = 1.0 if on.stack.logits_gathered else cut.t
    loss = cut.tokens * model.vocab / held_by * on.stack.logits_bytes / on.hbm_bytes_per_s
    return BlockSeconds(Parts(forward, 0.0, loss), Parts(input_grad, 0.0, 0.0), Parts(weight_grad, 0.0, 0.0))


def embedding_seconds(model: ModelSpec, cut: Cut, on: Machine) -> BlockSeconds:
    """Looking rows up and adding their gradients: one row read and one written for each token, at 2 bytes."""
    lookup = cut.tokens * model.hidden * 4 / on.hbm_bytes_per_s
    return BlockSeconds(Parts(0.0, 0.0, lookup), Parts(0.0, 0.0, 0.0), Parts(0.0, 0.0, lookup))


def _products_s(matrix: Matrix, rows: Number, t: Number, on: Machine) -> tuple[Number, ...]:
    """Seconds of one linear operator's products: forward, gradient of its input, gradient of its weights."""
    outputs = matrix.outputs / t if matrix.split == "columns" else matrix.outputs
    inputs = matrix.inputs / t if matrix.split == "rows" else matrix.inputs
    return gemm_s(rows, outputs, inputs, on), gemm_s(rows, inputs, outputs, on), gemm_s(inputs, outputs, rows, on)


def _attention_s(model: ModelSpec, cut: Cut, on: Machine) -> tuple[Number, Number]:
    """Scores and weighted values, forward and backward, without the projections.

    Flash attention skips the masked half and recomputes scores backward. Unfused attention multiplies the whole square,
    doubles it backward, and moves every score through memory; its products are padded to head sizes of 64, and run
    without tensor cores, sixteen times slower, where a head is no multiple of 8 (an A100: 19.5 of 312 TFLOP/s).
    """
    key_dim, value_dim = head_dims(model)
    scores = cut.tokens * cut.seq_length * model.heads / cut.t
    if cut.attention in FLASH_KERNELS:
        flops = 2 * scores * (key_dim + value_dim) / 2
        forward = flops / (on.peak_flops_per_s * on.flash_efficiency)
        return forward, FLASH_BACKWARD_FLOPS / FLASH_BACKWARD_SPEED * forward
    padded = 64 * (np.ceil(np.asarray(key_dim) / 64) + np.ceil(np.asarray(value_dim) / 64))
    slow = np.where((np.asarray(key_dim) % 8 == 0) & (np.asarray(value_dim) % 8 == 0), 1.0, 16.0)
    multiply = 2 * scores * padded * slow / (on.peak_flops_per_s * on.costs.unfused_efficiency)
    each = on.costs.torch_score_bytes if cut.attention == "torch" else on.costs.unfused_score_bytes
    move = scores * each / on.hbm_bytes_per_s
    return multiply + move, 2 * multiply + BACKWARD_BYTES * move


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
