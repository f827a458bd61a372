"""Where the ranks of a group lie, and the links that they get."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import BoolArray, Number
from pipesim.specs import ClusterSpec, CostConstants

Axis = tuple[Number, Number]
"""How many ranks, and how many global ranks apart they lie."""


class Link(NamedTuple):
    """Achievable bytes per second in one direction for one rank, and seconds per hop; floats or arrays.

    ``start_s`` is what a collective of two ranks takes before bytes flow.
    """

    bandwidth_bytes_per_s: Number
    latency_s: Number
    start_s: Number = 0.0


class Group(NamedTuple):
    """Ranks that talk to each other, floats or arrays. One node holds ``inside`` of them: all, if none ``leaves``.

    ``flat`` is the slowest link of one ring over all of them, ``within`` that of a ring inside a node. ``between`` is what
    one rank gets of its node's network while every rank of the node uses it.
    """

    ranks: Number
    inside: Number
    leaves: BoolArray
    sharing: Number
    """How many such groups share one node's network cards."""
    flat: Link
    within: Link
    between: Link

    @property
    def nodes(self) -> Number:
        return self.ranks / self.inside


def group(
    cluster: ClusterSpec, costs: CostConstants, axes: Sequence[Axis], gpus: Number = math.inf, dimension: str = "dp"
) -> Group:
    """The slowest of the groups of a ``dimension`` that these axes make, innermost first, when ``gpus`` are in use.

    An axis that fills its node evenly stays inside; else some group leaves its node and shares the network cards with
    the groups beside it. Groups that lie differently on different nodes count as one rank a node wherever that matters:
    they have no second level. Long rings get less of a network that decays (``ClusterSpec.network_decay``).
    """
    cluster = reached(cluster, dimension)
    node = float(cluster.gpus_per_node)
    ranks, inside, leaves, even = (np.asarray(each) for each in (1.0, 1.0, False, True))
    apart = np.asarray(math.inf)
    for size, stride in axes:
        several, span = np.asarray(size) > 1, np.multiply(size, stride)
        whole = node % span == 0
        divided = (node % np.asarray(stride) == 0) & (span % node == 0)
        ranks = ranks * size
        inside = inside * np.where(several & whole, size, np.where(several & divided, node / np.asarray(stride), 1.0))
        even = even & (~several | whole | divided | (np.asarray(stride) % node == 0))
        leaves = leaves | (several & ~whole)
        apart = np.minimum(apart, np.where(several, stride, math.inf))
    leaves = leaves & (np.asarray(gpus) > node)
    inside = np.where(leaves, np.where(even, inside, 1.0), ranks)
    sharing = np.where(even, node / inside, np.minimum(apart, node))
    within, network = intra_node_link(cluster, costs), network_bytes_per_s(cluster, costs, ranks)
    fastest, latency_s = within.bandwidth_bytes_per_s, cluster.inter_node.latency_s
    flat = Link(
        np.where(leaves, np.minimum(network / sharing, fastest), fastest),
        np.where(leaves, latency_s, within.latency_s),
        within.start_s,
    )
    between = Link(np.minimum(network / node, fastest), latency_s, within.start_s)
    return Group(ranks, inside, leaves, np.where(leaves, sharing, 1.0), flat, within, between)


def reached(cluster: ClusterSpec, dimension: str) -> ClusterSpec:
    """The cluster with the links that groups of a dimension get, which may lie on several parts."""
    if dimension not in cluster.links:
        return cluster
    intra_node, inter_node = cluster.links[dimension]
    return replace(cluster, intra_node=intra_node, inter_node=inter_node, links={})


def intra_node_link(cluster: ClusterSpec, costs: CostConstants) -> Link:
    achieved = cluster.intra_node.bandwidth_bytes_per_s * costs.intra_node_efficiency
    return Link(achieved, cluster.intra_node.latency_s, costs.collective_start_s)


def network_bytes_per_s(cluster: ClusterSpec, costs: CostConstants, ranks: Number) -> Number:
    """What one node's network gives rings of ``ranks`` ranks: they wait for the slowest, however many share a node."""
    flat = cluster.network_flat_nodes * cluster.gpus_per_node
    decay = np.maximum(ranks / flat, 1.0) ** -cluster.network_decay
    return np.asarray(cluster.inter_node.bandwidth_bytes_per_s * costs.inter_node_efficiency * decay)


def split(axes: Sequence[Axis], size: Number) -> tuple[tuple[Axis, Axis], tuple[Axis, Axis]]:
    """Cuts the ranks of two axes into groups of ``size`` neighbours: the axes of one, and those from one to the next."""
    (first, near), (second, far) = axes
    low = np.minimum(first, size)
    high = size / low
    return ((low, near), (high, far)), ((first / low, near * low), (second / high, far * high))
