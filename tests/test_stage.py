"""Which units a stage holds, and what its micro-batches cost: every unit exactly once, blocks summed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesim.costs import compute
from pipesim.costs.collectives import group_link, ring_all_reduce_s
from pipesim.costs.cut import Cut
from pipesim.costs.stage import (
    balanced_partition,
    key_value_bytes,
    layer_communication_s,
    stage_contents,
    stage_seconds,
)
from pipesim.specs import ClusterSpec, CostConstants, LinkSpec, Mla, ModelSpec, Moe

LAW = settings(deadline=None, max_examples=25)

CLUSTER = ClusterSpec(
    name="eights",
    gpus=64,
    gpus_per_node=8,
    peak_flops_per_s={"bf16": 312e12},
    memory_bytes=80e9,
    hbm_bytes_per_s=2e12,
    intra_node=LinkSpec(bandwidth_bytes_per_s=300e9, latency_s=3e-6),
    inter_node=LinkSpec(bandwidth_bytes_per_s=48e9, latency_s=14e-6),
)
COSTS = CostConstants(
    kind="full", gemm_efficiency=0.78, gemm_half_dim=100, attention_efficiency=0.64, norm_bytes=17, mlp_bytes=6,
    score_bytes=11, logits_bytes=17, layer_launch_s=500e-6,
)  # fmt: skip


def gpt(**changes: Any) -> ModelSpec:
    values: dict[str, Any] = {
        "name": "gpt", "layers": 24, "hidden": 4096, "heads": 32, "kv_heads": 32, "head_dim": 128, "ffn": 4 * 4096,
        "vocab": 51200, "context": 2048, "gated": False, "bias": True, "tied_embeddings": True, "embedding_norm": False,
        "final_norm": True, "positions": "learned", "norm": "layernorm",
    }  # fmt: skip
    return ModelSpec(**values | changes)


def cut(**changes: Any) -> Cut:
    values: dict[str, Any] = {
        "t": np.array([[1.0]]), "d": np.array([[1.0]]), "c": np.array([[1.0]]), "e": np.array([[1.0]]),
        "micro_batch": np.array([[2.0]]), "seq_length": np.array([[2048.0]]), "zero": 0, "sequence_parallel": False,
        "recompute": "none", "attention": "unfused", "precision": "bf16", "dropout": False,
        "gradient_bytes": 4, "reduce_bytes": 4,
    }  # fmt: skip
    return Cut(**values | {key: np.array([[float(v)]]) if isinstance(v, int) else v for key, v in changes.items()})


MIXTURE = gpt(gated=True, moe=Moe(experts=16, top_k=2, ffn=4096, shared_experts=1, dense_layers=3))


def seconds(model: ModelSpec, partition: tuple[int, ...], costs: CostConstants = COSTS, **changes: Any) -> Any:
    """Items of F, I and W, shape (points, stages) each."""
    chosen = cut(**changes)
    shape = (len(chosen.t), len(partition))  # type: ignore[arg-type]
    parts = stage_seconds(model, CLUSTER, costs, chosen, stage_contents(model, partition))
    return [{item: np.broadcast_to(values, shape) for item, values in op.items()} for op in parts]


def one_layer(model: ModelSpec, costs: CostConstants = COSTS, **changes: Any) -> Any:
    """The items of a stage that holds the second layer and nothing else."""
    parts = seconds(model, (2, 1, model.units - 3), costs, **changes)
    return [{item: float(values[0, 1]) for item, values in op.items()} for op in parts]


@LAW
@given(stages=st.integers(1, 128), more=st.integers(0, 300))
def test_a_balanced_partition_places_every_unit_once_and_differs_by_at_most_one(stages: int, more: int) -> None:
    units = stages + more
    partition = balanced_partition(units, stages)
    assert len(partition) == stages
    assert sum(partition) == units
    assert max(partition) - min(partition) <= 1
    assert max(partition) == -(-units // stages)


@LAW
@given(stages=st.integers(1, 64), more=st.integers(0, 100))
def test_what_is_left_over_goes_to_the_ends_first(stages: int, more: int) -> None:
    partition = balanced_partition(stages + more, stages)
    larger = [min(i, stages - 1 - i) for i, units in enumerate(partition) if units == max(partition)]
    smaller = [min(i, stages - 1 - i) for i, units in enumerate(partition) if units < max(partition)]
    assert not smaller or max(larger) <= min(smaller)


def test_eighty_layers_on_eight_stages_are_ten_layers_each_beside_embedding_and_head() -> None:
    partition = balanced_partition(82, 8)
    assert partition == (11, 10, 10, 10, 10, 10, 10, 11)
    contents = stage_contents(gpt(layers=80), partition)
    assert contents.dense.tolist() == [10] * 8
    assert contents.embedding.tolist() == [1] + [0] * 7
    assert contents.head.tolist() == [0] * 7 + [1]


def test_the_72_units_of_bloom_are_six_on_each_of_twelve_stages() -> None:
    assert balanced_partition(72, 12) == (6,) * 12
    assert stage_contents(gpt(layers=70), (6,) * 12).dense.tolist() == [5, *[6] * 10, 5]


@pytest.mark.parametrize(("units", "stages", "most"), [(30, 4, 8), (40, 16, 3), (10, 3, 4), (7, 2, 4), (62, 4, 16)])
def test_layers_that_floor_division_loses_are_placed(units: int, stages: int, most: int) -> None:
    partition = balanced_partition(units, stages)
    assert (sum(partition), max(partition)) == (units, most)


@st.composite
def partitions(draw: st.DrawFn, units: int) -> tuple[int, ...]:
    """Units on stages in any way, empty stages included."""
    ends = sorted(draw(st.lists(st.integers(0, units), max_size=7)))
    bounds = [0, *ends, units]
    return tuple(b - a for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize("model", [gpt(), MIXTURE], ids=["dense", "mixture"])
@LAW
@given(data=st.data())
def test_every_unit_lies_on_exactly_one_stage_in_order(model: ModelSpec, data: st.DataObject) -> None:
    partition = data.draw(partitions(model.units))
    contents = stage_contents(model, partition)
    assert sum(contents).tolist() == list(partition)
    dense = model.layers if model.moe is None else model.moe.dense_layers
    assert [each.sum() for each in contents] == [1, dense, model.layers - dense, 1]
    order = [kind for stage in zip(*contents, strict=True) for kind in range(4) for _ in range(int(stage[kind]))]
    assert order == sorted(order)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("model", [gpt(), MIXTURE], ids=["dense", "mixture"])
@LAW
@given(data=st.data())
def test_cutting_the_model_anywhere_leaves_its_work_the_same(
    model: ModelSpec, recompute: str, data: st.DataObject
) -> None:
    partition = data.draw(partitions(model.units))
    whole = seconds(model, (model.units,), recompute=recompute, t=4, e=2)
    stages = seconds(model, partition, recompute=recompute, t=4, e=2)
    for one, several in zip(whole, stages, strict=True):
        assert one.keys() == several.keys()
        for item, total in one.items():
            assert several[item].sum() == pytest.approx(total.sum(), rel=1e-12)


def test_equal_stages_take_equal_seconds() -> None:
    forward = sum(seconds(gpt(), (2, 6, 6, 6, 6))[0].values())
    assert len(set(forward[0, 1:-1])) == 1
    assert forward[0, 0] < forward[0, 1]  # an embedding and one layer
    assert forward[0, -1] > 0


def test_a_stage_with_nothing_on_it_takes_no_time() -> None:
    parts = seconds(gpt(), (0, 26))
    assert [sum(op.values())[0, 0] for op in parts] == [0, 0, 0]


def test_a_layer_takes_as_long_as_the_host_needs_to_launch_it() -> None:
    slow_host = CostConstants(kind="full", layer_launch_s=1.0)
    forward, input_grad, weight_grad = one_layer(gpt(), slow_host)
    for op in (forward, input_grad):
        assert op["matmul"] + op["attention"] + op["elementwise"] + op["launch"] == pytest.approx(1.0, rel=1e-12)
        assert op["launch"] > 0.9
    assert "launch" not in weight_grad
    assert one_layer(gpt(), CostConstants(kind="full", layer_launch_s=1e-9))[0]["launch"] == 0


def test_full_recomputation_runs_the_forward_again_with_its_communication() -> None:
    plain, again = (one_layer(gpt(), recompute=each, t=4) for each in ("none", "full"))
    assert again[0] == plain[0]
    assert again[2] == plain[2]
    computed = sum(plain[0][item] for item in ("matmul", "attention", "elementwise", "launch"))
    assert again[1]["recompute"] == pytest.approx(computed, rel=1e-12)
    assert again[1]["tp"] == 2 * plain[1]["tp"] > 0


def test_selective_recomputation_runs_attention_again() -> None:
    plain, again = (one_layer(gpt(), recompute=each, t=4) for each in ("none", "selective"))
    assert again[1] == plain[1] | {"recompute": plain[0]["attention"]}
    assert plain[0]["attention"] > 0


def test_a_layer_all_reduces_twice_forward_and_twice_backward() -> None:
    # Shoeybi et al. 2019, section 3: one after attention, one after the MLP; 2 bytes an element
    forward, input_grad, weight_grad = one_layer(gpt(), t=4)
    once = ring_all_reduce_s(4096 * 4096 * 2, 4, group_link(CLUSTER, COSTS, 4, 1))
    assert forward["tp"] == pytest.approx(2 * once, rel=1e-12)
    assert input_grad["tp"] == forward["tp"]
    assert "tp" not in weight_grad


def test_sequence_parallelism_sends_as_much_as_tensor_parallelism_alone() -> None:
    # Korthikanti et al. 2022, section 4.2.2: a reduce-scatter and an all-gather are an all-reduce
    assert one_layer(gpt(), t=4, sequence_parallel=True)[0]["tp"] == one_layer(gpt(), t=4)[0]["tp"]


@pytest.mark.parametrize("model", [gpt(), MIXTURE], ids=["dense", "mixture"])
def test_one_rank_of_a_kind_has_nobody_to_talk_to(model: ModelSpec) -> None:
    talk = layer_communication_s(model, CLUSTER, COSTS, cut(), moe=bool(model.moe))
    assert all(float(np.squeeze(each)) == 0 for each in talk.values())


def test_keys_and_values_go_once_around_the_context_ring() -> None:
    # 3 hops of this rank's keys and values: 1024 tokens, 2 x 4096 elements of 2 bytes
    talk = layer_communication_s(gpt(), CLUSTER, COSTS, cut(c=4), moe=False)
    each = 1024 * 2 * 4096 * 2
    assert float(np.squeeze(key_value_bytes(gpt(), cut(c=4)))) == each
    assert float(np.squeeze(talk["cp"])) == pytest.approx(3 * (3e-6 + each / 300e9), rel=1e-12)


def test_grouped_queries_and_latents_pass_less_around_the_context_ring() -> None:
    every, grouped = (key_value_bytes(gpt(kv_heads=heads), cut(c=4)) for heads in (32, 8))
    assert grouped * 4 == every
    latent = gpt(mla=Mla(query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128))
    assert key_value_bytes(latent, cut(c=4)) == 1024 * (512 + 64) * 2


def test_tokens_go_to_their_experts_and_back() -> None:
    # two all-to-alls of top_k copies of every token; 8 expert ranks at stride t = 4 share a node's network by four
    forward, input_grad, _ = (
        {item: values[0] for item, values in op.items()} for op in seconds(MIXTURE, (5, 1, 20), t=4, e=8)
    )
    message = 4096 * 4096 * 2 * 2
    once = 7 * 14e-6 + 7 / 8 * message / (48e9 / 4)
    assert forward["ep"][1] == pytest.approx(2 * once, rel=1e-12)
    assert input_grad["ep"][1] == forward["ep"][1]
    assert forward["ep"].tolist() == pytest.approx([once * 2 * layers for layers in (1, 1, 19)], rel=1e-12)


def test_the_head_weighs_on_the_last_stage_and_launches_nothing() -> None:
    parts = seconds(gpt(), (25, 1))
    block = compute.head_seconds(gpt(), cut(), compute.machine(CLUSTER, COSTS, cut()))
    for op, expected in zip(parts, block, strict=True):
        assert sum(op.values())[0, 1] == pytest.approx(float(np.squeeze(expected.total_s())), rel=1e-12)


@LAW
@given(
    cuts=st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(1, 8)), min_size=2, max_size=6
    ),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_stages_of_many_cuts_take_what_each_takes_to_the_last_bit(
    cuts: list[tuple[int, int, int]], recompute: str
) -> None:
    t, e, b = np.array(cuts, np.float64).T[:, :, None]
    together = seconds(MIXTURE, (7, 6, 6, 7), t=t, e=e, micro_batch=b, recompute=recompute)
    for i, (each_t, each_e, each_b) in enumerate(cuts):
        alone = seconds(MIXTURE, (7, 6, 6, 7), t=each_t, e=each_e, micro_batch=each_b, recompute=recompute)
        for many, one in zip(together, alone, strict=True):
            assert {k: v[i].tolist() for k, v in many.items()} == {k: v[0].tolist() for k, v in one.items()}
