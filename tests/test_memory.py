"""Bytes that a rank holds: model states by ZeRO stage, activations as published."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import stack

from pipesim.costs import memory
from pipesim.costs.cut import Cut
from pipesim.costs.memory import attention_score_bytes, logits_bytes, state_bytes
from pipesim.specs import Mla, ModelSpec, Moe, StackSpec

LAW = settings(deadline=None, max_examples=25)
TENSOR = st.sampled_from([1, 2, 4, 8])
BATCH = st.integers(1, 8)
LENGTH = st.sampled_from([96, 2048, 8192])
RECOMPUTE = ("selective", "operators", "full")

gpt = functools.partial(shapes.gpt, layers=96, hidden=12288, heads=96, kv_heads=96, ffn=4 * 12288)
"""GPT-3's shape."""
cut = functools.partial(shapes.cut, micro_batch=1, dropout=True)


def layer_activation_bytes(model: ModelSpec, cut: Cut, stack: StackSpec = stack(), *, moe: bool) -> Any:  # noqa: B008
    return memory.layer_activation_bytes(model, cut, stack, moe=moe)


def recomputed_layer_bytes(model: ModelSpec, cut: Cut, stack: StackSpec = stack(), *, moe: bool) -> Any:  # noqa: B008
    return memory.recomputed_layer_bytes(model, cut, stack, moe=moe)


MIXTURE = gpt(moe=Moe(experts=16, top_k=2, ffn=4096, shared_experts=1))
LATENT = gpt(mla=Mla(query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128))


@LAW
@given(b=BATCH, s=LENGTH)
def test_a_layer_keeps_what_korthikanti_et_al_count(b: int, s: int) -> None:
    # Korthikanti et al. 2022, equation 1: s b h (34 + 5 a s / h)
    model = gpt()
    h, a = model.hidden, model.heads
    kept = layer_activation_bytes(model, cut(micro_batch=b, seq_length=s), moe=False)
    assert kept == s * b * h * 34 + 5 * a * s * s * b


def test_a_layer_of_gpt3_keeps_2_8_gb() -> None:
    # 2048 x 12288 x (34 + 5 x 96 x 2048 / 12288) = 2048 x 12288 x 114
    assert layer_activation_bytes(gpt(), cut(), moe=False) == 2048 * 12288 * 114 == 2_868_903_936


@LAW
@given(b=BATCH, s=LENGTH, t=TENSOR)
def test_tensor_parallelism_shares_all_but_ten_bytes_of_a_hidden_element(b: int, s: int, t: int) -> None:
    # Korthikanti et al. 2022, equation 2: s b h (10 + 24 / t + 5 a s / (h t))
    model = gpt()
    h, a = model.hidden, model.heads
    kept = layer_activation_bytes(model, cut(micro_batch=b, seq_length=s, t=t), moe=False)
    assert kept == pytest.approx(s * b * h * (10 + 24 / t) + 5 * a * s * s * b / t, rel=1e-12)


@LAW
@given(b=BATCH, s=LENGTH, t=TENSOR)
def test_sequence_parallelism_shares_everything(b: int, s: int, t: int) -> None:
    # Korthikanti et al. 2022, equation 4: s b h / t (34 + 5 a s / h)
    alone = layer_activation_bytes(gpt(), cut(micro_batch=b, seq_length=s), moe=False)
    shared = layer_activation_bytes(gpt(), cut(micro_batch=b, seq_length=s, t=t, sequence_parallel=True), moe=False)
    assert shared == pytest.approx(alone / t, rel=1e-12)


@LAW
@given(b=BATCH, s=LENGTH, t=TENSOR)
def test_selective_recomputation_keeps_no_scores(b: int, s: int, t: int) -> None:
    # Korthikanti et al. 2022, equation 6: 34 s b h / t with sequence parallelism
    kept = recomputed_layer_bytes(
        gpt(), cut(micro_batch=b, seq_length=s, t=t, sequence_parallel=True, recompute="selective"), moe=False
    )
    assert kept == pytest.approx(34 * s * b * 12288 / t, rel=1e-12)


