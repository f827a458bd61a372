"""Seconds and bytes of communication, and the link that a group of ranks gets."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipesim.specs import ClusterSpec, CostConstants

FloatArray = NDArray[np.float64]
Number = float | FloatArray


class Link(NamedTuple):
    """Achievable bytes per second in one direction for one rank, and seconds per message; floats or arrays."""

    bandwidth_bytes_per_s: Number
    latency_s: Number


def intra_node_link(cluster: ClusterSpec, costs: CostConstants) -> Link:
    achieved = cluster.intra_node.bandwidth_bytes_per_s * costs.intra_node_efficiency
    return Link(achieved, cluster.intra_node.latency_s)


def group_link(
    cluster: ClusterSpec, costs: CostConstants, size: Number, stride: Number, gpus: Number = math.inf
) -> Link:
    """The slowest link of any ring over ``size`` ranks that lie ``stride`` global ranks apart, of ``gpus`` in use.

    t is innermost (stride 1), then c, d and p, as Megatron-LM and DeepSpeed place ranks. Groups that fill a node evenly
    stay inside; else some group leaves its node, and shares its network with the rings of its neighbours: as many as the
    stride, at most all GPUs of the node.
    """
    inside = intra_node_link(cluster, costs)
    rings = np.minimum(stride, cluster.gpus_per_node)
    across = cluster.inter_node.bandwidth_bytes_per_s * costs.inter_node_efficiency / rings
    block = np.multiply(size, stride)
    leaves = (np.asarray(size) > 1) & (np.asarray(gpus) > cluster.gpus_per_node) & (cluster.gpus_per_node % block != 0)
    return Link(
        np.where(leaves, np.minimum(across, inside.bandwidth_bytes_per_s), inside.bandwidth_bytes_per_s),
        np.where(leaves, cluster.inter_node.latency_s, inside.latency_s),
    )


def ring_sent_bytes(message_bytes: Number, ranks: Number) -> Number:
    """What each rank sends in a ring reduce-scatter or all-gather: (n - 1) / n of the whole message; twice that in an
    all-reduce. Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
    """
    return (ranks - 1) / ranks * message_bytes


def ring_all_reduce_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Seconds for one ring all-reduce.

        T = 2 (n - 1) alpha + 2 (n - 1) / n * S / beta

    S      message_bytes               bytes held by each rank before and after
    n      ranks                       1 rank talks to nobody and costs exactly 0
    alpha  link.latency_s              seconds per hop
    beta   link.bandwidth_bytes_per_s  bytes/s, one direction, achievable rather than peak

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel
    Distrib. Comput. 69(2), 2009. Leaves out: the additions, contention with other rings, tree algorithms.
    """
    return 2 * ring_half_s(message_bytes, ranks, link)


def ring_half_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Seconds for one ring reduce-scatter or all-gather of ``message_bytes`` in all: half a ring all-reduce."""
    return (ranks - 1) * link.latency_s + ring_sent_bytes(message_bytes, ranks) / link.bandwidth_bytes_per_s


def all_to_all_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Seconds for each rank to send an equal share of its ``message_bytes`` to every rank, itself included."""
    return (ranks - 1) * link.latency_s + (ranks - 1) / ranks * message_bytes / link.bandwidth_bytes_per_s


def send_s(message_bytes: Number, link: Link) -> Number:
    """Seconds until a message between two ranks has arrived."""
    return link.latency_s + message_bytes / link.bandwidth_bytes_per_s
