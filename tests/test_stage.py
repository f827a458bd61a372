"""Which units a stage holds, and what its micro-batches cost: every unit exactly once, blocks summed."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import cluster, gpt, stack, stages

from pipesim.costs import compute, kernels
from pipesim.costs.collectives import all_reduce_s, ring_half_s
from pipesim.costs.cut import Cut
from pipesim.costs.stage import (
    balanced_partition,
    key_value_bytes,
    layer_collectives,
    layer_communication_s,
    recomputed_share,
    stage_seconds,
)
from pipesim.costs.topology import group
from pipesim.specs import CostConstants, Mla, ModelSpec, Moe, StackSpec

LAW = settings(deadline=None, max_examples=25)

CLUSTER = cluster()
COSTS = CostConstants(kind="full", gemm_inner_half_dim=330, unfused_efficiency=0.64, unfused_score_bytes=11)
STACK = stack(
    gemm_efficiency={"default": 0.78}, norm_bytes=17, mlp_bytes=6, logits_bytes=17, forward_launch_s=500e-6,
    backward_launch_s=700e-6,
)  # fmt: skip


def cut(**changes: Any) -> Cut:
    """One point as columns, shape (1, 1)."""
    numbers = {"t": 1, "d": 1, "c": 1, "e": 1, "micro_batch": 2, "seq_length": 2048} | changes
    columns = {
        key: np.array([[float(v)]]) if type(v) in (int, float) and key != "zero" else v for key, v in numbers.items()
    }
    return shapes.cut(**columns)


MIXTURE = gpt(gated=True, moe=Moe(experts=16, top_k=2, ffn=4096, shared_experts=1, dense_layers=3))


def seconds(model: ModelSpec, partition: tuple[int, ...], on: StackSpec = STACK, **changes: Any) -> Any:
    """Items of F, I and W, shape (points, stages) each."""
    chosen = cut(**changes)
    shape = (len(chosen.t), len(partition))  # type: ignore[arg-type]
    parts = stage_seconds(model, CLUSTER, COSTS, on, chosen, stages(model, partition))
    return [{item: np.broadcast_to(values, shape) for item, values in op.items()} for op in parts]


def one_layer(model: ModelSpec, on: StackSpec = STACK, **changes: Any) -> Any:
    """The items of a stage that holds the second layer and nothing else."""
    parts = seconds(model, (2, 1, model.units - 3), on, **changes)
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
    held = stages(gpt(layers=80), partition)
    assert held.dense.tolist() == [[10] * 8]
    assert held.embedding.tolist() == [[1] + [0] * 7]
    assert held.head.tolist() == [[0] * 7 + [1]]


def test_the_72_units_of_bloom_are_six_on_each_of_twelve_stages() -> None:
    assert balanced_partition(72, 12) == (6,) * 12
    assert stages(gpt(layers=70), (6,) * 12).dense.tolist() == [[5, *[6] * 10, 5]]


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
    held = stages(model, partition)
    assert sum(held[:4]).tolist() == [list(partition)]
    dense = model.layers if model.moe is None else model.moe.dense_layers
    assert [each.sum() for each in held[:4]] == [1, dense, model.layers - dense, 1]
    in_order = zip(*(each[0] for each in held[:4]), strict=True)
    order = [kind for stage in in_order for kind in range(4) for _ in range(int(stage[kind]))]
    assert order == sorted(order)


@pytest.mark.parametrize("model", [gpt(), MIXTURE], ids=["dense", "mixture"])
@LAW
@given(data=st.data())
def test_a_spread_vocabulary_is_one_embedding_and_one_head_in_equal_shares(
    model: ModelSpec, data: st.DataObject
) -> None:
    partition = data.draw(partitions(model.units))
    whole, spread = stages(model, partition), stages(model, partition, spread_vocab=True)
    equal = [[1 / len(partition)] * len(partition)]
    assert spread.embedding.tolist() == spread.head.tolist() == equal
    assert (spread.dense.tolist(), spread.moe.tolist()) == (whole.dense.tolist(), whole.moe.tolist())


@pytest.mark.parametrize("recompute", ["none", "selective", "operators", "full"])
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
    slow_host = dataclasses.replace(STACK, forward_launch_s=1.0, backward_launch_s=1.5)
    for op, host_s in zip(one_layer(gpt(), slow_host, t=4), (1.0, 0.75, 0.75), strict=True):
        assert sum(op.values()) == pytest.approx(host_s, rel=1e-6)
        assert op["launch"] > 0.9 * host_s
    quick = dataclasses.replace(STACK, forward_launch_s=1e-9, backward_launch_s=1e-9)
    assert [op["launch"] for op in one_layer(gpt(), quick, t=4)] == pytest.approx([0, 0, 0], abs=1e-15)


def test_a_gpu_and_a_host_that_need_equally_long_take_the_fourth_root_of_two_together() -> None:
    forward = one_layer(gpt(), dataclasses.replace(STACK, forward_launch_s=0))[0]
    gpu_s = sum(forward.values())
    together = one_layer(gpt(), dataclasses.replace(STACK, forward_launch_s=gpu_s))[0]
    assert sum(together.values()) == pytest.approx(2**0.25 * gpu_s, rel=1e-12)


def test_a_host_that_waits_for_each_kernel_adds_its_seconds() -> None:
    waiting = dataclasses.replace(STACK, synchronous=True)
    assert [op["launch"] for op in one_layer(gpt(), waiting)] == pytest.approx([500e-6, 350e-6, 350e-6], rel=1e-12)


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


def test_per_operator_checkpointing_runs_half_of_the_products_again() -> None:
    plain, again = (one_layer(gpt(), recompute=each, t=4) for each in ("none", "operators"))
    half = plain[0]["matmul"] / 2 + plain[0]["elementwise"]
    assert again[1] == plain[1] | {"recompute": pytest.approx(half, rel=1e-12)}


@LAW
@given(
    layers=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    recompute=st.sampled_from(["selective", "operators", "full"]),
)
def test_recomputing_some_layers_lies_between_none_and_all_in_their_proportion(
    layers: list[int], recompute: str
) -> None:
    partition = (7, 6, 6, 7)  # six layers on each stage
    none, full = (seconds(gpt(), partition, recompute=each, t=4) for each in ("none", recompute))
    some = seconds(gpt(), partition, recompute=recompute, recomputed=np.array([layers], np.float64), t=4)
    share = np.minimum(layers, 6) / 6
    for op in range(3):
        low, middle, high = (sum(each[op].values())[0] for each in (none, some, full))
        assert middle == pytest.approx(low + share * (high - low), rel=1e-12)


def test_a_layer_that_is_not_there_is_not_recomputed() -> None:
    asked = cut(recompute="full", recomputed=3)
    assert recomputed_share(asked, stages(gpt(), (2, 4, 20))).tolist() == [[1, 3 / 4, 3 / 19]]
    assert recomputed_share(cut(recompute="none", recomputed=3), stages(gpt(), (2, 4, 20))).tolist() == [[0, 0, 0]]


def test_a_layer_all_reduces_twice_forward_and_twice_backward() -> None:
    # Shoeybi et al. 2019, section 3: one after attention, one after the MLP; 2 bytes an element
    forward, input_grad, weight_grad = one_layer(gpt(), t=4)
    once = all_reduce_s(4096 * 4096 * 2, group(CLUSTER, COSTS, [(4, 1)]))
    assert forward["tp"] == pytest.approx(2 * once, rel=1e-12)
    assert input_grad["tp"] == forward["tp"]
    assert "tp" not in weight_grad
    half_hidden = one_layer(gpt(), dataclasses.replace(STACK, tp_overlap=0.5), t=4)[0]
    assert half_hidden["tp"] == forward["tp"] / 2


def test_sequence_parallelism_sends_as_much_as_tensor_parallelism_alone() -> None:
    # Korthikanti et al. 2022, section 4.2.2: a reduce-scatter and an all-gather are an all-reduce, by rings
    once = 2 * ring_half_s(4096 * 4096 * 2, 4, group(CLUSTER, COSTS, [(4, 1)]).flat)
    assert one_layer(gpt(), t=4, sequence_parallel=True)[0]["tp"] == pytest.approx(2 * once, rel=1e-12)
    assert one_layer(gpt(), t=4, sequence_parallel=True)[0]["tp"] == pytest.approx(
        one_layer(gpt(), t=4)[0]["tp"], rel=0.01
    )


def test_gathers_in_fp8_carry_one_byte_an_element_and_reductions_two() -> None:
    narrow = dataclasses.replace(STACK, fp8_gathers=True)
    asked = cut(t=4, sequence_parallel=True, precision="fp8")
    sent = [
        {each.kind: each.message_bytes / 4096**2 for each in way}
        for on in (STACK, narrow)
        for way in layer_collectives(gpt(), CLUSTER, COSTS, on, asked, moe=False)
    ]
    assert [(way["all-gather"], way["reduce-scatter"]) for way in sent] == [(2, 2), (2, 2), (1, 2), (1, 2)]
    wide = layer_collectives(gpt(), CLUSTER, COSTS, narrow, dataclasses.replace(asked, precision="bf16"), moe=False)
    assert wide == layer_collectives(gpt(), CLUSTER, COSTS, STACK, asked, moe=False)


def test_per_operator_checkpointing_gathers_again_but_reduces_once() -> None:
    plain, again = (one_layer(gpt(), recompute=each, t=4, sequence_parallel=True) for each in ("none", "operators"))
    # a gather is half of what a layer sends: two forward, two backward, two for the forward that runs again
    assert again[1]["tp"] == pytest.approx(1.5 * plain[1]["tp"], rel=1e-12)
    assert again[0]["tp"] == plain[0]["tp"]


def talk(model: ModelSpec, **changes: Any) -> Any:
    """Seconds of one layer's communication, forward and backward."""
    chosen = cut(**changes)
    block = compute.layer_seconds(model, chosen, kernels.machine(CLUSTER, COSTS, STACK, chosen), moe=bool(model.moe))
    hiding = block.forward.attention_s, block.input_grad.attention_s
    ways = layer_collectives(model, CLUSTER, COSTS, STACK, chosen, moe=bool(model.moe))
    talks = [
        layer_communication_s(way, STACK, chosen, attention_s, backward=backward)
        for way, attention_s, backward in zip(ways, hiding, (False, True), strict=True)
    ]
    return [{item: float(np.squeeze(each)) for item, each in way.items()} for way in talks]


