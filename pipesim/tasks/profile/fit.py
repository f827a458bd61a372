"""From measured curves to the few constants of a cluster and a stack, and what these predict for each measured size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from pipesim.checks import Invalid
from pipesim.costs import collectives, topology
from pipesim.costs.kernels import Machine, balance, gemm_s, tile_efficiency
from pipesim.specs import ClusterSpec, CostConstants, StackSpec

if TYPE_CHECKING:
    from pipesim.execute.profile import Kernels, Product
    from pipesim.execute.profile_links import Message

THICK = 256
"""The side of the largest tile: products with no shorter side say what a large one reaches."""
LARGE = 0.25
"""Products with this share of the largest one's FLOPs are large."""
ABSURD = 3.0
"""A factor that the median product lies off by, from which curves are no machine's."""
SEEN = 1e-3
"""Bytes that make a smaller share of the largest message's time say nothing of the bandwidth: it is then its least."""
COUNTED_BYTES = 2
"""Of an element, in ``gemm_s``."""


class Line(NamedTuple):
    """seconds = latency_s + bytes / bytes_per_s"""

    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """``costs`` are the shared constants, or on a CPU with what it measured of its own.

    ``peak_flops_per_s`` is None where the datasheet's stands; links are None where there were none to measure.
    ``hbm_bytes_per_s`` and the links' lines are achieved, of one device; ``inner_half_dim`` is where products with
    thick outputs reach half their speed for large inner sizes, times the machine's balance; None where all have one
    inner size.
    """

    costs: CostConstants
    peak_flops_per_s: float | None
    gemm_efficiency: float
    inner_half_dim: float | None
    flash_efficiency: float
    hbm_bytes_per_s: float
    send: Line | None
    all_reduce: Line | None


def fit(kernels: Kernels, messages: Sequence[Message], on: Machine, *, peak_is_known: bool) -> Fitted:
    """``on`` gives multiprocessors, the shared constants, and the peak if it is known; its efficiency is not used.

    Without a known peak, on a CPU, the peak is the best of the largest products', and the two constants that all GPUs share
    (start of the inner loop, start of a collective) are this machine's own.
    """
    send = line([(each.message_bytes, each.send_s) for each in messages]) if messages else None
    all_reduce = line([(each.message_bytes, each.all_reduce_s) for each in messages]) if messages else None
    largest = max(kernels.copies, key=lambda copy: copy.copied_bytes)
    hbm_bytes_per_s = 2 * largest.copied_bytes / largest.seconds
    best = _best_flops_per_s(kernels.products)
    if not peak_is_known:
        on = on._replace(balance=balance(best, hbm_bytes_per_s / on.costs.hbm_efficiency))
    half_dim = _inner_half_dim(kernels.products, on)
    if not peak_is_known:
        own: dict[str, Any] = {"gemm_inner_half_dim": half_dim, "collective_start_s": start_s(send, all_reduce)}
        on = on._replace(costs=replace(on.costs, **{key: value for key, value in own.items() if value is not None}))
    asymptote = float(np.median([_asymptote(product, on) for product in _thick(kernels.products)]))
    peak = on.peak_flops_per_s if peak_is_known else best
    reached = [each.flops / each.seconds / peak for each in kernels.attention]
    return Fitted(
        costs=on.costs,
        peak_flops_per_s=None if peak_is_known else peak,
        gemm_efficiency=min(1.0, asymptote / peak),
        inner_half_dim=half_dim,
        flash_efficiency=min(1.0, float(np.median(reached))),
        hbm_bytes_per_s=hbm_bytes_per_s,
        send=send,
        all_reduce=all_reduce,
    )


def _best_flops_per_s(products: Sequence[Product]) -> float:
    """Of large products: a small one's seconds are few, and what disturbs them would be the peak of all."""
    least = LARGE * max(each.flops for each in products)
    return max(each.flops / each.seconds for each in products if each.flops >= least)


def refuse_absurd(products: Sequence[Product], predicted_s: Sequence[float]) -> None:
    """Raises ``Invalid`` where what was fitted does not give back what it was fitted to."""
    fitted_to = set(_thick(products))
    pairs = zip(products, predicted_s, strict=True)
    off = float(
        np.exp(np.median([abs(np.log(seconds / each.seconds)) for each, seconds in pairs if each in fitted_to]))
    )
    if off > ABSURD:
        raise Invalid(
            [
                f"The products that were measured lie a factor of {off:.3g} (median) off what was fitted to them, more than "
                f"{ABSURD:g}: other programs ran, or clocks changed. Nothing was written. Nearest: a quiet machine, a larger "
                "task.profile.repeats, or larger products in task.profile.cpu.products or task.profile.cuda.products."
            ]
        )


