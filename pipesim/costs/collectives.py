"""Seconds and bytes of communication: what one collective takes, and the collectives that layouts are priced by."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.topology import Group, Link


class Collective(NamedTuple):
    """What a layout exchanges: priced, and listed in reports, from this alone.

    ``dimension`` is tp, cp, ep, pp or dp. ``message_bytes`` is the whole message (of a reduce-scatter or all-gather
    what all ranks of the group hold together), ``times`` how often it is exchanged, ``hidden`` whether computing may
    hide it, ``crossing`` what of a relayed message for other nodes crosses the network: the rest is copied there.
    """

    dimension: str
    kind: str
    group: Group
    message_bytes: Number
    times: Number
    hidden: bool = True
    crossing: Number = 1.0

    def seconds(self) -> Number:
        """Of all of them, one after the other."""
        if self.kind == "relayed all-to-all":
            return self.times * relayed_all_to_all_s(self.message_bytes, self.group, self.crossing)
        return self.times * SECONDS[self.kind](self.message_bytes, self.group)

    def sent_bytes(self) -> Number:
        """What each rank sends for one of them."""
        if self.kind == "relayed all-to-all":
            return sum(relayed_bytes(self.message_bytes, self.group, self.crossing))
        return SENT[self.kind](self.message_bytes, self.group.ranks)


def ring_sent_bytes(message_bytes: Number, ranks: Number) -> Number:
    """What each rank sends in a ring reduce-scatter or all-gather: (n - 1) / n of the whole message; twice that in an
    all-reduce. Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
    """
    return (ranks - 1) / ranks * message_bytes


def ring_half_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Seconds for one ring reduce-scatter or all-gather: half a ring all-reduce, which is one after the other.

        T = (n - 1) alpha + (n - 1) / n * S / beta

    S      message_bytes               bytes that each rank holds of the whole
    n      ranks                       1 rank talks to nobody and costs exactly 0
    alpha  link.latency_s              seconds per hop
    beta   link.bandwidth_bytes_per_s  bytes/s, one direction, achievable rather than peak

    Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel
    Distrib. Comput. 69(2), 2009. Leaves out: the additions, contention with other rings.
    """
    return (ranks - 1) * link.latency_s + ring_sent_bytes(message_bytes, ranks) / link.bandwidth_bytes_per_s


def level_half_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Half an all-reduce over equal links, by whichever of ring and tree is faster, without what it takes to start.

    A tree pays its latency log2(n) times instead of n - 1 times and moves the whole message rather than its
    (n - 1) / n; a library chooses by message size. Source: Sanders, Speck and Träff, "Two-tree algorithms for full
    bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009; NCCL 2.4 and later.
    """
    tree = np.log2(ranks) * link.latency_s + message_bytes / link.bandwidth_bytes_per_s
    fastest = np.minimum(ring_half_s(message_bytes, ranks, link), tree)
    return np.where(np.asarray(ranks) > 1, fastest, 0.0)


def collective_half_s(message_bytes: Number, ranks: Number, link: Link) -> Number:
    """Half an all-reduce over equal links, and what it takes to start one."""
    return _start_s(ranks, link) + level_half_s(message_bytes, ranks, link)


def hierarchical_all_reduce_s(message_bytes: Number, group: Group) -> Number:
    """Seconds for one all-reduce on two levels, without what it takes to start.

        T = 2 [(g - 1) alpha_w + (g - 1) / g * S / beta_w] + A(S / g, k; alpha_b, beta_b)

    S        message_bytes   bytes held by each rank
    g        group.inside    ranks in one node: they reduce-scatter first and all-gather last
    k        group.nodes     every rank all-reduces its share, S / g, with its peers on the other nodes
    alpha_w  group.within    seconds per hop and bytes/s inside a node
    alpha_b  group.between   the same over the network, whose cards all ranks of a node share
    A        the faster of ring and tree

    Each rank sends as much as in a flat ring, but only (k - 1) / k of the message over the network instead of
    (n - 1) / n, over hops k - 1 instead of n - 1. Source: Cho et al., "BlueConnect", IBM J. Res. Dev. 63(6), 2019.
    Leaves out: overlap of the levels.
    """
    inside = ring_half_s(message_bytes, group.inside, group.within)
    return 2 * inside + 2 * level_half_s(message_bytes / group.inside, group.nodes, group.between)


def all_reduce_s(message_bytes: Number, group: Group) -> Number:
    """Seconds for one all-reduce by the fastest of ring, tree and, where a node holds several ranks, two levels."""
    flat = 2 * level_half_s(message_bytes, group.ranks, group.flat)
    two_levels = (np.asarray(group.inside) > 1) & (np.asarray(group.nodes) > 1)
    levels = np.where(two_levels, hierarchical_all_reduce_s(message_bytes, group), flat)
    return 2 * _start_s(group.ranks, group.flat) + np.minimum(flat, levels)


def ring_start_s(message_bytes: Number, group: Group) -> Number:
    """One reduce-scatter or all-gather, for which libraries have rings alone, and what it takes to start one."""
    return _start_s(group.ranks, group.flat) + ring_half_s(message_bytes, group.ranks, group.flat)


def _start_s(ranks: Number, link: Link) -> Number:
    """(1 + log2 n) / 2 of what two ranks take: a fit, see ``conf/costs/full.yaml``."""
    return np.where(np.asarray(ranks) > 1, (1 + np.log2(ranks)) / 2 * link.start_s, 0.0)


def broadcast_s(message_bytes: Number, group: Group) -> Number:
    """One rank's message handed on along a ring, piece by piece, and what it takes to start: half of an all-reduce."""
    hops_s = (np.asarray(group.ranks) - 1) * group.flat.latency_s
    travel_s = hops_s + message_bytes / group.flat.bandwidth_bytes_per_s
    return _start_s(group.ranks, group.flat) + np.where(np.asarray(group.ranks) > 1, travel_s, 0.0)