@pytest.mark.parametrize("context", ["ring", "all_gather", "ulysses"])
@pytest.mark.parametrize("model", [gpt(), MIXTURE], ids=["dense", "mixture"])
def test_one_rank_of_a_kind_has_nobody_to_talk_to(model: ModelSpec, context: str) -> None:
    forward, backward = talk(model, context=context)
    assert {*forward.values(), *backward.values()} == {0}


def test_keys_and_values_go_once_around_the_context_ring_and_twice_backward() -> None:
    # 3 hops of this rank's keys and values: 4 x 2 tokens, 2 x 4096 elements of 2 bytes; backward their gradients follow
    chosen = cut(c=4, seq_length=16)
    each = 8 * 2 * 4096 * 2
    assert float(np.squeeze(key_value_bytes(gpt(), chosen))) == each
    ways = layer_collectives(gpt(), CLUSTER, COSTS, STACK, chosen, moe=False)
    forward, backward = (
        float(np.squeeze(layer_communication_s(way, STACK, chosen, 0.0, backward=is_backward)["cp"]))
        for way, is_backward in zip(ways, (False, True), strict=True)
    )
    assert forward == pytest.approx(3 * (3e-6 + each / 300e9), rel=1e-12)
    assert backward == pytest.approx(2 * forward, rel=1e-12)


