"""Seconds and bytes of communication: closed forms, laws, and the link a group of ranks gets."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import cluster, cut

from pipesim.config import library
from pipesim.costs.collectives import (
    all_reduce_s,
    all_to_all_s,
    collective_half_s,
    hierarchical_all_reduce_s,
    ring_half_s,
    ring_sent_bytes,
    ring_start_s,
    send_s,
)
from pipesim.costs.topology import Group, Link, group, intra_node_link, network_bytes_per_s, split
from pipesim.specs import CostConstants, LinkSpec

LAW = settings(deadline=None, max_examples=25)
BYTES = st.floats(0, 1e12)
RANKS = st.integers(1, 4096)
LINKS = st.builds(Link, st.floats(1e6, 1e13), st.floats(0, 1e-2), st.floats(0, 1e-3))


def beside(ranks: Any, link: Link) -> Group:
    """Ranks on one node."""
    return Group(ranks, ranks, np.asarray(False), 1.0, link, link, link)


COLLECTIVES: dict[str, Any] = {
    "half": ring_half_s,
    "fastest half": collective_half_s,
    "fastest": lambda message, ranks, link: all_reduce_s(message, beside(ranks, link)),
    "rings alone": lambda message, ranks, link: ring_start_s(message, beside(ranks, link)),
    "all-to-all": lambda message, ranks, link: all_to_all_s(message, beside(ranks, link)),
}

CLUSTER = cluster()
PEAK = CostConstants(kind="full")
NVLINK, NETWORK_GPUS = (300e9, 3e-6, 0), {1: 48e9, 2: 24e9, 4: 12e9, 8: 6e9}


def group_link(on: Any, costs: CostConstants, size: Any, stride: Any, gpus: float = math.inf) -> Link:
    """The ring of a group whose ranks lie equally far apart."""
    return group(on, costs, [(size, stride)], gpus).flat


def around_the_ring(message_bytes: float, ranks: int, link: Link) -> tuple[float, float]:
    """Seconds and bytes of one rank that passes 1/n of the message to its neighbour, until every part went round."""
    seconds = sent = 0.0
    for _ in range(ranks - 1):
        seconds += link.latency_s + message_bytes / ranks / link.bandwidth_bytes_per_s
        sent += message_bytes / ranks
    return seconds, sent


@LAW
@given(message=BYTES, ranks=RANKS, link=LINKS)
def test_a_ring_all_reduce_takes_its_published_closed_form(message: float, ranks: int, link: Link) -> None:
    # Patarasuk and Yuan 2009: T = 2 (n - 1) alpha + 2 (n - 1) / n * S / beta
    published = 2 * (ranks - 1) * link.latency_s + 2 * (ranks - 1) / ranks * message / link.bandwidth_bytes_per_s
    assert 2 * ring_half_s(message, ranks, link) == pytest.approx(published, rel=1e-12)


def test_a_worked_all_reduce() -> None:
    # 4 ranks, 8 GB, 100 GB/s, 10 us: 6 hops of 10 us, 1.5 x 8 GB at 100 GB/s
    assert 2 * ring_half_s(8e9, 4, Link(100e9, 10e-6)) == pytest.approx(0.12006, rel=1e-12)


@LAW
@given(message=BYTES, ranks=st.integers(1, 64), link=LINKS)
def test_half_an_all_reduce_is_one_walk_around_the_ring(message: float, ranks: int, link: Link) -> None:
    seconds, sent = around_the_ring(message, ranks, link)
    assert ring_half_s(message, ranks, link) == pytest.approx(seconds, rel=1e-9)
    assert ring_sent_bytes(message, ranks) == pytest.approx(sent, rel=1e-9)


@LAW
@given(message=BYTES, link=LINKS)
def test_one_rank_talks_to_nobody_and_costs_exactly_nothing(message: float, link: Link) -> None:
    assert [collective(message, 1, link) for collective in COLLECTIVES.values()] == [0] * 5
    assert ring_sent_bytes(message, 1) == 0


@LAW
@given(message=BYTES, ranks=RANKS, link=LINKS)
def test_an_all_to_all_sends_every_other_rank_its_share(message: float, ranks: int, link: Link) -> None:
    others = ranks - 1
    expected = others * (link.latency_s + message / ranks / link.bandwidth_bytes_per_s)
    start_s = link.start_s if ranks > 1 else 0
    assert all_to_all_s(message, beside(ranks, link)) == pytest.approx(start_s + expected, rel=1e-12)


@pytest.mark.parametrize("name", COLLECTIVES)
@LAW
@given(message=BYTES, ranks=RANKS, link=LINKS, factor=st.floats(1, 10))
def test_more_of_anything_but_bandwidth_never_makes_a_collective_faster(
    name: str, message: float, ranks: int, link: Link, factor: float
) -> None:
    collective, slack = COLLECTIVES[name], 1 + 1e-12
    base = collective(message, ranks, link)
    assert collective(message * factor, ranks, link) * slack >= base
    assert collective(message, ranks + 1, link) * slack >= base
    assert collective(message, ranks, link._replace(latency_s=link.latency_s * factor)) * slack >= base
    faster = link._replace(bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * factor)
    assert collective(message, ranks, faster) <= base * slack


@LAW
@given(message=BYTES, link=LINKS)
def test_a_send_takes_its_latency_and_its_bytes(message: float, link: Link) -> None:
    assert send_s(message, link) == link.latency_s + message / link.bandwidth_bytes_per_s


@pytest.mark.parametrize("name", [*COLLECTIVES, "sent", "send"])
@LAW
@given(calls=st.lists(st.tuples(BYTES, RANKS, st.floats(1e6, 1e13), st.floats(0, 1e-2)), min_size=1, max_size=20))
def test_an_array_of_calls_equals_the_calls_to_the_last_bit(
    name: str, calls: list[tuple[float, int, float, float]]
) -> None:
    def cost(message, ranks, bandwidth, latency):  # type: ignore[no-untyped-def]
        if name == "sent":
            return ring_sent_bytes(message, ranks)
        if name == "send":
            return send_s(message, Link(bandwidth, latency))
        return COLLECTIVES[name](message, ranks, Link(bandwidth, latency))

    together = cost(*np.array(calls, np.float64).T)
    assert together.tolist() == [cost(*call) for call in calls]


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (8, 1), (4, 2), (2, 4), (1, 8)])
def test_a_group_that_fits_into_a_node_gets_its_links(size: int, stride: int) -> None:
    assert group_link(CLUSTER, PEAK, size, stride) == NVLINK == intra_node_link(CLUSTER, PEAK)


@pytest.mark.parametrize(("stride", "bandwidth"), NETWORK_GPUS.items())
def test_rings_that_leave_a_node_share_its_network(stride: int, bandwidth: float) -> None:
    # 48 GB/s a node: with stride 4, four rings of neighbours leave it side by side
    assert group_link(CLUSTER, PEAK, 16, stride) == (bandwidth, 14e-6, 0)


@pytest.mark.parametrize(("size", "stride"), [(7, 1), (3, 1), (3, 2), (5, 1)])
def test_groups_that_do_not_divide_a_node_leave_it_unless_the_job_is_on_one(size: int, stride: int) -> None:
    # groups of 7 on nodes of 8: the second is ranks 7 to 13
    assert group_link(CLUSTER, PEAK, size, stride, 56) == (NETWORK_GPUS[stride], 14e-6, 0)
    assert group_link(CLUSTER, PEAK, size, stride, size * stride) == NVLINK


def test_no_more_rings_share_a_network_than_the_node_has_gpus() -> None:
    assert group_link(CLUSTER, PEAK, 2, 32) == (6e9, 14e-6, 0)


def test_a_fast_network_is_no_faster_than_the_link_to_the_own_node() -> None:
    fast = LinkSpec(bandwidth_bytes_per_s=900e9, latency_s=14e-6)
    assert group_link(cluster(inter_node=fast), PEAK, 16, 1) == (300e9, 14e-6, 0)


def test_efficiencies_lower_their_own_link_and_no_latency() -> None:
    costs = CostConstants(kind="full", intra_node_efficiency=0.5, inter_node_efficiency=0.25)
    assert group_link(CLUSTER, costs, 8, 1) == (150e9, 3e-6, 0)
    assert group_link(CLUSTER, costs, 4, 4) == (3e9, 14e-6, 0)


@LAW
@given(groups=st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)), min_size=1, max_size=20))
def test_links_of_many_groups_equal_those_of_each(groups: list[tuple[int, int]]) -> None:
    sizes, strides = np.array(groups, np.float64).T
    decaying = cluster(network_decay=0.2)
    bandwidths, latencies, _ = group_link(decaying, PEAK, sizes, strides)
    assert list(zip(bandwidths, latencies, strict=True)) == [group_link(decaying, PEAK, *group)[:2] for group in groups]


@LAW
@given(message=BYTES, ranks=RANKS, link=LINKS)
def test_a_library_takes_the_faster_of_ring_and_tree(message: float, ranks: int, link: Link) -> None:
    # Sanders, Speck and Traeff 2009: log2 n latencies, the whole message once
    bare = link._replace(start_s=0.0)
    ring_s, tree_s = ring_half_s(message, ranks, bare), math.log2(ranks) * link.latency_s + message / link[0]
    assert collective_half_s(message, ranks, bare) == pytest.approx(min(ring_s, tree_s) if ranks > 1 else 0, rel=1e-12)


def test_trees_win_where_latency_counts_and_rings_where_bytes_do() -> None:
    # 64 ranks, 100 GB/s, 10 us a hop: 1 KB takes 6 instead of 63 hops, 10 GB 63/64 of the whole and 630 us
    link = Link(100e9, 10e-6)
    assert collective_half_s(1e3, 64, link) == pytest.approx(6 * 10e-6 + 1e-8, rel=1e-12)
    assert collective_half_s(10e9, 64, link) == pytest.approx(63 * 10e-6 + 0.1 * 63 / 64, rel=1e-12)


@pytest.mark.parametrize(("ranks", "starts"), [(1, 0), (2, 1), (4, 1.5), (8, 2), (16, 2.5)])
def test_starting_a_collective_takes_longer_among_more_ranks(ranks: int, starts: float) -> None:
    nothing_else = Link(1e30, 0.0, 20e-6)
    assert collective_half_s(1.0, ranks, nothing_else) == pytest.approx(starts * 20e-6, rel=1e-9)


def test_a_decaying_network_gives_long_rings_less() -> None:
    # flat up to the 32 GPUs of 4 nodes; rings of 128 get (128 / 32) ** -0.5 = half
    decaying = cluster(network_decay=0.5, network_flat_nodes=4)
    assert [float(network_bytes_per_s(decaying, PEAK, ranks)) for ranks in (2, 32, 128, 512)] == [
        48e9,
        48e9,
        24e9,
        12e9,
    ]
    assert group_link(decaying, PEAK, 128, 1) == (24e9, 14e-6, 0)  # 16 nodes
    assert group_link(decaying, PEAK, 16, 8) == (6e9, 14e-6, 0)  # 16 nodes, eight short rings side by side
    assert network_bytes_per_s(CLUSTER, PEAK, 64) == 48e9


@pytest.mark.parametrize(("nodes", "measured"), [(4, 160), (8, 100), (16, 85), (32, 65), (64, 33)])
def test_all_reduces_over_many_nodes_reach_the_measured_bus_bandwidth(nodes: int, measured: float) -> None:
    # Tazi et al., "The Ultra-Scale Playbook", 2025: 256 MB over nodes of 8 H100; GB/s of the ring's 2 (n - 1) / n bytes.
    # Two nodes are left out: 362 GB/s is more than a GPU's own links achieve here, and nothing here reduces inside a switch.
    ranks = group(library("cluster")["aws_p5"], library("costs")["full"], [(8 * nodes, 1)])
    moved = 2 * (8 * nodes - 1) / (8 * nodes) * 256e6
    assert moved / all_reduce_s(256e6, ranks) / 1e9 == pytest.approx(measured, rel=0.2)
    assert moved / (2 * ring_half_s(256e6, 8 * nodes, ranks.flat)) / 1e9 < 0.7 * measured


NODES = st.builds(lambda g, k: (g, k), st.sampled_from([1, 2, 4, 8]), st.integers(1, 64))
CLUSTERS = st.builds(
    lambda inside, network, slow, decay: cluster(
        intra_node=LinkSpec(bandwidth_bytes_per_s=inside, latency_s=3e-6),
        inter_node=LinkSpec(bandwidth_bytes_per_s=network, latency_s=slow), network_decay=decay,
    ),
    st.floats(1e9, 1e12), st.floats(1e9, 1e12), st.floats(1e-6, 1e-3), st.sampled_from([0.0, 0.5]),
)  # fmt: skip


@LAW
@given(message=BYTES, shape=NODES, on=CLUSTERS)
def test_an_all_reduce_is_never_slower_than_the_flat_ring_it_may_choose_instead(
    message: float, shape: tuple[int, int], on: Any
) -> None:
    inside, nodes = shape
    ranks = group(on, PEAK, [(inside * nodes, 8 // inside)])
    ring_s = 2 * ring_half_s(message, ranks.ranks, ranks.flat)
    assert all_reduce_s(message, ranks) <= ring_s * (1 + 1e-12)


def test_an_all_reduce_on_two_levels_takes_what_is_counted_by_hand() -> None:
    # 2 nodes of 8, 300 and 48 GB/s, 1 GB: inside 2 x 7/8 GB over NVLink, 14 hops; between 2 x 1/2 x 1/8 GB over an eighth
    # of the network, 2 hops. A flat ring moves 2 x 15/16 GB over the network, 30 hops.
    ranks = group(CLUSTER, PEAK, [(16, 1)])
    levels_s = 2 * 7 * 3e-6 + 1.75e9 / 300e9 + 2 * 14e-6 + 0.125e9 / 6e9
    assert hierarchical_all_reduce_s(1e9, ranks) == pytest.approx(levels_s, rel=1e-12)
    assert all_reduce_s(1e9, ranks) == pytest.approx(levels_s, rel=1e-12)
    assert 2 * ring_half_s(1e9, 16, ranks.flat) == pytest.approx(30 * 14e-6 + 1.875e9 / 48e9, rel=1e-12)


def test_a_network_as_fast_as_the_node_leaves_large_messages_to_the_flat_ring() -> None:
    fast = cluster(inter_node=LinkSpec(bandwidth_bytes_per_s=300e9, latency_s=14e-6))
    ranks = group(fast, PEAK, [(16, 1)])
    assert all_reduce_s(1e10, ranks) == pytest.approx(2 * ring_half_s(1e10, 16, ranks.flat), rel=1e-12)
    assert all_reduce_s(1e3, ranks) < 2 * ring_half_s(1e3, 16, ranks.flat)


@LAW
@given(message=BYTES, inside=st.sampled_from([1, 2, 4, 8]), on=CLUSTERS)
def test_one_node_talks_inside_only(message: float, inside: int, on: Any) -> None:
    slower = dataclasses.replace(on, inter_node=LinkSpec(bandwidth_bytes_per_s=1.0, latency_s=1.0))
    times = [
        [float(talk(message, group(each, PEAK, [(inside, 8 // inside)]))) for talk in (all_reduce_s, all_to_all_s)]
        for each in (on, slower)
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize("talk", [all_reduce_s, all_to_all_s, ring_start_s])
@LAW
@given(message=BYTES, shape=NODES, on=CLUSTERS, by=st.floats(1, 10))
def test_more_bandwidth_or_fewer_bytes_never_slow_groups_of_several_nodes(
    talk: Any, message: float, shape: tuple[int, int], on: Any, by: float
) -> None:
    axes = [(shape[0] * shape[1], 8 // shape[0])]
    base = talk(message, group(on, PEAK, axes)) * (1 + 1e-12)
    assert talk(message / by, group(on, PEAK, axes)) <= base
    for name in ("intra_node", "inter_node"):
        link = getattr(on, name)
        wider = dataclasses.replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * by)
        sooner = dataclasses.replace(link, latency_s=link.latency_s / by)
        for better in (wider, sooner):
            assert talk(message, group(dataclasses.replace(on, **{name: better}), PEAK, axes)) <= base
    alone = group(on, PEAK, [(1, 1)])
    assert float(talk(message, alone)) == 0


def test_all_ranks_of_a_node_share_its_network_in_an_all_to_all() -> None:
    # 16 ranks on 2 nodes: 8 of 16 parts go over an eighth of 48 GB/s, 7 over NVLink meanwhile
    expected = 7 * 3e-6 + 8 * 14e-6 + 16e9 / 16 * 8 / 6e9
    assert all_to_all_s(16e9, group(CLUSTER, PEAK, [(16, 1)])) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("axes", "inside", "sharing"),
    [
        ([(16, 1)], 8, 1), ([(16, 4)], 2, 4), ([(4, 8)], 1, 8), ([(2, 16)], 1, 8), ([(2, 4), (4, 8)], 2, 4),
        ([(2, 2), (4, 16)], 2, 4), ([(4, 2), (1, 8)], 4, 1), ([(12, 1)], 1, 1), ([(3, 2)], 1, 2),
    ],
)  # fmt: skip
def test_a_node_holds_as_many_of_a_group_as_lie_on_it(axes: Any, inside: int, sharing: int) -> None:
    found = group(CLUSTER, PEAK, axes)
    assert (float(found.inside), float(found.sharing)) == (inside, sharing)
    assert found.ranks == math.prod(size for size, _ in axes)


@LAW
@given(
    order=st.permutations("tcdp"), sizes=st.tuples(*[st.sampled_from([1, 2, 4])] * 4), share=st.sampled_from([1, 2, 4])
)
def test_groups_are_the_ranks_that_a_rank_order_puts_beside_each_other(
    order: list[str], sizes: tuple[int, ...], share: int
) -> None:
    degree = dict(zip("tcdp", sizes, strict=True))
    made = cut(**{key: float(size) for key, size in degree.items()}, rank_order="".join(order))
    strides = [math.prod(degree[each] for each in order[:k]) for k in range(4)]
    ranks = {
        sum(at * stride for at, stride in zip(ats, strides, strict=True)): dict(zip(order, ats, strict=True))
        for ats in itertools.product(*(range(degree[each]) for each in order))
    }
    replicas = sorted(rank for rank, at in ranks.items() if at["t"] == at["p"] == 0)
    assert members(made.replica_axes) == replicas
    share = math.gcd(share, len(replicas))
    inner, outer = split(made.replica_axes, float(share))
    assert members(inner) == replicas[:share]
    assert members(outer) == replicas[::share]


def members(axes: Any) -> list[int]:
    """The global ranks of the group that holds rank 0."""
    (first, near), (second, far) = axes
    return sorted(int(i * near + j * far) for i in range(int(first)) for j in range(int(second)))
