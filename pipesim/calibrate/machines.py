"""Which machine a measured row ran on: GPU names and networks as sources write them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from pipesim.specs import ClusterSpec, LinkSpec

_CHIPS = (  # a pattern of the row's gpu column, the cluster that has such GPUs
    (r"V100", "dgx2_v100"),
    (r"A100.*40G", "dgx_a100_40g"),
    (r"A100|A800", "dgx_a100"),
    (r"H100|H800|GH200|H20\b", "dgx_h100"),
    (r"H200", "hgx_h200"),
    (r"B200|B300|GB200", "dgx_b200"),
)

_MEMORY_GB = re.compile(r"-(\d+)G\b")
_WATTS = re.compile(r"-(\d+)W\b")
_HBM_TB_PER_S = re.compile(r"([\d.]+) ?TB/s")
_PORTS = re.compile(r"(\d+) ?x ?(\d+) ?Gb")
_PER_GPU = re.compile(r"(\d+) ?Gb/s\S* (?:CX-7 )?(?:per GPU|CX-7 per GPU)")
_PER_NODE = re.compile(r"(\d+) ?Gb/s per node")
_OMNIPATH = re.compile(r"(\d+)x OmniPath")


def cluster_of(row: Mapping[str, str], clusters: Mapping[str, ClusterSpec]) -> ClusterSpec | None:
    """The row's machine, built on one of ours with the same GPU; None if we have none.

    What the row states replaces what the model machine has: GPUs, GPUs per node, memory, network.
    """
    name = _named_machine(row) or _model_machine(row["gpu"])
    if name is None:
        return None
    base, gpu = clusters[name], row["gpu"]
    gpus, per_node = int(float(row["n_gpus"])), int(float(row["gpus_per_node"] or base.gpus_per_node))
    changes: dict[str, object] = {"gpus": gpus, "gpus_per_node": min(per_node, gpus)}
    if found := _MEMORY_GB.search(gpu):
        changes["memory_bytes"] = float(found[1]) * 1e9
    if found := _HBM_TB_PER_S.search(gpu):
        changes["hbm_bytes_per_s"] = float(found[1]) * 1e12
    if (found := _WATTS.search(gpu)) and base.watts_per_gpu:
        changes |= {"watts_per_gpu": float(found[1]), "peak_flops_per_s": _held_back(base, float(found[1]))}
    network = _network_bytes_per_s(f"{row['internode_net']}; {row['notes']}", per_node)
    if network is not None:
        changes["inter_node"] = LinkSpec(bandwidth_bytes_per_s=network, latency_s=base.inter_node.latency_s)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def _held_back(base: ClusterSpec, watts: float) -> dict[str, float]:
    """Peaks under another limit of power. What switches draws C V² f, and voltage rises with frequency: the clock goes with
    the cube root of power. Source: Weste and Harris, "CMOS VLSI Design", 4th edition, section 5.2.
    """
    clock = (watts / base.watts_per_gpu) ** (1 / 3) if base.watts_per_gpu else 1.0
    return {precision: peak * clock for precision, peak in base.peak_flops_per_s.items()}


def _named_machine(row: Mapping[str, str]) -> str | None:
    """Machines whose network is known by measurement alone."""
    if "EFA (measured" in row["internode_net"]:
        return "aws_p5"
    return "aleph_alpha_a100" if "aleph" in row["stack"] else None


def _model_machine(gpu: str) -> str | None:
    return next((name for pattern, name in _CHIPS if re.search(pattern, gpu)), None)


def _network_bytes_per_s(text: str, gpus_per_node: int) -> float | None:
    """One node's network, one direction, as the row's text states it."""
    if "EFA (measured" in text:
        return None  # the measured curve is aws_p5's own
    if found := _OMNIPATH.search(text):
        return int(found[1]) * 100e9 / 8
    if found := _PER_GPU.search(text):
        return int(found[1]) * gpus_per_node * 1e9 / 8
    if found := _PER_NODE.search(text):
        return int(found[1]) * 1e9 / 8
    if found := _PORTS.search(text):
        return int(found[1]) * int(found[2]) * 1e9 / 8
    return None
