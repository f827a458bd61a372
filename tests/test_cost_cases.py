"""Right values that others got wrong, counted by hand: experts, spread vocabularies, hops, the links they take."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import MIXTRAL, SMALL, composed, point, row, rows, with_cluster

from pipesim import legality
from pipesim.costs.memory import layer_activation_bytes, recomputed_layer_bytes
from pipesim.costs.parameters import head_parameters, total_parameters
from pipesim.estimate import points_of, priced
from pipesim.specs import LinkSpec, Point

LAW = settings(deadline=None, max_examples=12)


@pytest.mark.parametrize(("t", "e", "d"), [(1, 1, 8), (2, 4, 8), (4, 8, 8), (2, 8, 16)])
def test_a_mixture_divides_experts_by_t_and_e_the_router_by_nothing_and_states_by_their_own_ranks(
    t: int, e: int, d: int
) -> None:
    # Attention and tables by t; router and norms by nothing; routed experts by t e, their optimizer by d / e.
    each = row(*MIXTRAL, t=t, e=e, d=d, p=1, zero=1, micro_batch=1, global_batch=16)
    h, layers = 4096, 32
    attention = h * (32 + 2 * 8) * 128 + 32 * 128 * h
    shared = layers * (attention / t + 8 * h + 2 * h) + 2 * 32000 * h / t + h
    experts = layers * 8 * 3 * h * 14336 / (t * e)
    assert each["params_per_gpu"] == pytest.approx(shared + experts, rel=1e-12)
    assert each["weights_bytes"] == pytest.approx(2 * (shared + experts), rel=1e-12)
    assert each["gradients_bytes"] == pytest.approx(4 * (shared + experts), rel=1e-12)
    assert each["optimizer_bytes"] == pytest.approx(12 * (shared / d + experts / (d / e)), rel=1e-12)


def test_experts_elsewhere_keep_no_activation_away() -> None:
    held = {row(*MIXTRAL, t=2, e=e, d=8, p=1, micro_batch=1, global_batch=16)["activation_bytes"] for e in (1, 2, 4, 8)}
    assert len(held) == 1


def test_a_mixture_of_671b_needs_recomputation_to_fit_sixteen_stages() -> None:
    # deepseek-ai/profile-data, issue 18: saved tensors of MLA and MoE are 133,120 and 156,672 bytes a token and layer, so
    # that 4 layers, 17 in flight and 4096 tokens keep 75 GiB in fp8; test_memory.py names the 85,000 that its list lacks
    asked = legality.resolve(point("model=deepseek_v3", "cluster=hgx_h200", "training=megatron", "parallel.t=1",
                                   "parallel.p=16", "parallel.e=16", seq_length=4096, recompute="full",
                                   precision="fp8", fp8_copies=True))  # fmt: skip
    whole, kept = (
        float(of(asked.model, points_of([asked]).cut, asked.stack, moe=True).squeeze())
        for of in (layer_activation_bytes, recomputed_layer_bytes)
    )
    assert 68 * whole / 2**30 == pytest.approx(75.2 * (289_792 + 84_992) / 289_792, rel=1e-3)
    assert 68 * kept == 68 * 2 * 7168 * 4096  # 4 GB: the input of each layer


def parameters(asked: Point) -> list[float]:
    """Of every stage."""
    columns = points_of([legality.resolve(asked)])
    held: list[float] = priced(columns).parameters[0, list(columns.shapes[0].kind_of)].tolist()
    return held


@pytest.mark.parametrize("spread", ["algorithm_1", "algorithm_2", "interlaced"])
@pytest.mark.parametrize("model", ["llama2_7b", "gpt3_175b", "bloom_176b"])
def test_a_spread_vocabulary_keeps_every_parameter_once(model: str, spread: str) -> None:
    asked = point(f"model={model}", "cluster=dgx_a100", "training=megatron", t=1, p=4, d=1, global_batch=8, micro_batch=1,
                  spread_vocab=spread)  # fmt: skip
    assert sum(parameters(asked)) == pytest.approx(total_parameters(asked.model), rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "p", "copies"), [("1f1b", 1, 0), ("1f1b", 4, 1), ("zbv", 4, 0), ("interleaved_1f1b", 1, 0)]
)
def test_a_tied_head_is_a_copy_only_where_another_rank_holds_the_table(schedule: str, p: int, copies: int) -> None:
    # a V brings the last stage back to the first rank
    asked = point("model=gpt3_175b", "cluster=dgx_a100", "training=megatron", schedule=schedule, t=1, p=p, d=1,
                  global_batch=8, micro_batch=1, v=None)  # fmt: skip
    copy = copies * head_parameters(asked.model)
    assert sum(parameters(asked)) == pytest.approx(total_parameters(asked.model) + copy, rel=1e-12)
    assert (row("model=gpt3_175b", "cluster=dgx_a100", "training=megatron", schedule=schedule, t=1, p=p, d=1, global_batch=8,
                micro_batch=1)["dp_exposed_s"] > 0) == bool(copies)  # fmt: skip


def test_a_spread_vocabulary_balances_the_ends() -> None:
    shape: dict[str, Any] = {"t": 1, "p": 2, "d": 1, "global_batch": 8, "micro_batch": 1}
    ends, spread = (row(*SMALL, **shape, spread_vocab=each) for each in ("none", "algorithm_2"))
    assert ends["imbalance"] > 1
    assert spread["imbalance"] == pytest.approx(1, abs=1e-12)
    assert spread["step_time_s"] < ends["step_time_s"]


def two_equal_stages(m: int, **changes: Any) -> dict[str, Any]:
    """A spread vocabulary makes both stages equal; ranks of eight GPUs lie on two nodes."""
    asked = point(*SMALL, "parallel.spread_vocab=algorithm_2", t=8, p=2, d=1, micro_batch=1, global_batch=m,
                  sequence_parallel=False, hop_start_s=100e-6, **changes)  # fmt: skip
    asked = with_cluster(asked, inter_node=LinkSpec(bandwidth_bytes_per_s=160e9, latency_s=20e-6), network_decay=0.0)
    only = dataclasses.replace(asked, costs=dataclasses.replace(asked.costs, inter_node_efficiency=0.8))
    (found,) = rows(only)
    return found


HOP_S = 100e-6 + 20e-6 + 4096 * 4096 * 2 / (160e9 * 0.8 / 8)
"""Start, latency, and 33.6 MB over an eighth of a node's network: 2.2 ms."""