def start_s(send: Line | None, all_reduce: Line | None) -> float | None:
    """What a collective of two ranks takes before its messages: each of its halves starts once and sends once."""
    if send is None or all_reduce is None:
        return None
    return max(0.0, all_reduce.latency_s / 2 - send.latency_s)


def line(points: Iterable[tuple[float, float]]) -> Line:
    """The straight line of smallest relative errors through (bytes, seconds), neither of its parts below 0.

    >>> line([(1e3, 1e-5 + 1e3 / 1e9), (1e6, 1e-5 + 1e6 / 1e9), (1e9, 1e-5 + 1e9 / 1e9)])
    Line(latency_s=1e-05, bytes_per_s=1000000000.0)
    """
    sizes, seconds = np.array(sorted(points), dtype=float).T
    scale = sizes.max()
    (latency, each), _ = nnls(np.column_stack([1 / seconds, sizes / scale / seconds]), np.ones(len(sizes)))
    slope = each / scale
    if each < SEEN * seconds[-1]:
        slope = seconds[-1] / sizes[-1]
    return Line(float(f"{latency:.6g}"), float(f"{1 / slope:.6g}"))


def products_s(products: Sequence[Product], on: Machine, element_bytes: int) -> list[float]:
    """What ``gemm_s`` says; wider elements than it counts move through memory so much more slowly."""
    counted = on._replace(hbm_bytes_per_s=on.hbm_bytes_per_s * COUNTED_BYTES / element_bytes)
    return [float(gemm_s(each.rows, each.outputs, each.inputs, counted)) for each in products]


def links_s(messages: Sequence[Message], cluster: ClusterSpec, costs: CostConstants) -> list[tuple[float, float]]:
    """Seconds of an all-reduce of two ranks and of a message one way, for each size."""
    link = topology.intra_node_link(cluster, costs)
    return [
        (2 * float(collectives.collective_half_s(each.message_bytes, 2, link)),
         float(collectives.send_s(each.message_bytes, link)))
        for each in messages
    ]  # fmt: skip


def machine(cluster: ClusterSpec, stack: StackSpec, costs: CostConstants, precision: str) -> Machine:
    """What the cost model takes for one GPU of the cluster."""
    return Machine(
        peak_flops_per_s=cluster.peak_flops_per_s[precision],  # type: ignore[index]
        hbm_bytes_per_s=cluster.hbm_bytes_per_s * costs.hbm_efficiency,
        multiprocessors=cluster.multiprocessors,
        gemm_efficiency=stack.gemm_efficiency.get(cluster.chip, stack.gemm_efficiency["default"]),
        flash_efficiency=cluster.flash_efficiency["flash"],
        costs=costs,
        stack=stack,
        balance=balance(cluster.peak_flops_per_s[precision], cluster.hbm_bytes_per_s),  # type: ignore[index]
    )


def _thick(products: Sequence[Product]) -> list[Product]:
    """Those with no thin side; all where there are none."""
    return [each for each in products if min(each.rows, each.outputs, each.inputs) >= THICK] or list(products)


def _asymptote(product: Product, on: Machine) -> float:
    """FLOP/s that a product of endless size would reach, if this one loses what ``gemm_s`` says it does."""
    useful = float(tile_efficiency(product.rows, product.outputs, on.multiprocessors))
    return product.flops / product.seconds / useful * (1 + on.costs.gemm_inner_half_dim * on.balance / product.inputs)


def _inner_half_dim(products: Sequence[Product], on: Machine) -> float | None:
    """``c`` of seconds = a (1 + c balance / K), over products whose outputs are thick."""
    chosen = [each for each in products if min(each.rows, each.outputs) >= THICK]
    if len({each.inputs for each in chosen}) < 2:
        return None
    plain = on._replace(costs=replace(on.costs, gemm_inner_half_dim=0.0))
    each_s = np.array([1 / _asymptote(product, plain) for product in chosen])
    inverse = np.array([1 / product.inputs for product in chosen])
    (large, small), _ = nnls(np.column_stack([1 / each_s, inverse / each_s]) * each_s.mean(), np.ones(len(chosen)))
    return float(small / large / on.balance) if large > 0 else None
