"""Values that mean nothing are refused as soon as a spec is made, with their key, all at once."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from legal_points import BLOOM, CLUSTER, point
from shapes import stack

from pipesim.checks import Invalid
from pipesim.specs import CostConstants, LinkSpec, Mla, Moe, ParallelLayout, StackSpec, Training


@pytest.mark.parametrize("key", ["t", "p", "d", "c", "e", "v", "micro_batch", "global_batch", "seq_length"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4"])
def test_sizes_are_whole_numbers_from_one_on(key: str, value: Any) -> None:
    with pytest.raises(Invalid, match=rf"(parallel|training)\.{key}="):
        point(**{key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("zero", 4), ("zero", -1), ("partition", "fair"), ("partition", (-1, 73)), ("precision", "fp4"),
     ("recompute", "some"), ("attention", "linear"), ("context", "star"),
     ("spread_vocab", True), ("rank_order", "tcd"), ("rank_order", "ttcd"),
     ("shard", 0), ("recompute_layers", -1), ("recompute_layers", (1, -1)), ("recompute_layers", 1.5)],
)  # fmt: skip
def test_words_and_numbers_that_mean_nothing_are_refused_with_their_key(key: str, value: Any) -> None:
    with pytest.raises(Invalid, match=rf"(parallel|training)\.{key}="):
        point(**{key: value})


def test_a_spec_names_all_of_its_broken_rules_at_once() -> None:
    with pytest.raises(Invalid) as layout:
        ParallelLayout(t=0, p=-1, zero=7)
    assert [problem.split("=")[0] for problem in layout.value.problems] == [
        "parallel.t", "parallel.p", "parallel.zero",
    ]  # fmt: skip
    with pytest.raises(Invalid) as training:
        Training(micro_batch=0, global_batch=0, precision="fp1")  # type: ignore[arg-type]
    assert len(training.value.problems) == 3


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"gpus": 0}, "cluster.gpus"), ({"gpus_per_node": 0}, "cluster.gpus_per_node"),
     ({"memory_bytes": 0.0}, "cluster.memory_gb"), ({"hbm_bytes_per_s": float("nan")}, "cluster.hbm_gb_per_s"),
     ({"peak_flops_per_s": {"bf16": float("inf")}}, "cluster.peak_tflops.bf16"),
     ({"multiprocessors": 0}, "cluster.multiprocessors"), ({"flash_efficiency": {"flash": 2.0}}, "cluster.flash_efficiency.flash"),
     ({"network_decay": -1.0}, "cluster.network_decay"), ({"network_flat_nodes": 0.0}, "cluster.network_flat_nodes"),
     ({"intra_node": LinkSpec(bandwidth_bytes_per_s=-1, latency_s=0)}, "cluster.intra_node_gb_per_s"),
     ({"inter_node": LinkSpec(bandwidth_bytes_per_s=1, latency_s=-1)}, "cluster.inter_node_latency_us")],
)  # fmt: skip
def test_a_machine_that_cannot_be_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(Invalid, match=re.escape(key)):
        dataclasses.replace(CLUSTER, **changes)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_efficiencies_lie_between_nothing_and_the_peak(value: float) -> None:
    with pytest.raises(Invalid, match=r"costs\.hbm_efficiency="):
        CostConstants(kind="full", hbm_efficiency=value)
    with pytest.raises(Invalid, match=r"stack\.gemm_efficiency\.default="):
        stack(gemm_efficiency={"default": value})


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"gemm_efficiency": {"h100": 0.7}}, "stack.gemm_efficiency needs a value for default"),
     ({"dp_overlap": 1.5}, "stack.dp_overlap"), ({"tp_overlap": -0.1}, "stack.tp_overlap"),
     ({"slack": float("nan")}, "stack.slack"), ({"gradient_bytes": 0}, "stack.gradient_bytes"),
     ({"reduce_bytes": 1.5}, "stack.reduce_bytes"), ({"forward_launch_s": -1e-6}, "stack.forward_launch_us"),
     ({"step_s": float("inf")}, "stack.step_ms"), ({"norm_bytes": -1.0}, "stack.norm_bytes"),
     ({"activation_scale": 0.0}, "stack.activation_scale"), ({"device_context_bytes": -1.0}, "stack.device_context_gb")],
)  # fmt: skip
def test_a_stack_that_cannot_be_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(Invalid, match=re.escape(key)):
        stack(**changes)


def test_a_stack_names_all_of_its_broken_rules_at_once() -> None:
    with pytest.raises(Invalid) as found:
        StackSpec(name="x", gemm_efficiency={}, dp_overlap=2.0, gradient_bytes=0, step_s=-1.0)
    assert len(found.value.problems) == 4


@pytest.mark.parametrize("changes", [{"kv_heads": 100}, {"layers": 0}, {"positions": "sinus"}, {"norm": "none"}])
def test_a_model_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=rf"model\.{next(iter(changes))}="):
        dataclasses.replace(BLOOM, **changes)


def test_a_mixture_chooses_among_experts_it_has() -> None:
    with pytest.raises(Invalid, match=r"model\.moe\.top_k=9 exceeds model\.moe\.experts=8"):
        Moe(experts=8, top_k=9, ffn=1)
    with pytest.raises(Invalid, match=r"model\.moe\.dense_layers=71 exceeds model\.layers=70"):
        dataclasses.replace(BLOOM, moe=Moe(experts=8, top_k=2, ffn=1, dense_layers=71))
    with pytest.raises(Invalid, match=r"model\.mla\.kv_rank=0"):
        Mla(query_rank=1, kv_rank=0, nope_head_dim=1, rope_head_dim=1, value_head_dim=1)
