"""Every cluster of ``conf/`` composes, names its source and is described in dense peaks and one direction."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from pipesim.config import ClusterConf

FOLDER = Path(__file__).parents[1] / "conf" / "cluster"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

# Dense bf16 TFLOP/s and one direction of NVLink in GB/s, from the vendor's architecture papers.
GENERATIONS = {"a100": (312, 300), "h100": (989.4, 450), "h200": (989.4, 450), "b200": (2250, 900)}


def load(name: str) -> ClusterConf:
    merged = OmegaConf.merge(OmegaConf.structured(ClusterConf), OmegaConf.load(FOLDER / f"{name}.yaml"))
    OmegaConf.to_container(merged, throw_on_missing=True)
    cluster = OmegaConf.to_object(merged)
    assert isinstance(cluster, ClusterConf)
    return cluster


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
    peaks = load(name).peak_tflops
    dense, _ = GENERATIONS[name.rsplit("_", 1)[1]]
    assert peaks["bf16"] == pytest.approx(dense, rel=1e-3)
    assert peaks["fp16"] == peaks["bf16"]
    assert peaks.get("fp8", 2 * peaks["bf16"]) == 2 * peaks["bf16"]


@pytest.mark.parametrize("name", NAMES)
def test_fp8_exists_from_hopper_on(name: str) -> None:
    assert ("fp8" in load(name).peak_tflops) == (not name.endswith("a100"))


@pytest.mark.parametrize("name", NAMES)
def test_links_are_given_in_one_direction_and_slow_down_with_distance(name: str) -> None:
    cluster = load(name)
    _, nvlink = GENERATIONS[name.rsplit("_", 1)[1]]
    assert cluster.intra_node_gb_per_s == nvlink
    network_per_gpu = cluster.inter_node_gb_per_s / cluster.gpus_per_node
    assert cluster.hbm_gb_per_s > cluster.intra_node_gb_per_s > network_per_gpu > 0
    assert 0 < cluster.intra_node_latency_us < cluster.inter_node_latency_us


def test_jean_zay_is_the_machine_bloom_was_trained_on() -> None:
    cluster = load("jean_zay_a100")
    assert (cluster.gpus, cluster.gpus_per_node) == (384, 8)
    assert cluster.inter_node_gb_per_s == 4 * 100 / 8  # four Omni-Path links of 100 Gb/s
