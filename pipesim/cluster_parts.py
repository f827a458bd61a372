"""Clusters that are not uniform: parts of equal nodes each, read from their config and joined to one cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipesim.checks import Checks, Invalid, suggest
from pipesim.specs import ClusterPart, ClusterSpec, LinkSpec, slowest_link

Conf = Mapping[str, Any]

OF_EQUAL_NODES = (
    "chip", "gpus", "gpus_per_node", "peak_tflops", "multiprocessors", "flash_efficiency", "memory_gb", "hbm_gb_per_s",
    "intra_node_gb_per_s", "intra_node_latency_us", "inter_node_gb_per_s", "inter_node_latency_us",
)  # fmt: skip
"""Keys that a cluster of equal nodes must have, and that parts say for themselves."""

PLAIN = {"network_decay": 0.0, "network_flat_nodes": 1.0}
"""Keys with a default that parts say for themselves too."""

OF_PARTS = ("between_gb_per_s", "between_latency_us")

MOST_PARTS = 60
"""Sets of parts are kept as bits of a whole number."""


def check_keys(conf: Conf) -> None:
    """Raises ``Invalid`` with every key that is missing, or that says something else than the parts, or their absence."""
    parts = conf.get("parts") or ()
    wanted = (OF_PARTS if len(parts) > 1 else ()) if parts else OF_EQUAL_NODES
    problems = [f"cluster.{key} is missing: it must be given." for key in wanted if conf.get(key) is None]
    if not parts:
        problems += [
            f"cluster.{key}={conf[key]}: only cluster.parts have a network between them. Nearest: cluster.{key}=null."
            for key in OF_PARTS
            if conf.get(key) is not None
        ]
    else:
        meant = dict.fromkeys(OF_EQUAL_NODES) | PLAIN | derived(parts)
        if all(conf.get(key) is not None for key in OF_EQUAL_NODES):
            raise Invalid(
                [
                    f"cluster.parts stand beside cluster={conf.get('name')}, a cluster of equal nodes, all of whose keys would "
                    "contradict them. Nearest: cluster=mixed_a100_h100 with these parts."
                ]
            )
        problems += [
            f"cluster.{key}={conf[key]}: cluster.parts say this, each for itself"
            + (
                f". Nearest: cluster.{key}={value}, which they make."
                if value is not None
                else ". Nearest: leave it out."
            )
            for key, value in meant.items()
            if conf.get(key) not in (None, value)
        ]
    if problems:
        raise Invalid(problems)


def derived(parts: Sequence[Conf]) -> dict[str, Any]:
    """What parts that are spelt out make of the keys that conditions and tables ask of a whole cluster."""
    clusters = [part["cluster"] for part in parts]
    if any(cluster.get(key) is None for cluster in clusters for key in OF_EQUAL_NODES):
        return {}
    return {
        "chip": "+".join(sorted({cluster["chip"] for cluster in clusters})),
        "gpus": sum(part["nodes"] * part["cluster"]["gpus_per_node"] for part in parts),
        "gpus_per_node": min(cluster["gpus_per_node"] for cluster in clusters),
        "memory_gb": min(cluster["memory_gb"] for cluster in clusters),
    }


def spelt_out(parts: Sequence[Conf], named: Callable[[str], Conf | None], known: Sequence[str]) -> list[dict[str, Any]]:
    """The parts with every cluster's config in the place of its name; ``named`` finds one, ``known`` are all names."""
    problems, found = [], []
    for index, part in enumerate(parts):
        key, asked = f"cluster.parts[{index}].cluster", part["cluster"]
        conf = named(asked) if isinstance(asked, str) else asked
        if not isinstance(conf, Mapping):
            problems.append(
                f"{key}={asked!r} must be one of {', '.join(known)}, or a cluster's keys."
                + suggest(str(asked), [*known])
            )
        elif conf.get("parts"):
            problems.append(f"{key}={conf.get('name')} has parts itself. Nearest: name its parts here.")
        else:
            found.append({"cluster": dict(conf), "nodes": part["nodes"]})
    if problems:
        raise Invalid(problems)
    return found


