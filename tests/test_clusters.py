"""Every cluster of ``conf/`` composes, names its source and is described in dense peaks and one direction."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipesim.config import ClusterConf

FOLDER = Path(__file__).parents[1] / "conf" / "cluster"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if "parts" not in OmegaConf.load(path))
"""Of clusters of equal nodes; those of several parts stand in ``test_mixed_clusters.py``."""

# Dense fp16 TFLOP/s, one direction of NVLink in GB/s and multiprocessors, from the vendor's architecture papers.
GENERATIONS = {
    "v100": (125, 150, 80), "a100": (312, 300, 108), "h100": (989.4, 450, 132), "h200": (989.4, 450, 132),
    "b200": (2250, 900, 148),
}  # fmt: skip


def load(name: str) -> ClusterConf:
    merged = OmegaConf.merge(OmegaConf.structured(ClusterConf), OmegaConf.load(FOLDER / f"{name}.yaml"))
    OmegaConf.to_container(merged, throw_on_missing=True)
    cluster = OmegaConf.to_object(merged)
    assert isinstance(cluster, ClusterConf)
    return cluster


def generation(cluster: ClusterConf) -> str:
    return cluster.chip.split("_")[0]


def test_the_named_clusters_are_there() -> None:
    assert set(NAMES) >= {"jean_zay_a100", "dgx_a100", "dgx_h100", "hgx_h200", "dgx_b200"}


@pytest.mark.parametrize("name", NAMES)
def test_every_cluster_names_itself_and_its_source_and_has_whole_nodes(name: str) -> None:
    cluster = load(name)
    assert cluster.name == name
    assert cluster.source
    assert cluster.gpus % cluster.gpus_per_node == 0


@pytest.mark.parametrize("name", NAMES)
def test_peaks_are_dense(name: str) -> None:
    cluster = load(name)
    peaks, (dense, _, multiprocessors) = cluster.peak_tflops, GENERATIONS[generation(cluster)]
    assert peaks["fp16"] == pytest.approx(dense, rel=1e-3)
    assert peaks.get("bf16", peaks["fp16"]) == peaks["fp16"]
    assert peaks.get("fp8", 2 * peaks["fp16"]) == 2 * peaks["fp16"]
    assert cluster.multiprocessors == multiprocessors


@pytest.mark.parametrize("name", NAMES)
def test_bf16_exists_from_ampere_and_fp8_from_hopper_on(name: str) -> None:
    cluster = load(name)
    assert ("bf16" in cluster.peak_tflops) == (generation(cluster) != "v100")
    assert ("fp8" in cluster.peak_tflops) == (generation(cluster) not in ("v100", "a100"))


@pytest.mark.parametrize("name", NAMES)
def test_newer_attention_kernels_are_faster_and_the_newest_need_hopper(name: str) -> None:
    cluster = load(name)
    reached = [
        cluster.flash_efficiency[kernel]
        for kernel in ("flash1", "flash", "flash3")
        if kernel in cluster.flash_efficiency
    ]
    assert reached == sorted(set(reached))
    assert ("flash3" in cluster.flash_efficiency) == (generation(cluster) not in ("v100", "a100"))


@pytest.mark.parametrize("name", NAMES)
def test_links_are_given_in_one_direction_and_slow_down_with_distance(name: str) -> None:
    cluster = load(name)
    _, nvlink, _ = GENERATIONS[generation(cluster)]
    assert cluster.intra_node_gb_per_s == nvlink
    network_per_gpu = cluster.inter_node_gb_per_s / cluster.gpus_per_node
    assert cluster.hbm_gb_per_s > cluster.intra_node_gb_per_s > network_per_gpu > 0
    assert 0 < cluster.intra_node_latency_us < cluster.inter_node_latency_us


def test_jean_zay_is_the_machine_bloom_was_trained_on() -> None:
    cluster = load("jean_zay_a100")
    assert (cluster.gpus, cluster.gpus_per_node) == (384, 8)
    assert cluster.inter_node_gb_per_s == 4 * 100 / 8  # four Omni-Path links of 100 Gb/s