@LAW
@given(b=BATCH, s=LENGTH, t=TENSOR)
def test_full_recomputation_keeps_the_input_of_a_layer(b: int, s: int, t: int) -> None:
    # Korthikanti et al. 2022, section 5: 2 s b h
    full = cut(micro_batch=b, seq_length=s, t=t, recompute="full")
    assert recomputed_layer_bytes(gpt(), full, moe=False) == 2 * s * b * 12288
    split = cut(micro_batch=b, seq_length=s, t=t, recompute="full", sequence_parallel=True)
    assert recomputed_layer_bytes(gpt(), split, moe=False) == 2 * s * b * 12288 / t


@pytest.mark.parametrize("model", [gpt(), MIXTURE, LATENT], ids=["gpt", "mixture", "latent"])
@LAW
@given(b=BATCH, s=LENGTH, t=TENSOR, flash=st.booleans(), dropout=st.booleans(), sequence=st.booleans())
def test_recomputing_more_never_keeps_more(
    model: ModelSpec, b: int, s: int, t: int, flash: bool, dropout: bool, sequence: bool
) -> None:
    def of(recompute: str) -> Cut:
        return cut(
            micro_batch=b, seq_length=s, t=t, attention="flash" if flash else "unfused", dropout=dropout,
            sequence_parallel=sequence, recompute=recompute,
        )  # fmt: skip

    moe = model.moe is not None
    none = layer_activation_bytes(model, of("none"), moe=moe)
    selective, operators, full = (recomputed_layer_bytes(model, of(each), moe=moe) for each in RECOMPUTE)
    assert none >= selective > operators > full > 0
    assert (none > selective) == (not flash)


def test_per_operator_checkpointing_keeps_the_input_and_half_of_what_products_need() -> None:
    # queries, keys, values and the output matrix's input: 4 h; the MLP's 4 h before and behind its activation
    kept = recomputed_layer_bytes(gpt(), cut(recompute="operators"), moe=False)
    assert kept == 2048 * 12288 * (2 + (2 * 4 + 2 * 8) / 2)


def test_norms_that_run_unfused_in_fp32_keep_more() -> None:
    unfused, fused = (
        layer_activation_bytes(gpt(), cut(t=4), stack(norm_kept_bytes=each), moe=False) for each in (16, 4)
    )
    assert unfused - fused == 12 * 2048 * 12288


def test_a_stack_scales_what_is_counted_but_the_scores() -> None:
    scores = attention_score_bytes(gpt(), cut())
    counted = layer_activation_bytes(gpt(), cut(), moe=False) - scores
    assert layer_activation_bytes(gpt(), cut(), stack(activation_scale=1.5), moe=False) == 1.5 * counted + scores


def test_dropout_masks_are_a_byte_for_each_element() -> None:
    sbh, scores = 2048 * 12288, 96 * 2048 * 2048
    with_masks, without = (layer_activation_bytes(gpt(), cut(dropout=each), moe=False) for each in (True, False))
    # two masks of s b h; of the scores the mask and the dropped copy
    assert with_masks - without == 2 * sbh + (1 + 2) * scores


def test_flash_attention_keeps_no_scores() -> None:
    assert attention_score_bytes(gpt(), cut(attention="flash")) == 0
    assert layer_activation_bytes(gpt(), cut(attention="flash"), moe=False) == 34 * 2048 * 12288
    # softmax input alone, or with its dropped output and mask
    assert attention_score_bytes(gpt(), cut(dropout=False)) == 2 * 96 * 2048**2
    assert attention_score_bytes(gpt(), cut(dropout=True)) == 5 * 96 * 2048**2


def test_grouped_queries_keep_fewer_keys_and_values() -> None:
    grouped = gpt(kv_heads=8)
    fewer = layer_activation_bytes(gpt(), cut(), moe=False) - layer_activation_bytes(grouped, cut(), moe=False)
    assert fewer == 2 * 2 * 2048 * (96 - 8) * 128  # keys and values, 2 bytes each


def test_a_gated_mlp_keeps_both_inputs_of_its_product() -> None:
    more = layer_activation_bytes(gpt(gated=True), cut(), moe=False) - layer_activation_bytes(gpt(), cut(), moe=False)
    assert more == 2 * 2048 * 4 * 12288


