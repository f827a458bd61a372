"""Where ranks lie on a cluster of several parts: on which parts the GPUs of a pipeline rank, and over which each group.

Global ranks are numbered node after node through the parts, so that they are placed by counting, one by one. Parts are
bits of a whole number: 5 is the first and the third.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from pipesim.costs.columns import IntArray
from pipesim.specs import ClusterSpec, slowest_link

Pair = tuple[int, int]


class Degrees(NamedTuple):
    """Of a layout; e is 1 where no layer has experts, ``shards`` are the ranks that share what ZeRO divides."""

    t: int
    p: int
    d: int
    c: int
    e: int
    shards: int


class Site(NamedTuple):
    """What the ranks of one stage, or the two of a hop, run on."""

    parts: int
    stretched: tuple[tuple[str, int], ...]
    """By dimension, over which parts the groups stretch that lie on several."""


class Replica(NamedTuple):
    """A pipeline as one or several replicas have it: of every rank, and of every pair of ranks asked for."""

    ranks: tuple[Site, ...]
    hops: tuple[Site, ...]


class Placed(NamedTuple):
    """All replicas of a layout that differ, and the parts that each pipeline rank has GPUs on, over all replicas."""

    replicas: tuple[Replica, ...]
    rank_parts: tuple[int, ...]
    gpus: tuple[int, ...]
    """In use on every part."""


def clusters_at(cluster: ClusterSpec, site: Site) -> Iterator[tuple[int, ClusterSpec]]:
    """The parts of a site as clusters of equal nodes, with the links that its stretched groups get."""
    for part in parts_of(site.parts):
        yield part, equal_nodes(cluster, part, site.stretched)


@lru_cache(maxsize=10_000)
def equal_nodes(cluster: ClusterSpec, part: int, stretched: tuple[tuple[str, int], ...]) -> ClusterSpec:
    """A ring is as fast as its slowest link: of the parts' own and what is between them."""
    assert cluster.between is not None or not stretched
    links = {}
    for dimension, parts in stretched:
        touched = [cluster.parts[each].cluster for each in parts_of(parts)]
        networks = [*(each.inter_node for each in touched), *([cluster.between] if cluster.between else [])]
        links[dimension] = slowest_link([each.intra_node for each in touched]), slowest_link(networks)
    return replace(cluster.parts[part].cluster, links=links)


def parts_of(bits: int) -> list[int]:
    """
    >>> parts_of(5)
    [0, 2]
    """
    return [part for part in range(bits.bit_length()) if bits >> part & 1]


@lru_cache(maxsize=100_000)
def placed(
    gpus: tuple[int, ...], degrees: Degrees, rank_order: str, coupled: bool, pairs: tuple[tuple[Pair, ...], ...]
) -> Placed:
    """``gpus`` of every part. ``coupled`` replicas wait for each other with every micro-batch, so that the slowest ranks of
    all make one pipeline. ``pairs`` of pipeline ranks, some at a time, hand results on.
    """
    part = _part_of_ranks(gpus, degrees, rank_order)
    bits = np.left_shift(1, part)  # (p, d, c, t)
    by_replica = {
        "parts": _either(bits, (2, 3)),
        "tp": _either(_stretched(_either(bits, 3)), 2),
        "cp": _either(_stretched(_either(bits, 2)), 2),
        "tied": np.broadcast_to(_either(_stretched(bits[0] | bits[-1]), (1, 2)), bits.shape[:2]),
    }  # (p, d)
    of_all = _among_replicas(bits, degrees, rank_order)  # (p,)
    ends = [[bits[list(each)] for each in zip(*some, strict=True)] for some in pairs]  # (pairs, d, c, t) here and there
    hops = [
        np.stack([_either(here | there, (0, 2, 3)), _either(_stretched(here | there), (0, 2, 3))])
        for here, there in ends
    ]  # (2, d)
    columns = np.concatenate([*by_replica.values(), *hops])  # (rows, d)
    one_each = _either(columns, 1)[:, None] if coupled else np.unique(columns, axis=1)
    return Placed(
        replicas=tuple(_replica(column.tolist(), degrees.p, [*by_replica], of_all) for column in one_each.T),
        rank_parts=tuple(_either(bits, (1, 2, 3)).tolist()),
        gpus=tuple(np.bincount(part.ravel(), minlength=len(gpus)).tolist()),
    )


def _part_of_ranks(gpus: tuple[int, ...], degrees: Degrees, rank_order: str) -> IntArray:
    """The part of every global rank, shape (p, d, c, t)."""
    sizes = [getattr(degrees, degree) for degree in reversed(rank_order)]
    numbered = np.arange(np.prod(sizes)).reshape(sizes)
    ends = np.cumsum(gpus)
    part = np.searchsorted(ends, numbered, side="right")
    return part.transpose([rank_order[::-1].index(degree) for degree in "pdct"])


def _among_replicas(bits: IntArray, degrees: Degrees, rank_order: str) -> dict[str, list[int]]:
    """Over which parts groups stretch that ranks of several replicas make, of each pipeline rank: neighbours among the ranks
    of c and d share experts, and what ZeRO divides; those with the same place in such groups are ``replicas``.
    """
    inner_first = (
        bits.transpose(0, 3, 1, 2) if rank_order.index("c") < rank_order.index("d") else bits.transpose(0, 3, 2, 1)
    )
    p, t = inner_first.shape[:2]
    sharing = inner_first.reshape(p, t, -1, degrees.shards)
    among = {
        "ep": _either(inner_first.reshape(p, t, -1, degrees.e), 3),
        "dp": _either(sharing, 3),
        "replicas": _either(sharing, 2),
    }
    return {dimension: _either(_stretched(each), (1, 2)).tolist() for dimension, each in among.items()}


def _replica(column: list[int], p: int, names: list[str], of_all: dict[str, list[int]]) -> Replica:
    own = {name: column[i * p : (i + 1) * p] for i, name in enumerate(names)}
    hops = column[len(names) * p :]
    return Replica(
        ranks=tuple(
            Site(
                own["parts"][rank],
                tuple(
                    (name, each[rank])
                    for name, each in ({name: own[name] for name in names[1:]} | of_all).items()
                    if each[rank]
                ),
            )
            for rank in range(p)
        ),
        hops=tuple(
            Site(parts, (("pp", stretched),) if stretched else ())
            for parts, stretched in zip(hops[::2], hops[1::2], strict=True)
        ),
    )


def _either(bits: Any, axes: int | tuple[int, ...]) -> IntArray:
    return np.asarray(np.bitwise_or.reduce(bits, axis=axes))


def _stretched(bits: Any) -> IntArray:
    """The sets of several parts; 0 for those of one."""
    return np.where(bits & (bits - 1), bits, 0)
