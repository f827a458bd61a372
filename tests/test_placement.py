"""Where ranks lie, against numbering them one by one: the node and the part of each, what their groups span."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from itertools import chain, permutations, product
from typing import Any

import numpy as np
import pytest
from points import MIXTRAL, point, rows
from shapes import cluster, cut, stack

from pipesim import legality
from pipesim.costs import hops, topology
from pipesim.estimate import sites
from pipesim.estimate.sites import Degrees
from pipesim.plan.search import placement
from pipesim.specs import CostConstants

ORDERS = ["".join(letters) for letters in permutations("tcdp")]
DEGREES = [(2, 2, 4, 4), (8, 1, 2, 4), (16, 2, 2, 1), (1, 4, 8, 2), (4, 2, 1, 8)]
"""t, c, d, p: 64 GPUs, nodes of 8."""
NODE = 8

Coordinates = dict[str, int]


def ranks(sizes: dict[str, int], order: str) -> dict[tuple[int, ...], int]:
    """Global ranks by their t, c, d and p, counted as an odometer whose innermost digit comes first."""
    found = {}
    for rank, digits in enumerate(product(*(range(sizes[letter]) for letter in reversed(order)))):
        at = dict(zip(reversed(order), digits, strict=True))
        found[tuple(at[letter] for letter in "tcdp")] = rank
    return found


def groups(sizes: dict[str, int], order: str, key: Callable[[Coordinates], Any]) -> list[list[int]]:
    """The global ranks that agree in ``key``, in rising order."""
    found: dict[Any, list[int]] = {}
    for place, rank in sorted(ranks(sizes, order).items(), key=lambda item: item[1]):
        found.setdefault(key(dict(zip("tcdp", place, strict=True))), []).append(rank)
    return list(found.values())


def beside(sizes: dict[str, int], order: str, at: Coordinates) -> int:
    """Which of the c d ranks with the same parameters a rank is, neighbours first."""
    inner, outer = sorted("cd", key=order.index)
    return at[outer] * sizes[inner] + at[inner]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("degrees", DEGREES)
def test_groups_span_the_nodes_that_numbering_every_rank_finds(degrees: tuple[int, ...], order: str) -> None:
    sizes = dict(zip("tcdp", degrees, strict=True))
    numbers = cut(**sizes, rank_order=order)
    replicas = sizes["c"] * sizes["d"]
    asked: list[tuple[Any, Callable[[Coordinates], Any]]] = [
        ([(numbers.t, numbers.stride("t"))], lambda at: (at["c"], at["d"], at["p"])),
        ([(numbers.c, numbers.stride("c"))], lambda at: (at["t"], at["d"], at["p"])),
        (numbers.replica_axes, lambda at: (at["t"], at["p"])),
    ]
    for size in (size for size in (1, 2, 4, 8) if replicas % size == 0):
        near, far = topology.split(numbers.replica_axes, float(size))
        asked += [
            (near, lambda at, size=size: (at["t"], at["p"], beside(sizes, order, at) // size)),
            (far, lambda at, size=size: (at["t"], at["p"], beside(sizes, order, at) % size)),
        ]
    for axes, key in asked:
        found = topology.group(cluster(), CostConstants(kind="full"), axes, 64)
        spans = [np.unique(np.array(group) // NODE, return_counts=True)[1] for group in groups(sizes, order, key)]
        assert {len(span) for span in spans} == {int(found.nodes)}, (axes, order)
        assert {int(n) for span in spans for n in span} == {int(found.inside)}
        assert bool(found.leaves) == any(len(span) > 1 for span in spans)
        assert int(found.sharing) == (NODE // int(found.inside) if found.leaves else 1)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("degrees", DEGREES)
def test_a_result_takes_the_network_where_two_ranks_lie_on_two_nodes(degrees: tuple[int, ...], order: str) -> None:
    sizes = dict(zip("tcdp", degrees, strict=True))
    at = point(t=1, p=1)
    at = dataclasses.replace(at, cluster=cluster(), stack=stack())
    p = sizes["p"]
    found = hops.boundary_s(
        at, cut(**{key: np.full((1, 1), float(size)) for key, size in sizes.items()}, rank_order=order), 1e9, range(p)
    )
    numbered = ranks(sizes, order)
    for boundary in range(p - 1):
        crosses = {
            numbered[(*place[:3], boundary)] // NODE != numbered[(*place[:3], boundary + 1)] // NODE
            for place in numbered
            if place[3] == 0
        }
        assert len(crosses) == 1
        inside_s = 3e-6 + 1e9 / (300e9 * at.costs.intra_node_efficiency)
        assert (found[0, boundary] > 1.001 * inside_s) == crosses.pop()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("gpus", "degrees"), [((24, 40), (2, 2, 4, 4)), ((8, 16, 40), (4, 1, 4, 4)), ((16, 24), (1, 2, 3, 6))]
)
def test_replicas_lie_on_the_parts_that_numbering_every_rank_finds(
    gpus: tuple[int, ...], degrees: tuple[int, ...], order: str
) -> None:
    sizes = dict(zip("tcdp", degrees, strict=True))
    numbered, p, shards = ranks(sizes, order), sizes["p"], sizes["c"] * sizes["d"] // 2
    part = np.repeat(np.arange(len(gpus)), gpus)

    def bits(members: Iterable[int]) -> int:
        return sum(1 << each for each in {int(part[rank]) for rank in members})

    def stretched(of: list[list[int]]) -> int:
        found = 0
        for members in of:
            found |= bits(members) if bits(members).bit_count() > 1 else 0
        return found

    def those(key: Callable[[Coordinates], Any], **fixed: int) -> list[list[int]]:
        found: dict[Any, list[int]] = {}
        for place, rank in numbered.items():
            at = dict(zip("tcdp", place, strict=True))
            if all(at[name] == value for name, value in fixed.items()):
                found.setdefault(key(at), []).append(rank)
        return list(found.values())

    def lanes(replica: int, *ends: int) -> list[list[int]]:
        found = those(lambda at: (at["t"], at["c"]), d=replica)
        return [[members[end] for end in ends] for members in map(sorted_by_p, found)]

    def sorted_by_p(members: list[int]) -> list[int]:
        where = {rank: place[3] for place, rank in numbered.items()}
        return sorted(members, key=where.__getitem__)

    def on_rank(rank: int, replica: int) -> tuple[int, frozenset[tuple[str, int]]]:
        here = {"p": rank, "d": replica}
        dimensions = {
            "tp": those(lambda at: at["c"], **here),
            "cp": those(lambda at: at["t"], **here),
            "tied": lanes(replica, 0, p - 1),
            "dp": those(lambda at: (at["t"], beside(sizes, order, at) // shards), p=rank),
            "replicas": those(lambda at: (at["t"], beside(sizes, order, at) % shards), p=rank),
        }
        found = {name: stretched(each) for name, each in dimensions.items()}
        return bits(chain(*those(lambda at: 0, **here))), frozenset((k, v) for k, v in found.items() if v)

    def hop(replica: int, *ends: int) -> tuple[int, int]:
        return bits(chain(*lanes(replica, *ends))), stretched(lanes(replica, *ends))

    wanted = {
        (
            tuple(on_rank(rank, replica) for rank in range(p)),
            tuple(hop(replica, rank, rank + 1) for rank in range(p - 1)),
        )
        for replica in range(sizes["d"])
    }
    pairs = tuple(((rank, rank + 1),) for rank in range(p - 1))
    at = Degrees(t=sizes["t"], p=p, d=sizes["d"], c=sizes["c"], e=1, shards=shards)
    found = sites.placed(gpus, at, order, False, pairs)
    assert {
        (
            tuple((site.parts, frozenset(site.stretched)) for site in replica.ranks),
            tuple((hop.parts, dict(hop.stretched).get("pp", 0)) for hop in replica.hops),
        )
        for replica in found.replicas
    } == wanted
    assert len(found.replicas) == len(wanted)
    assert found.rank_parts == tuple(bits(chain(*those(lambda at: 0, p=rank))) for rank in range(p))
    assert sum(found.gpus) == len(numbered)
    coupled = sites.placed(gpus, at, order, True, pairs)
    assert [site.parts for site in coupled.replicas[0].ranks] == list(found.rank_parts)


def test_experts_lie_among_the_inner_ranks_of_c_and_d() -> None:
    """Eight experts: within a node where d follows t, on eight nodes where p lies between."""
    near, far = rows(*(point(*MIXTRAL, t=1, p=8, d=32, e=8, rank_order=order) for order in ("tdcp", "tpdc")))
    assert near["ep_s"] < far["ep_s"]


def test_the_orders_worth_trying_differ_in_some_price_and_no_other_order_does() -> None:
    at = legality.resolve(
        point("model=llama3_70b", "cluster=dgx_h100", "training=megatron", "stack=megatron_lm", t=2, p=4, d=16, c=2)
    )
    chosen = placement.orders(at)
    assert chosen[0] == "tcdp"
    assert len(set(chosen)) == len(chosen)
    steps = step_by_order(at, ORDERS)
    whole = [order for order in ORDERS if inner_gpus(at, order) <= NODE]
    assert {steps[order] for order in whole} == {steps[order] for order in chosen}
    assert min(steps.values()) in {steps[order] for order in chosen}


def test_degrees_of_one_make_no_orders() -> None:
    alone = legality.resolve(
        point("cluster=dgx_h100", "training=megatron", "model=llama3_8b", "stack=megatron_lm", t=8, p=1, d=32)
    )
    assert placement.orders(alone) == ["tcdp"]


def test_a_mixed_cluster_has_orders_that_put_whole_replicas_on_one_part() -> None:
    words = "model=llama3_70b", "cluster=mixed_a100_h100", "training=megatron", "stack=megatron_lm"
    at = legality.resolve(point(*words, t=4, p=4, d=16, partition=(13, 12, 28, 29)))
    chosen = placement.orders(at)
    assert {"tcdp", "tcpd"} <= set(chosen)
    steps = step_by_order(at, chosen)
    assert steps["tcdp"] < steps["tcpd"]


def step_by_order(at: Any, orders: list[str]) -> dict[str, float]:
    asked = [dataclasses.replace(at, layout=dataclasses.replace(at.layout, rank_order=order)) for order in orders]
    return {order: row["step_time_s"] for order, row in zip(orders, rows(*asked), strict=True)}


def inner_gpus(at: Any, order: str) -> int:
    return int(np.prod([getattr(at.layout, each) for each in order[: order.index("t") + 1]]))