def test_latent_attention_keeps_keys_and_values_of_every_head() -> None:
    saved = layer_activation_bytes(LATENT, cut(attention="flash", dropout=False), moe=False)
    hidden, attention, mlp = 4 * 12288, 96 * (192 + 192 + 128 + 128), 2 * 4 * 12288
    assert saved == 2 * 2048 * (hidden + 1536 + 512 + attention + mlp)


@pytest.mark.parametrize("e", [1, 2, 16])
def test_experts_keep_the_tokens_routed_to_them_wherever_they_live(e: int) -> None:
    # a token is sent to two routed experts and passes the shared one; spreading experts spreads no activation
    saved = layer_activation_bytes(MIXTURE, cut(e=e, attention="flash", dropout=False), moe=True)
    assert saved == 2 * 2048 * (4 * 12288 + 4 * 12288 + 2 * 12288 + 2 * 4096 * 3)
    assert layer_activation_bytes(MIXTURE, cut(e=e), moe=False) == layer_activation_bytes(gpt(), cut(), moe=False)


def test_tensor_ranks_share_what_experts_make_but_not_what_they_are_sent() -> None:
    # top_k s b moe_ffn / t between an expert's matrices, top_k s b h before them
    shape: dict[str, Any] = {"attention": "flash", "dropout": False, "sequence_parallel": True}
    one, four = (layer_activation_bytes(MIXTURE, cut(t=t, **shape), moe=True) for t in (1, 4))
    assert four == 2 * 2048 * (4 * 12288 + 4 * 12288 + 2 * 4096 * 3) / 4 + 2 * 2048 * 2 * 12288
    assert four > one / 4


def test_a_layer_in_fp8_keeps_one_byte_of_what_matrices_multiply() -> None:
    # both norms' outputs and the down matrix's input are narrow; attention's output stays, with a narrow copy
    shape: dict[str, Any] = {"attention": "flash", "dropout": False}
    narrow = stack(fp8_copies=True)
    wide = layer_activation_bytes(gpt(), cut(**shape), narrow, moe=False)
    kept = layer_activation_bytes(gpt(), cut(**shape, precision="fp8"), narrow, moe=False)
    assert wide - kept == 2048 * 12288 * (1 + 1 + 4 - 1)
    assert layer_activation_bytes(gpt(), cut(**shape, precision="fp8"), moe=False) == wide


def test_latents_and_experts_in_fp8_keep_what_a_reader_of_deepseek_s_profile_counted() -> None:
    # deepseek-ai/profile-data, issue 18: 133,120 bytes a token of attention, 156,672 of 8 routed experts and a shared one.
    # The list lacks both norms' inputs, the first norm's output, and one of attention's values and output with its copy.
    model = gpt(
        hidden=7168, heads=128, kv_heads=128, ffn=18432, gated=True,
        mla=Mla(query_rank=1536, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128),
        moe=Moe(experts=256, top_k=8, ffn=2048, shared_experts=1),
    )  # fmt: skip
    shape: dict[str, Any] = {"attention": "flash", "dropout": False, "seq_length": 4096, "precision": "fp8"}
    saved = layer_activation_bytes(model, cut(**shape), stack(fp8_copies=True), moe=True)
    assert saved == 4096 * (133_120 + 156_672 + 2 * 2 * 7168 + 7168 + (2 + 1) * 128 * 128)


@LAW
@given(c=st.sampled_from([1, 2, 4, 8]))
def test_context_parallelism_divides_all_activations(c: int) -> None:
    whole, divided = (layer_activation_bytes(gpt(), cut(c=each), moe=False) for each in (1, c))
    assert divided == whole / c


def test_logits_are_shared_by_tensor_parallelism() -> None:
    asked = cut(t=4, micro_batch=2)
    assert logits_bytes(gpt(), asked, stack(logits_held_bytes=8)) == 8 * 4096 * 51200 / 4
    assert logits_bytes(gpt(), asked, stack(logits_held_bytes=8, logits_gathered=True)) == 8 * 4096 * 51200


def test_logits_that_ranks_share_may_take_more_for_each() -> None:
    dear = stack(logits_held_bytes=12, logits_shared_bytes=4)
    assert logits_bytes(gpt(), cut(t=1, micro_batch=2), dear) == 12 * 4096 * 51200
    assert logits_bytes(gpt(), cut(t=4, micro_batch=2), dear) == 16 * 4096 * 51200 / 4