@LAW
@given(m=st.integers(1, 12))
def test_a_rank_that_stands_still_while_it_sends_pays_a_hop_for_each_micro_batch_and_one_more(m: int) -> None:
    # Two equal stages in 1F1B: both ranks are busy for F + B + hop a micro-batch, so that (m + 1) of them make the step
    found = two_equal_stages(m, blocking_hops=True)
    assert found["pp_exposed_s"] == pytest.approx((m + 1) * HOP_S, rel=1e-9)
    assert found["hop_s"] == 0


@pytest.mark.parametrize("m", [1, 2])
def test_results_that_travel_while_their_sender_goes_on_cost_a_hop_each_way(m: int) -> None:
    found = two_equal_stages(m, blocking_hops=False)
    assert found["hop_s"] == pytest.approx(HOP_S, rel=1e-12)
    assert found["pp_exposed_s"] == pytest.approx(2 * HOP_S, rel=1e-9)


@LAW
@given(m=st.integers(1, 12))
def test_sending_on_the_side_is_never_slower_than_standing_still(m: int) -> None:
    standing, going = (two_equal_stages(m, blocking_hops=each) for each in (True, False))
    assert going["step_time_s"] <= standing["step_time_s"] * (1 + 1e-12)
    assert standing["bubble_s"] == pytest.approx(going["bubble_s"], rel=1e-9)


def test_sequence_parallel_ranks_send_their_share_of_a_result() -> None:
    whole, share = (row(*SMALL, t=8, p=2, d=1, sequence_parallel=each)["pp_bytes_per_gpu"] for each in (False, True))
    assert share == whole / 8


def test_ranks_inside_a_node_send_over_its_links() -> None:
    asked = composed(*SMALL)
    found = row(*SMALL, t=2, p=4, d=1, micro_batch=1, global_batch=8, sequence_parallel=False, blocking_hops=False)
    link, reached = asked.cluster.intra_node, asked.costs.intra_node_efficiency
    expected = asked.stack.hop_start_s + link.latency_s + 4096 * 4096 * 2 / (link.bandwidth_bytes_per_s * reached)
    assert found["hop_s"] == pytest.approx(expected, rel=1e-12)


def test_every_step_pays_its_fixed_cost_once() -> None:
    few, many = (row(*SMALL, t=1, p=1, d=1, micro_batch=1, global_batch=m, step_s=0.25) for m in (1, 8))
    assert few["fixed_s"] == many["fixed_s"] == 0.25


@pytest.mark.parametrize(("zero", "shard", "share"), [(1, 4, 4), (1, None, 16), (3, 8, 8)])
def test_shards_divide_what_zero_divides_and_replicas_of_them_reduce_over_the_rest(
    zero: int, shard: int | None, share: int
) -> None:
    # HSDP: gradients reduced and weights gathered among the shards, shares of gradients all-reduced among 16 / shards
    each = row(*SMALL, t=1, p=1, d=16, zero=zero, shard=shard, micro_batch=1, global_batch=16)
    params = 6_738_415_616
    assert each["optimizer_bytes"] == pytest.approx(12 * params / share, rel=1e-12)
    assert each["weights_bytes"] == pytest.approx(2 * params / (share if zero == 3 else 1), rel=1e-12)
    halves = 4 + (2 + 2 if zero == 3 else 2)
    outer = 16 / share
    sent = (share - 1) / share * params * halves + 2 * (outer - 1) / outer * params * 4 / share
    assert each["dp_bytes_per_gpu"] == pytest.approx(sent, rel=1e-12)
