"""Seconds that one micro-batch computes on one rank, layer by layer and by kind of kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import Matrix, dense_matrices, expert_matrices, head_dims, key_value_width
from pipesim.costs.parameters import layer_parameters
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec, StackSpec

BACKWARD_BYTES = 1.5
"""Memory traffic of a backward elementwise kernel over that of its forward: it reads the activation and the gradient."""

FLASH_BACKWARD_FLOPS = 2.5
"""Of a flash-attention backward over its forward: five products for two. Source: Dao, "FlashAttention-2", 2023, section 4.1."""

FLASH_BACKWARD_SPEED = 0.88
"""FLOP/s of a flash-attention backward over its forward's. Source: the same, figures 4 to 6, causal, head size 128."""

FLASH_TILE = 128
"""Queries of one block of a flash kernel, and keys that it takes at a time. Source: Dao, "FlashAttention-2", 2023, section 3.3."""

FLASH_LENGTH = 16384
"""Tokens of the causal sequences that ``ClusterSpec.flash_efficiency`` was read at: the longest of the figures."""

FLASH_START_TILES = 1.0
"""What a block of queries takes to start and to write its result, in tiles of keys. Source: Dao-AILab/flash-attention, pull
request 2605: full attention, head size 128, reaches 1205, 1279, 1328, 1358 and 1362 TFLOP/s for 1, 2, 4, 8 and 16 thousand
tokens; one tile for each block makes that 1211, 1282, 1321, 1341 and 1352.
"""

MERGE_BYTES, FIRST_BYTES = 6.0, 2.0
"""For each element of what a step of a ring brings: it is read, and the sum so far read and written, all in 16 bits; there is
no sum before the first step. Source: NVIDIA, Transformer Engine 2.8, attention/dot_product_attention/context_parallel.py, as
the next.
"""

GATHERED_BYTES = (8.0, 18.0)
"""For each element of a whole sequence's keys and values, gathered: brought into the sequence's order and cut to what a part
attends to, forward; that again and their gradients added and brought back to the ranks' order, backward.
"""

TILES = ((256, 128, 1.0), (128, 128, 0.95), (256, 64, 0.9), (128, 64, 0.8), (64, 64, 0.65))
"""Output tiles (rows, columns) that a matrix product may be cut into, and the speed of each over the largest's.
Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections 3 and 4 (tile efficiency, tile and wave quantization).
"""

ELEMENT_BYTES = 2
"""Of a weight's gradient as a product writes it: bf16 or fp16."""

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


def gemm_s(rows: Number, outputs: Number, inputs: Number, on: Machine, result_bytes: float = 2) -> Number:
    """Seconds of one matrix product (rows x inputs) (inputs x outputs): the longer of computing and moving.

        T = max(2 M N K / (P e q) (1 + c / K), (w M N + 2 N K + 2 M K) / bandwidth)

    w are ``result_bytes``, moved for each element of the result. P is the peak, e the stack's ``gemm_efficiency``, q the
    useful share of the tiles that are computed, c ``gemm_inner_half_dim`` times the machine's ``balance``: the inner loop
    has to start up and its result to be written, which a faster multiplier does not shorten.
    """
    compute = 2 * rows * outputs * inputs / (on.peak_flops_per_s * on.gemm_efficiency)
    compute = compute / tile_efficiency(rows, outputs, on.multiprocessors)
    compute = compute * (1 + on.costs.gemm_inner_half_dim * on.balance / inputs)
    move = (result_bytes * rows * outputs + 2 * (outputs * inputs + rows * inputs)) / on.hbm_bytes_per_s
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
    write_bytes, add_bytes = gradient_bytes(cut, on.stack)
    products = [_products_s(matrix, cut.tokens, cut.t, on, write_bytes) for matrix in dense_matrices(model, moe)]
    if moe and model.moe is not None:
        resident = model.moe.experts / cut.e
        rows = cut.tokens * model.moe.top_k / resident  # of one expert, if the router balances
        for matrix in expert_matrices(model):
            products.append(tuple(resident * s for s in _products_s(matrix, rows, cut.t, on, write_bytes)))
    forward, input_grad, weight_grad = (sum(op) for op in zip(*products, strict=True))
    attention_forward, attention_backward = _attention_s(model, cut, on)
    merge_forward, merge_backward = _merging_s(model, cut, on)
    elementwise = _elementwise_s(model, cut, on, moe=moe)
    cast_forward, cast_backward = _casts_s(model, cut, on, moe=moe)
    held = layer_parameters(model, moe)
    added = held.sharded / cut.t + held.replicated + held.expert / np.multiply(cut.t, cut.e)
    return BlockSeconds(
        forward=Parts(forward, attention_forward + merge_forward, elementwise + cast_forward),
        input_grad=Parts(input_grad, attention_backward + merge_backward, BACKWARD_BYTES * elementwise + cast_backward),
        weight_grad=Parts(weight_grad, 0.0, added * add_bytes / on.hbm_bytes_per_s),
    )