@pytest.mark.parametrize(("zero", "total"), [(2, 2 + 16 / 8), (3, 16 / 8)])
def test_fsdp_shards_fp32_weights_that_are_the_master_copy(zero: int, total: float) -> None:
    # torch's FSDP keeps no 16-bit shard: 4 for the weight, 4 for its gradient, 8 for Adam's moments; below ZeRO-3 all alike
    held = state_bytes(1e9, 8, zero, 4, fsdp=True)
    assert sum(held.values()) == total * 1e9
    if zero == 3:
        assert held == {"weights": 5e8, "gradients": 5e8, "optimizer": 1e9}


@LAW
@given(parameters=st.integers(1, 10**12), shards=st.integers(1, 4096), gradient_bytes=st.sampled_from([2, 4, 6]))
def test_without_zero_a_parameter_takes_16_bytes_and_what_its_gradient_takes_beyond_2(
    parameters: int, shards: int, gradient_bytes: int
) -> None:
    # Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12
    held = state_bytes(parameters, shards, 0, gradient_bytes)
    assert sum(held.values()) == (14 + gradient_bytes) * parameters
    assert held == {"weights": 2 * parameters, "gradients": gradient_bytes * parameters, "optimizer": 12 * parameters}


@LAW
@given(parameters=st.integers(1, 10**12), shards=st.integers(1, 4096))
def test_zero_divides_as_published(parameters: int, shards: int) -> None:
    # Rajbhandari et al. 2020, figure 1: 4 + 12 / d, 2 + 14 / d, 16 / d
    totals = [sum(state_bytes(parameters, shards, zero, 2).values()) / parameters for zero in range(4)]
    assert totals == pytest.approx([16, 4 + 12 / shards, 2 + 14 / shards, 16 / shards], rel=1e-12)


def test_the_zero_paper_s_table_of_a_7_5_billion_model_on_64_gpus() -> None:
    # Rajbhandari et al. 2020, figure 1: 120, 31.4, 16.6 and 1.9 GB
    gigabytes = [sum(state_bytes(7.5e9, 64, zero, 2).values()) / 1e9 for zero in range(4)]
    assert gigabytes == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)


def test_with_one_replica_zero_saves_nothing() -> None:
    assert all(state_bytes(1e9, 1, zero, 4) == state_bytes(1e9, 1, 0, 4) for zero in range(4))


@LAW
@given(
    parameters=st.floats(1, 1e12),
    shards=st.integers(1, 4096),
    zero=st.integers(0, 2),
    gradient_bytes=st.sampled_from([2, 4, 6]),
)
def test_a_higher_zero_stage_or_more_replicas_never_hold_more(
    parameters: float, shards: int, zero: int, gradient_bytes: int
) -> None:
    held = state_bytes(parameters, shards, zero, gradient_bytes)
    higher = state_bytes(parameters, shards, zero + 1, gradient_bytes)
    wider = state_bytes(parameters, shards + 1, zero, gradient_bytes)
    assert all(higher[item] <= held[item] and wider[item] <= held[item] for item in held)


@LAW
@given(cuts=st.lists(st.tuples(TENSOR, BATCH, LENGTH), min_size=1, max_size=9), sequence=st.booleans())
def test_many_cuts_hold_what_each_holds_to_the_last_bit(cuts: list[tuple[int, int, int]], sequence: bool) -> None:
    t, b, s = np.array(cuts, np.float64).T
    for recompute in RECOMPUTE:
        shape: dict[str, Any] = {"sequence_parallel": sequence, "recompute": recompute}
        many = cut(t=t, micro_batch=b, seq_length=s, **shape)
        each = [cut(t=float(t), micro_batch=float(b), seq_length=float(s), **shape) for t, b, s in cuts]
        for bytes_of in (layer_activation_bytes, recomputed_layer_bytes):
            together = np.broadcast_to(bytes_of(MIXTURE, many, moe=True), len(cuts))
            assert together.tolist() == [bytes_of(MIXTURE, one, moe=True) for one in each]
