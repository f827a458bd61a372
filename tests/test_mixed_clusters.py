"""Clusters of several parts: what must be true of them, and the uniform cluster as their special case."""

from __future__ import annotations

import dataclasses
import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from points import default, point, row, rows
from shapes import cluster as eights

from pipesim import compose, config, study
from pipesim.calibrate import intervals
from pipesim.checks import Invalid
from pipesim.cluster_parts import joined
from pipesim.plan import grid
from pipesim.plan.asked.space import Axis, Slice, Space
from pipesim.point_id import point_id
from pipesim.specs import ClusterPart, ClusterSpec, LinkSpec, Point

LLAMA = (
    "model=llama3_70b", "training=megatron", "stack=megatron_lm", "parallel=megatron", "training.global_batch=256",
    "training.recompute=full",
)  # fmt: skip
MIXED, HALLS, H100, A100 = (
    (*LLAMA, f"cluster={name}") for name in ("mixed_a100_h100", "two_halls_h100", "dgx_h100", "dgx_a100")
)
LAYOUTS: list[dict[str, Any]] = [
    {"t": 4, "p": 4, "d": 16},
    {"t": 4, "p": 4, "d": 16, "rank_order": "tcpd"},
    {"t": 8, "p": 3, "d": 8},  # a stage lies on both parts, for some replicas
    {"t": 2, "p": 8, "d": 8, "c": 2, "rank_order": "tdcp"},
    {"t": 4, "p": 4, "d": 16, "zero": 1, "shard": 4, "rank_order": "tcpd"},
    {"t": 8, "p": 4, "d": 8, "zero": 3},
    {"t": 8, "p": 1, "d": 32},
    {"t": 4, "p": 4, "d": 16, "rank_order": "pdct"},
    {"t": 8, "p": 4, "d": 8, "v": 2, "schedule": "interleaved_1f1b"},
    {"t": 8, "p": 4, "d": 8, "v": None, "schedule": "dualpipe"},
]  # fmt: skip
NAMED = (
    "cluster",
    "reason",
    "extrapolates",
    "rank_parts",
    "memory_hi_bytes",
    "memory_lo_bytes",
    "step_time_hi_s",
    "step_time_lo_s",
)


def of(at: Point, *parts: tuple[ClusterSpec, int], between: LinkSpec | None = None) -> Point:
    """The point on a cluster of these parts, as a config would build it."""
    conf: dict[str, Any] = {
        "name": "parts", "parts": [{"nodes": nodes} for _, nodes in parts], "watts_per_gpu": None, "usd_per_gpu_hour": None,
        "between_gb_per_s": between and between.bandwidth_bytes_per_s / 1e9,
        "between_latency_us": between and between.latency_s * 1e6, "source": "",
    }  # fmt: skip
    return dataclasses.replace(at, cluster=joined(conf, [cluster for cluster, _ in parts]))


def uniform(cluster: ClusterSpec, **links: LinkSpec) -> ClusterSpec:
    return dataclasses.replace(cluster, gpus=256, **links)