def gradient_bytes(cut: Cut, stack: StackSpec) -> tuple[float, Number]:
    """Bytes for each parameter and micro-batch, moved by the product that makes its gradient and by kernels that add it to
    those of earlier micro-batches.

    A fused product reads and writes the sum itself (Megatron-LM's default). ZeRO-2 and 3 reduce each micro-batch's gradient
    and add up their shares of it. Leaves out that a step's first has nothing to be added to.
    """
    if not stack.accumulation_bytes and cut.zero < 2:
        return 2 * stack.gradient_bytes, 0.0
    return ELEMENT_BYTES, stack.accumulation_bytes / (cut.shards if cut.zero >= 2 else 1.0)


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


def _attention_s(model: ModelSpec, cut: Cut, on: Machine) -> tuple[Number, Number]:
    """Scores and weighted values, forward and backward, without the projections.

    Flash attention recomputes scores backward. Unfused attention multiplies the whole square,
    doubles it backward, and moves every score through memory; its products are padded to head sizes of 64, and run
    without tensor cores, sixteen times slower, where a head is no multiple of 8 (an A100: 19.5 of 312 TFLOP/s).
    """
    key_dim, value_dim = head_dims(model)
    scores = cut.tokens * cut.seq_length * model.heads / cut.t
    if cut.attention in FLASH_KERNELS:
        flops = _flash_tiles(model, cut, on) * 2 * FLASH_TILE**2 * (key_dim + value_dim)
        whole = 1 + (1 + 2 * FLASH_START_TILES) * FLASH_TILE / FLASH_LENGTH  # computed for each that is needed, there
        forward = flops / (on.peak_flops_per_s * on.flash_efficiency * whole)
        return forward, FLASH_BACKWARD_FLOPS / FLASH_BACKWARD_SPEED * forward
    padded = 64 * (np.ceil(np.asarray(key_dim) / 64) + np.ceil(np.asarray(value_dim) / 64))
    slow = np.where((np.asarray(key_dim) % 8 == 0) & (np.asarray(value_dim) % 8 == 0), 1.0, 16.0)
    multiply = 2 * scores * padded * slow / (on.peak_flops_per_s * on.costs.unfused_efficiency)
    each = on.costs.torch_score_bytes if cut.attention == "torch" else on.costs.unfused_score_bytes
    move = scores * each / on.hbm_bytes_per_s
    return multiply + move, 2 * multiply + BACKWARD_BYTES * move


def _flash_tiles(model: ModelSpec, cut: Cut, on: Machine) -> Number:
    """Tiles of scores (128 x 128) that one rank's causal attention takes as long as, on all multiprocessors.

        max(n (R / 2 + 1 / 2 + r o), w (R / k + o))

    n  blocks of queries     micro-batch x heads / t x sequence / c / 128
    R  blocks of a sequence  half of its tiles are masked, of the diagonal's half is computed for nothing
    r  runs                  a ring's c steps take each block of queries once, every other way all keys at once
    o  ``FLASH_START_TILES`` of each run
    w  multiprocessors       one has the longest block to itself, of R tiles (k = 1), in a ring of R / c (k = c)

    Every rank has equal work: it holds the j-th part of 2 c from the sequence's start and the j-th from its end. Steps of a
    ring fill each other's last waves, on two streams. Source: NVIDIA, Transformer Engine 2.8, as ``MERGE_BYTES``.
    """
    length = np.asarray(cut.seq_length / FLASH_TILE)
    blocks = cut.micro_batch * model.heads / cut.t * length / cut.c
    runs = cut.c if cut.context == "ring" else 1.0
    longest = on.multiprocessors * (length / runs + FLASH_START_TILES)
    return np.maximum(blocks * (length / 2 + 0.5 + runs * FLASH_START_TILES), longest)


def _merging_s(model: ModelSpec, cut: Cut, on: Machine) -> tuple[Number, Number]:
    """What context parallelism moves through memory, forward and backward: outputs of a ring's steps put together, and the
    gradients of queries, keys and values; or gathered keys and values, and their gradients.
    """
    key_dim, value_dim = head_dims(model)
    passed, heads = key_value_width(model, cut.t), model.heads / cut.t
    if cut.context == "ring":
        bytes_each = MERGE_BYTES * cut.c - FIRST_BYTES
        forward, backward = bytes_each * heads * value_dim, bytes_each * (heads * key_dim + passed)
    elif cut.context == "all_gather":
        forward, backward = (each * cut.c * passed for each in GATHERED_BYTES)
    else:
        return 0.0, 0.0
    tokens_s = cut.tokens * np.greater(cut.c, 1) / on.hbm_bytes_per_s
    return tokens_s * forward, tokens_s * backward


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