def test_a_long_attention_hides_the_context_ring() -> None:
    forward, backward = talk(gpt(), c=4, seq_length=2**17)
    assert (forward["cp"], backward["cp"]) == (0, 0)


def test_experts_gather_every_copy_of_a_token_where_the_sequence_is_divided() -> None:
    model, quiet = MIXTURE, stack(gemm_efficiency={"default": 1.0}, tp_overlap=0.0)
    costs, chosen = CostConstants(kind="full"), cut(t=4, sequence_parallel=True)
    ways = (layer_collectives(model, CLUSTER, costs, quiet, chosen, moe=moe)[0] for moe in (False, True))
    tp = [layer_communication_s(way, quiet, chosen, 0.0)["tp"] for way in ways]
    # attention once and the MLP once; with experts two copies and the shared expert's
    latency_s = 3 * CLUSTER.intra_node.latency_s
    dense, mixed = (float(np.squeeze(each)) for each in tp)
    assert mixed - 4 * latency_s == pytest.approx((1 + 3) / 2 * (dense - 4 * latency_s), rel=1e-9)


def test_ulysses_exchanges_queries_keys_values_and_outputs() -> None:
    # Jacobs et al. 2023: four all-to-alls; each rank keeps its share and sends (c - 1) / c, whatever attention takes
    forward, backward = talk(gpt(kv_heads=8), c=4, t=2, context="ulysses")
    elements = 1024 * (2 * 32 + 2 * 8) * 128 / 2
    assert forward["cp"] == pytest.approx(4 * 3 * 3e-6 + 3 / 4 * elements * 2 / 300e9, rel=1e-12)
    assert backward["cp"] == forward["cp"]


