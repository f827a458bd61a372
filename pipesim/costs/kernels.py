"""What kernels of one GPU reach: its peaks, matrix products by tiles and waves, memory traffic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.specs import ClusterSpec, CostConstants, StackSpec

BACKWARD_BYTES = 1.5
"""Memory traffic of a backward elementwise kernel over that of its forward: it reads the activation and the gradient."""

TILES = ((256, 128, 1.0), (128, 128, 0.95), (256, 64, 0.9), (128, 64, 0.8), (64, 64, 0.65))
"""Output tiles (rows, columns) that a matrix product may be cut into, and the speed of each over the largest's.
Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections 3 and 4 (tile efficiency, tile and wave quantization).
"""

BALANCE = 312e12 / 2039e9
"""FLOPs for each byte of an A100 80GB (its datasheet): what ``gemm_inner_half_dim`` was fitted to."""

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