def step_s(*points: Point) -> list[float]:
    found = rows(*points)
    assert all(each["step_time_s"] for each in found), [each["reason"] for each in found]
    return [each["step_time_s"] for each in found]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_one_part_is_the_uniform_cluster_to_the_last_bit(layout: dict[str, Any]) -> None:
    at = point(*H100, **layout)
    alone, part = (rows(each)[0] for each in (at, of(at, (at.cluster, 32))))
    assert part["rank_parts"] == [1] * layout["p"]
    assert {name for name in alone if alone[name] != part[name]} <= set(NAMED)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_two_halls_with_a_network_between_them_like_their_own_are_one(layout: dict[str, Any]) -> None:
    at = point(*H100, **layout)
    cluster = at.cluster
    one, two = rows(at, of(at, (cluster, 16), (cluster, 16), between=cluster.inter_node))
    for name, value in one.items():
        if name not in NAMED and isinstance(value, float):
            assert two[name] == pytest.approx(value, rel=1e-9), name
    assert two["communication"] == one["communication"]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_mixed_cluster_lies_between_its_faster_part_and_its_slower_one_over_the_slow_link(
    layout: dict[str, Any],
) -> None:
    at = point(*MIXED, **layout)
    slow, fast = (part.cluster for part in at.cluster.parts)
    assert at.cluster.between is not None
    best, mixed, worst = (
        step_s(each)[0]
        for each in (
            dataclasses.replace(at, cluster=uniform(fast)), at,
            dataclasses.replace(at, cluster=uniform(slow, inter_node=at.cluster.between)),
        )
    )  # fmt: skip
    assert best <= mixed * (1 + 1e-9)
    assert mixed <= worst * (1 + 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_making_a_part_or_the_link_faster_never_slows(layout: dict[str, Any]) -> None:
    at = point(*MIXED, **layout)
    first, second = (part.cluster for part in at.cluster.parts)
    between = at.cluster.between
    assert between is not None
    faster = dataclasses.replace(first, peak_flops_per_s={k: 2 * v for k, v in first.peak_flops_per_s.items()})
    wider = dataclasses.replace(between, bandwidth_bytes_per_s=2 * between.bandwidth_bytes_per_s)
    now, quick, wide = (
        step_s(each)[0]
        for each in (
            at, of(at, (faster, 16), (second, 16), between=between), of(at, (first, 16), (second, 16), between=wider),
        )
    )  # fmt: skip
    assert quick <= now * (1 + 1e-9)
    assert wide <= now * (1 + 1e-9)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_points_priced_together_are_what_each_is_alone(layout: dict[str, Any]) -> None:
    each = [point(*MIXED, **layout | {"micro_batch": size}) for size in (1, 2)]
    each += [point(*MIXED, **layout | {"global_batch": 512})]
    assert rows(*each) == [rows(one)[0] for one in each]


def test_a_stage_takes_as_long_as_on_a_uniform_cluster_of_its_part() -> None:
    """t4 p4 d16 in the order tcdp: ranks 0 and 1 on the A100s, 2 and 3 on the H100s. No stage stands still for its sends."""
    mixed, slow, fast = (row(*cluster, t=4, p=4, d=16, blocking_hops=False) for cluster in (MIXED, A100, H100))
    assert mixed["rank_parts"] == [1, 1, 2, 2]
    for name in ("stage_forward_s", "stage_input_grad_s", "stage_weight_grad_s"):
        assert mixed[name] == pytest.approx([*slow[name][:2], *fast[name][2:]], rel=1e-12)


def test_the_slowest_replica_counts_and_replicas_on_fast_nodes_gain_nothing() -> None:
    """In the order tcpd replicas lie whole on one part or the other; what they exchange crosses."""
    mixed, slow = (row(*cluster, t=4, p=4, d=16, rank_order="tcpd") for cluster in (MIXED, A100))
    assert mixed["rank_parts"] == [3] * 4
    assert mixed["makespan_s"] == slow["makespan_s"]
    assert mixed["dp_exposed_s"] > slow["dp_exposed_s"]


def test_fewer_layers_on_slow_gpus_make_a_mixed_cluster_faster() -> None:
    even, fitted = (row(*MIXED, t=4, p=4, d=16, partition=units) for units in ((21, 20, 20, 21), (13, 12, 28, 29)))
    assert fitted["step_time_s"] < 0.75 * even["step_time_s"]
    assert fitted["stage_units"] == [13, 12, 28, 29]


def test_mfu_is_over_the_mean_peak_of_the_gpus_in_use() -> None:
    """Dense bf16: NVIDIA A100 312, H100 989.5 TFLOP/s; half of 256 GPUs each, then 128 A100s alone."""
    for d, peak in ((16, (312 + 989.5) / 2), (8, 312)):
        found = row(*MIXED, t=4, p=4, d=d)
        assert found["mfu"] == pytest.approx(found["model_tflops_per_gpu"] / peak, rel=1e-12)


@pytest.mark.parametrize("small_first", [True, False])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_each_rank_is_held_to_the_memory_of_its_own_gpus(share: float, small_first: bool) -> None:
    """In the order tcdp ranks 0 and 1 lie on one part, 2 and 3 on the other; one has so much of what the heaviest needs."""
    at = point(*H100, t=8, p=4, d=8, zero=1)
    held = rows(at)[0]["rank_memory_bytes"]
    small = dataclasses.replace(at.cluster, name="small", memory_bytes=share * max(held))
    parts = [(small, 16), (at.cluster, 16)] if small_first else [(at.cluster, 16), (small, 16)]
    (found,) = rows(of(at, *parts, between=at.cluster.inter_node))
    spare = np.repeat([part.memory_bytes for part, _ in parts], 2) - held
    rank = int(np.argmin(spare))
    assert found["rank_memory_bytes"] == held
    assert found["heaviest_rank"] == rank == int(np.argmin(spare))
    assert found["memory_bytes"] == pytest.approx(held[rank], rel=1e-12)
    assert found["memory_limit_bytes"] == small.memory_bytes
    assert found["fits"] == (share > 1)
    if share < 1:
        assert f"rank {rank} needs {held[rank] / 1e9:.1f} GB" in found["reason"]
        index = 0 if small_first else 1
        assert f"memory_gb={small.memory_bytes / 1e9:g} of cluster.parts[{index}], small." in found["reason"]


def test_a_cluster_that_was_never_measured_says_so_and_widens_the_interval() -> None:
    mixed, known = row(*MIXED, t=4, p=4, d=16), intervals.packaged()
    assert "mixed clusters were not measured" in mixed["extrapolates"]
    assert math.log(mixed["step_time_hi_s"] / mixed["step_time_s"]) > intervals.half_width(known.step_time, ())


def built(**changes: Any) -> ClusterSpec:
    asked = config._container(config.OmegaConf.structured(config.ClusterConf(name="mine", source="of a test")))
    parts = [{"cluster": "dgx_a100", "nodes": 2}, {"cluster": "dgx_h100", "nodes": 3}]
    return config.build_cluster(
        asked | {"parts": parts, "between_gb_per_s": 25.0, "between_latency_us": 30.0} | changes
    )


def test_a_cluster_says_what_all_its_gpus_can() -> None:
    cluster = built()
    assert (cluster.gpus, cluster.gpus_per_node, cluster.chip) == (40, 8, "a100_80g+h100")
    assert set(cluster.peak_flops_per_s) == {"bf16", "fp16"}
    assert cluster.watts_per_gpu == (2 * 400 + 3 * 700) / 5  # the boards' limits
    assert cluster.between == LinkSpec(bandwidth_bytes_per_s=25e9, latency_s=pytest.approx(30e-6))
    assert [part.gpus for part in cluster.parts] == [16, 24]
    assert isinstance(cluster.parts[0], ClusterPart)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parts": [{"cluster": "dgx_a10", "nodes": 1}]}, "cluster.parts[0].cluster='dgx_a10' must be one of"),
        ({"parts": [{"cluster": "mixed_a100_h100", "nodes": 1}]}, "cluster.parts[0].cluster=mixed_a100_h100 has parts itself"),
        ({"parts": [{"cluster": "dgx_a100", "nodes": 0}]}, "cluster.parts[0].nodes=0 must lie between 1"),
        ({"between_gb_per_s": None}, "cluster.between_gb_per_s is missing"),
        ({"between_gb_per_s": 0.0}, "cluster.between_gb_per_s=0.0 must be a finite number above 0"),
        ({"between_latency_us": -1.0}, "cluster.between_latency_us=-1.0 must be a finite number of at least 0"),
        ({"memory_gb": 64.0}, "cluster.memory_gb=64.0: cluster.parts say this, each for itself. Nearest: cluster.memory_gb=80"),
        ({"gpus": 64}, "cluster.gpus=64: cluster.parts say this, each for itself. Nearest: cluster.gpus=40"),
        ({"network_decay": 0.1}, "cluster.network_decay=0.1: cluster.parts say this"),
        ({"parts": [], "gpus": 8}, "cluster.between_gb_per_s=25.0: only cluster.parts have a network between them"),
        (
            {"parts": [{"cluster": "dgx_a100", "nodes": 1}, {"cluster": "dgx2_v100", "nodes": 1}]},
            "cluster.parts[1] has nodes of 16 GPUs and begins after 8 GPUs, within such a node. Nearest: 0 or 16 GPUs",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_key_and_value(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        built(**changes)
    assert any(problem.startswith(said) for problem in caught.value.problems), caught.value.problems


def test_a_plain_config_holds_the_parts_whole_and_their_order() -> None:
    with compose.composer() as (make, _):

        def plain(*names: str) -> dict[str, Any]:
            parts = ",".join(f"{{cluster:{name},nodes:2}}" for name in names)
            return config.plain(make(["cluster=two_halls_h100", f"cluster.parts=[{parts}]"]))

        one, other = plain("dgx_a100", "dgx_h100"), plain("dgx_h100", "dgx_a100")
    assert one["cluster"]["parts"][0]["cluster"]["memory_gb"] == 80
    assert one["cluster"]["gpus"] == 32
    assert len({point_id(one), point_id(other), point_id(default())}) == 3


def test_a_part_may_be_a_cluster_of_ones_own() -> None:
    own = eights(gpus_per_node=4)
    at = of(point(*A100, t=4, p=2, d=4), (own, 4), (own, 4), between=own.inter_node)
    assert rows(at)[0]["gpus"] == 32


def test_a_sweep_over_parts_names_them_briefly() -> None:
    with compose.composer() as (make, loader):
        parts = [
            "[{cluster:dgx_a100,nodes:2},{cluster:dgx_h100,nodes:2}]",
            "[{cluster:dgx_h100,nodes:2},{cluster:dgx_a100,nodes:2}]",
        ]
        spaces = compose.expand(
            make, loader, ["cluster=mixed_a100_h100", "parallel.t=8", "parallel.p=4"], {"cluster.parts": parts}
        )
    said = {each["settings"] for each in study.evaluate(spaces)}
    assert said == {f"cluster.parts=['2x{one}','2x{other}']" for one, other in permutations(("dgx_a100", "dgx_h100"))}


def test_a_grids_conditions_know_what_the_parts_make() -> None:
    with compose.composer() as (make, _):
        base = config.plain(make(["cluster=mixed_a100_h100", "parallel.t=8", "parallel.p=4"]))
    axis = Axis(keys=("parallel.t",), values=((4,), (8,), (16,)))
    asked = Slice(Space(base=base, axes=(axis,), where=("t <= gpus_per_node and gpus == 256",)), 0, 3)
    assert grid.evaluate([asked], details=False)["t"].to_pylist() == [4, 8]


def test_a_placement_that_is_slow_for_no_need_is_warned_of() -> None:
    at = point(*MIXED, t=4, p=4, d=16)
    whole, torn, zero, far = rows(
        at, *(dataclasses.replace(at, layout=dataclasses.replace(at.layout, **changes)) for changes in (
            {"p": 1, "d": 64}, {"rank_order": "tcpd", "zero": 3}, {"rank_order": "dpct", "t": 8, "d": 8},
        ))
    )  # fmt: skip
    assert whole["warning"] is None
    assert "share pipeline rank 0: the slower decide" in torn["warning"]
    assert "parallel.zero=3: ranks that talk with every micro-batch lie on several of cluster.parts" in zero["warning"]
    assert "parallel.t: ranks that talk" in far["warning"]
