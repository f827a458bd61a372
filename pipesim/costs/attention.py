"""Attention of one layer: scores and weighted values, and what context parallelism moves to put them together."""

from __future__ import annotations

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.costs.kernels import BACKWARD_BYTES, FLASH_KERNELS, Machine
from pipesim.costs.matrices import head_dims, key_value_width
from pipesim.specs import ModelSpec

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


def attention_s(model: ModelSpec, cut: Cut, on: Machine) -> tuple[Number, Number]:
    """Scores and weighted values, forward and backward, without the projections.

    Flash attention recomputes scores backward. Unfused attention multiplies the whole square, doubles it backward, and
    moves every score through memory; its products are padded to head sizes of 64, and run without tensor cores, sixteen
    times slower, where a head is no multiple of 8 (an A100: 19.5 of 312 TFLOP/s).
    """
    key_dim, value_dim = head_dims(model)
    scores = cut.tokens * cut.seq_length * model.heads / cut.t
    if cut.attention in FLASH_KERNELS:
        flops = flash_tiles(model, cut, on) * 2 * FLASH_TILE**2 * (key_dim + value_dim)
        whole = 1 + (1 + 2 * FLASH_START_TILES) * FLASH_TILE / FLASH_LENGTH  # computed for each that is needed, there
        forward = flops / (on.peak_flops_per_s * on.flash_efficiency * whole)
        return forward, FLASH_BACKWARD_FLOPS / FLASH_BACKWARD_SPEED * forward
    padded = 64 * (np.ceil(np.asarray(key_dim) / 64) + np.ceil(np.asarray(value_dim) / 64))
    slow = np.where((np.asarray(key_dim) % 8 == 0) & (np.asarray(value_dim) % 8 == 0), 1.0, 16.0)
    multiply = 2 * scores * padded * slow / (on.peak_flops_per_s * on.costs.unfused_efficiency)
    each = on.costs.torch_score_bytes if cut.attention == "torch" else on.costs.unfused_score_bytes
    move = scores * each / on.hbm_bytes_per_s
    return multiply + move, 2 * multiply + BACKWARD_BYTES * move


def flash_tiles(model: ModelSpec, cut: Cut, on: Machine) -> Number:
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


def merging_s(model: ModelSpec, cut: Cut, on: Machine) -> tuple[Number, Number]:
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
