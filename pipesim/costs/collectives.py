"""Seconds and bytes of communication, and the link that a group of ranks gets."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import FloatArray, Number
from pipesim.specs import ClusterSpec, CostConstants


class Link(NamedTuple):
    """Achievable bytes per second in one direction for one rank, and seconds per hop; floats or arrays.

    ``start_s`` is what a collective of two ranks takes before bytes flow.
    """

    bandwidth_bytes_per_s: Number
    latency_s: Number
    start_s: Number = 0.0


def intra_node_link(cluster: ClusterSpec, costs: CostConstants) -> Link:
    achieved = cluster.intra_node.bandwidth_bytes_per_s * costs.intra_node_efficiency
    return Link(achieved, cluster.intra_node.latency_s, costs.collective_start_s)


def group_link(
    cluster: ClusterSpec, costs: CostConstants, size: Number, stride: Number, gpus: Number = math.inf
) -> Link:
    """The slowest link of any ring over ``size`` ranks that lie ``stride`` global ranks apart, of ``gpus`` in use.

    Groups that fill a node evenly stay inside; else some group leaves its node, and shares its network with the rings of
    its neighbours: as many as the stride, at most all GPUs of the node. Rings over many nodes get less of a network that
    decays (``ClusterSpec.network_decay``).
    """
    inside = intra_node_link(cluster, costs)
    rings = np.minimum(stride, cluster.gpus_per_node)
    block = np.multiply(size, stride)
    nodes = np.minimum(size, np.maximum(block / cluster.gpus_per_node, 1.0))
    across = network_bytes_per_s(cluster, costs, nodes) / rings
    leaves = leaves_node(cluster, size, stride, gpus)
    return Link(
        np.where(leaves, np.minimum(across, inside.bandwidth_bytes_per_s), inside.bandwidth_bytes_per_s),
        np.where(leaves, cluster.inter_node.latency_s, inside.latency_s),
        inside.start_s,
    )


def network_bytes_per_s(cluster: ClusterSpec, costs: CostConstants, nodes: Number) -> Number:
    """What one node's network gives rings over ``nodes`` nodes."""
    decay = np.maximum(nodes / cluster.network_flat_nodes, 1.0) ** -cluster.network_decay
    return np.asarray(cluster.inter_node.bandwidth_bytes_per_s * costs.inter_node_efficiency * decay)


def leaves_node(cluster: ClusterSpec, size: Number, stride: Number, gpus: Number = math.inf) -> FloatArray:
    """Whether some group of ``size`` ranks, ``stride`` apart, spans nodes."""
    fills = cluster.gpus_per_node % np.multiply(size, stride) == 0
    return np.asarray((np.asarray(size) > 1) & (np.asarray(gpus) > cluster.gpus_per_node) & ~fills)


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
    Distrib. Comput. 69(2), 2009. Leaves out: the additions, contention with other rings.
    """
    return 2 * ring_half_s(message_bytes, ranks, link)


def ring_half_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Seconds for one ring reduce-scatter or all-gather of ``message_bytes`` in all: half a ring all-reduce."""
    return (ranks - 1) * link.latency_s + ring_sent_bytes(message_bytes, ranks) / link.bandwidth_bytes_per_s


def collective_half_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Half an all-reduce by whichever of ring and tree is faster, and what it takes to start one.

    A tree pays its latency log2(n) times instead of n - 1 times and moves the whole message rather than its
    (n - 1) / n; a library chooses by message size. Source: Sanders, Speck and Träff, "Two-tree algorithms for full
    bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009; NCCL 2.4 and later.
    """
    tree = np.log2(ranks) * link.latency_s + message_bytes / link.bandwidth_bytes_per_s
    fastest = np.minimum(ring_half_s(message_bytes, ranks, link), tree)
    return _start_s(ranks, link) + np.where(np.asarray(ranks) > 1, fastest, 0.0)


def ring_start_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """One reduce-scatter or all-gather, for which libraries have rings alone, and what it takes to start one."""
    return _start_s(ranks, link) + ring_half_s(message_bytes, ranks, link)


def _start_s(ranks: Number, link: Link) -> Number:
    """(1 + log2 n) / 2 of what two ranks take: a fit, see ``conf/costs/full.yaml``."""
    return np.where(np.asarray(ranks) > 1, (1 + np.log2(ranks)) / 2 * link.start_s, 0.0)


def all_to_all_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Seconds for each rank to send an equal share of its ``message_bytes`` to every rank, itself included."""
    start = np.where(np.asarray(ranks) > 1, link.start_s, 0.0)
    return start + (ranks - 1) * link.latency_s + (ranks - 1) / ranks * message_bytes / link.bandwidth_bytes_per_s


def send_s(message_bytes: Number, link: Link) -> Number:
    """Seconds until a message between two ranks has arrived."""
    return link.latency_s + message_bytes / link.bandwidth_bytes_per_s