def all_to_all_s(message_bytes: Number, group: Group) -> Number:
    """Seconds for each rank to send an equal share of its ``message_bytes`` to every rank, itself included.

        T = start + (g - 1) alpha_w + (n - g) alpha_b + S / n * max((g - 1) / beta_w, (n - g) / beta_b)

    Symbols as in ``hierarchical_all_reduce_s``, n ranks in all. Messages to the own node and to others travel side by
    side; all ranks of a node send at once and share its network cards.
    """
    n, inside = group.ranks, group.inside
    others, away = inside - 1, n - inside
    start = np.where(np.asarray(n) > 1, group.flat.start_s, 0.0)
    hops = others * group.within.latency_s + away * group.between.latency_s
    slowest = np.maximum(others / group.within.bandwidth_bytes_per_s, away / group.between.bandwidth_bytes_per_s)
    return start + hops + message_bytes / n * slowest


def relayed_all_to_all_s(message_bytes: Number, group: Group, crossing: Number) -> Number:
    """Seconds for each rank to send an equal share of its ``message_bytes`` to every rank, over its peers on their nodes.

        T = start + (g - 1) alpha_w + (k - 1) alpha_b + S max((1 - 1 / g) / beta_w, x (1 - 1 / k) / beta_b)

    Symbols as in ``hierarchical_all_reduce_s``; x is ``crossing``, as those of a node whom the same is sent share one copy
    of it. NVLink hands on what arrives while more arrives. Source: DeepSeek-AI, "DeepSeek-V3", 2024, section 3.2.2.
    """
    start = np.where(np.asarray(group.ranks) > 1, group.flat.start_s, 0.0)
    hops = (group.inside - 1) * group.within.latency_s + (group.nodes - 1) * group.between.latency_s
    handed_on, crossed = relayed_bytes(message_bytes, group, crossing)
    slowest = np.maximum(handed_on / group.within.bandwidth_bytes_per_s, crossed / group.between.bandwidth_bytes_per_s)
    return start + hops + slowest


def relayed_bytes(message_bytes: Number, group: Group, crossing: Number) -> tuple[Number, Number]:
    """What each rank sends over NVLink, its own and what it hands on, and over the network."""
    return message_bytes * (1 - 1 / group.inside), message_bytes * crossing * (1 - 1 / group.nodes)


def ring_pass_s(message_bytes: Number, group: Group) -> Number:
    """Every rank's share goes once around the ring, but for the last hop: n - 1 sends, each of which has to start."""
    return (group.ranks - 1) * group.flat.start_s + ring_half_s(message_bytes, group.ranks, group.flat)


def ring_pass_exposed_s(each: Collective, step_s: Number, backward: bool) -> Number:
    """What shows of passing keys and values around while each of a ring's n steps computes for ``step_s``.

        forward  (n - 1) x(1);  backward  2 x(1) + (n - 2) x(2);  x(k) = max(a + k u - step_s, 0)

    u is one send, a what it takes to start. Forward every step but the last sends what it has to the next rank; backward
    their gradients follow one step behind, so that the first and the last step send one of both. Hidden sends cost nothing:
    they take few multiprocessors (``StackSpec.gather_interference`` is of gathers; fitted to rings it is 0.06 on H100).
    Source: Liu et al., "Ring Attention", 2023, section 3; NVIDIA, Transformer Engine 2.8, context_parallel.py.
    """
    ranks, start_s = np.asarray(each.group.ranks), each.group.flat.start_s
    send_s = ring_half_s(each.message_bytes, ranks, each.group.flat) / np.maximum(ranks - 1, 1)

    def shown_s(sends: int) -> Number:
        return np.asarray(np.maximum(start_s + sends * send_s - step_s, 0.0))

    if not backward:
        return np.asarray((ranks - 1) * shown_s(1))
    return np.where(ranks > 1, 2 * shown_s(1) + np.maximum(ranks - 2, 0) * shown_s(2), 0.0)


def send_s(message_bytes: Number, link: Link) -> Number:
    """Seconds until a message between two ranks has arrived."""
    return link.latency_s + message_bytes / link.bandwidth_bytes_per_s


SECONDS: dict[str, Callable[[Number, Group], Number]] = {
    "all-reduce": all_reduce_s,
    "reduce-scatter": ring_start_s,
    "all-gather": ring_start_s,
    "all-to-all": all_to_all_s,
    "broadcast": broadcast_s,
    "ring pass": ring_pass_s,
    "send": lambda message_bytes, group: send_s(message_bytes, group.flat),
}

SENT: dict[str, Callable[[Number, Number], Number]] = {
    **dict.fromkeys(SECONDS, ring_sent_bytes),
    "all-reduce": lambda message_bytes, ranks: 2 * ring_sent_bytes(message_bytes, ranks),
    "send": lambda message_bytes, ranks: message_bytes,
}