def joined(conf: Conf, clusters: Sequence[ClusterSpec]) -> ClusterSpec:
    """One cluster of all parts, whose ``clusters`` stand in their order.

    Of itself it says what holds for all its GPUs: the precisions and kernels that all have, the least memory and speed; its
    price and power are means. No price of a layout is made from these: parts are priced each for itself.
    """
    _check_nodes(conf, clusters)
    parts = tuple(
        ClusterPart(cluster=cluster, nodes=part["nodes"]) for cluster, part in zip(clusters, conf["parts"], strict=True)
    )
    between = None
    if conf["between_gb_per_s"] is not None:
        between = LinkSpec(
            bandwidth_bytes_per_s=conf["between_gb_per_s"] * 1e9, latency_s=conf["between_latency_us"] * 1e-6
        )
        checks = Checks("cluster")
        checks.positive(between_gb_per_s=conf["between_gb_per_s"])
        checks.not_negative(between_latency_us=conf["between_latency_us"])
        checks.done()
    return ClusterSpec(
        name=conf["name"],
        chip="+".join(sorted({each.chip for each in clusters})),
        gpus=sum(part.gpus for part in parts),
        gpus_per_node=min(each.gpus_per_node for each in clusters),
        peak_flops_per_s=_least([each.peak_flops_per_s for each in clusters]),
        multiprocessors=min(each.multiprocessors for each in clusters),
        flash_efficiency=_least([each.flash_efficiency for each in clusters]),
        memory_bytes=min(each.memory_bytes for each in clusters),
        hbm_bytes_per_s=min(each.hbm_bytes_per_s for each in clusters),
        intra_node=slowest_link([each.intra_node for each in clusters]),
        inter_node=slowest_link([each.inter_node for each in clusters]),
        watts_per_gpu=_mean(conf["watts_per_gpu"], parts, [each.watts_per_gpu for each in clusters]),
        usd_per_gpu_hour=_mean(conf["usd_per_gpu_hour"], parts, [each.usd_per_gpu_hour for each in clusters]),
        parts=parts,
        between=between,
        source=conf["source"],
    )


def _check_nodes(conf: Conf, clusters: Sequence[ClusterSpec]) -> None:
    """Nodes are found by dividing a rank by GPUs per node, so that each part must begin where such a node would."""
    checks, first = Checks("cluster"), 0
    checks.rule(
        len(clusters) <= MOST_PARTS,
        f"cluster.parts has {len(clusters)} parts. Nearest: {MOST_PARTS}, the most there can be.",
    )
    for index, (part, cluster) in enumerate(zip(conf["parts"], clusters, strict=True)):
        checks.whole(**{f"parts[{index}].nodes": part["nodes"]})
        size = cluster.gpus_per_node
        checks.rule(
            first % size == 0,
            f"cluster.parts[{index}] has nodes of {size} GPUs and begins after {first} GPUs, within such a node. Nearest: "
            f"{first // size * size} or {-(-first // size) * size} GPUs before it, or the parts of larger nodes first.",
        )
        first += (part["nodes"] if isinstance(part["nodes"], int) else 0) * size
    checks.done()


def _least(values: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
    """The smallest of each that all have."""
    return {key: min(each[key] for each in values) for key in values[0] if all(key in each for each in values)}


def _mean(given: float | None, parts: Sequence[ClusterPart], of_parts: Sequence[float | None]) -> float | None:
    """Of all GPUs, where nothing else is given."""
    known = [value * part.gpus for value, part in zip(of_parts, parts, strict=True) if value is not None]
    if given is not None or len(known) < len(parts):
        return given
    return sum(known) / sum(part.gpus for part in parts)
