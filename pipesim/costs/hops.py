"""What a result costs on its way from one stage of a pipeline to the next, and its gradient on the way back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesim.costs import topology
from pipesim.costs.collectives import Collective, send_s
from pipesim.costs.columns import BoolArray, FloatArray, Number
from pipesim.costs.cut import Cut
from pipesim.costs.topology import Group, Link
from pipesim.specs import Point


def boundary_s(point: Point, cut: Cut, hop_bytes: Number, ranks: Sequence[int]) -> FloatArray:
    """Seconds of a result over each boundary between stages, shape (points, stages - 1); 0 where it stays on its rank."""
    moves, crosses = _boundaries(point, cut, ranks)
    inside, across = _links(point, cut)
    travel_s = np.where(crosses, send_s(hop_bytes, across), send_s(hop_bytes, inside))
    return np.asarray(moves * (point.stack.hop_start_s + travel_s))


def sends(point: Point, cut: Cut, hop_bytes: Number, ranks: Sequence[int]) -> Collective:
    """One result over the slowest boundary; the schedule says how many there are."""
    moves, crosses = _boundaries(point, cut, ranks)
    leaves = np.asarray((moves & crosses).any(axis=1, keepdims=True))
    inside, across = _links(point, cut)
    sharing = np.where(leaves, np.minimum(cut.stride("p"), point.cluster.gpus_per_node), 1.0)
    pair = Group(1.0 + bool(moves.any()), 1.0, leaves, sharing, across, inside, across)
    return Collective("pp", "send", pair, hop_bytes, 1.0)


def _boundaries(point: Point, cut: Cut, ranks: Sequence[int]) -> tuple[BoolArray, BoolArray]:
    """Whether a result changes its rank at each boundary, and whether those two ranks lie on two nodes."""
    here, there, node = np.array(ranks[:-1], int), np.array(ranks[1:], int), point.cluster.gpus_per_node
    stride = np.reshape(cut.stride("p"), (-1, 1))
    if "pp" in point.cluster.links:  # no node lies on two parts
        return here != there, np.broadcast_to(True, (len(stride), len(here)))
    apart = np.floor(here * stride / node) != np.floor(there * stride / node)
    return here != there, np.asarray(apart | (np.abs(here - there) * stride >= node))


def _links(point: Point, cut: Cut) -> tuple[Link, Link]:
    """Of two neighbour ranks inside a node and across, where all ranks of a node send to the next one at once."""
    cluster = topology.reached(point.cluster, "pp")
    inside = topology.intra_node_link(cluster, point.costs)
    network = topology.network_bytes_per_s(cluster, point.costs, 2.0)
    across = np.minimum(network / np.minimum(cut.stride("p"), cluster.gpus_per_node), inside.bandwidth_bytes_per_s)
    return inside, Link(across, cluster.inter_node.latency_s)