def test_grouped_queries_pass_less_around_the_context_ring_and_latents_are_multiplied_out() -> None:
    every, grouped = (key_value_bytes(gpt(kv_heads=heads), cut(c=4)) for heads in (32, 8))
    assert grouped * 4 == every
    shared = (key_value_bytes(gpt(kv_heads=2), cut(c=4, t=t)) for t in (2, 8))
    assert len({float(np.squeeze(each)) for each in shared}) == 1  # one head of keys at least on each tensor rank
    latent = gpt(mla=Mla(query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128))
    assert key_value_bytes(latent, cut(c=4)) == 1024 * 32 * (192 + 128) * 2


def test_tokens_go_to_their_experts_and_back() -> None:
    # two all-to-alls of top_k copies of every token; of 8 expert ranks at stride t = 4 a node of 8 holds two: one copy in
    # eight goes to the other over NVLink, six go over an eighth of the node's network, as all its ranks send at once
    forward, input_grad, _ = (
        {item: values[0] for item, values in op.items()} for op in seconds(MIXTURE, (5, 1, 20), t=4, e=8)
    )
    message = 4096 * 4096 * 2 * 2
    once = 1 * 3e-6 + 6 * 14e-6 + 6 / 8 * message / (48e9 / 8)
    assert forward["ep"][1] == pytest.approx(2 * once, rel=1e-12)
    assert input_grad["ep"][1] == forward["ep"][1]
    assert forward["ep"].tolist() == pytest.approx([once * 2 * layers for layers in (1, 1, 19)], rel=1e-12)


def test_the_head_weighs_on_the_last_stage_and_launches_nothing() -> None:
    parts = seconds(gpt(), (25, 1))
    block = compute.head_seconds(gpt(), cut(), kernels.machine(CLUSTER, COSTS, STACK, cut()))
    for op, expected in zip(parts, block, strict=True):
        assert sum(op.values())[0, 1] == pytest.approx(float(np.squeeze(expected.total_s())), rel=1e-12)


@pytest.mark.slow
@LAW
@given(
    cuts=st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(1, 8)), min_size=2, max_size=6
    ),
    recompute=st.sampled_from(["none", "selective", "operators", "full"]),
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
