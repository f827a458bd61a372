"""Adding up gradients over micro-batches: in the product that makes them, or in kernels of its own."""

from __future__ import annotations

import dataclasses

import pytest
from measured_rows import measured
from shapes import cluster, cut, gpt, stack

from pipesim.costs.compute import BlockSeconds, head_seconds, layer_seconds
from pipesim.costs.cut import Cut
from pipesim.costs.kernels import machine
from pipesim.costs.parameters import layer_parameters
from pipesim.specs import CostConstants, ModelSpec, Moe

COSTS = CostConstants(kind="full")
HBM = 2e12
"""Bytes per second of ``shapes.cluster``, all of which ``COSTS`` reaches."""

EXPERTS = dataclasses.replace(gpt(), moe=Moe(experts=16, top_k=2, ffn=2048))


def layer(asked: Cut, model: ModelSpec | None = None, *, moe: bool = False, **values: float) -> BlockSeconds:
    on = machine(cluster(), COSTS, stack(**values), asked)
    return layer_seconds(model or gpt(), asked, on, moe=moe)


def test_a_product_that_adds_to_the_sum_reads_and_writes_it() -> None:
    asked = cut(micro_batch=1, seq_length=1)  # one token: all that a gradient's product does is move
    narrow, wide = (layer(asked, gradient_bytes=each).weight_grad for each in (2, 4))
    weights = layer_parameters(gpt(), moe=False).sharded - biases(gpt())
    assert wide.matmul_s - narrow.matmul_s == pytest.approx(2 * (4 - 2) * weights / HBM, rel=1e-12)
    assert wide.elementwise_s == narrow.elementwise_s == 0
    many = cut(micro_batch=4)
    assert layer(many, gradient_bytes=4) == layer(many, gradient_bytes=2)  # large ones compute meanwhile


@pytest.mark.parametrize("t", [1, 8])
def test_kernels_that_add_gradients_move_their_bytes_for_every_parameter_of_the_rank(t: int) -> None:
    held = layer_parameters(gpt(), moe=False)
    for asked in (cut(t=t), cut(t=t, micro_batch=8)):  # whatever the micro-batch
        adding, fused = layer(asked, accumulation_bytes=18), layer(asked)
        expected = 18 * (held.sharded / t + held.replicated) / HBM
        assert adding.weight_grad.elementwise_s == pytest.approx(expected, rel=1e-12)
        assert adding.forward == fused.forward
        assert adding.input_grad == fused.input_grad
    one = cut(micro_batch=1, seq_length=1)  # the product writes 2 bytes, whatever the sum takes
    assert layer(one, accumulation_bytes=18, gradient_bytes=6) == layer(one, accumulation_bytes=18, gradient_bytes=2)


def test_experts_add_up_their_own_gradients_however_few_tokens_they_see() -> None:
    held = layer_parameters(EXPERTS, moe=True)
    for e in (1, 4):
        seconds = layer(cut(d=4, e=e), EXPERTS, moe=True, accumulation_bytes=10)
        expected = 10 * (held.sharded + held.replicated + held.expert / e) / HBM
        assert seconds.weight_grad.elementwise_s == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("zero", "share"), [(0, 1), (1, 1), (2, 8), (3, 8)])
def test_shards_of_gradients_are_added_up_where_zero_divides_them(zero: int, share: int) -> None:
    whole, asked = (layer(cut(d=8, zero=z), accumulation_bytes=12).weight_grad.elementwise_s for z in (0, zero))
    assert asked == pytest.approx(whole / share, rel=1e-12)


def test_the_head_adds_up_its_gradient_too() -> None:
    model, asked = gpt(), cut(t=4)
    seconds = head_seconds(model, asked, machine(cluster(), COSTS, stack(accumulation_bytes=6), asked))
    assert seconds.weight_grad.elementwise_s == pytest.approx(6 * model.vocab * model.hidden / 4 / HBM, rel=1e-12)


def test_deepspeed_sums_bf16_gradients_in_fp32_and_fp16_ones_as_they_are() -> None:
    # BF16_Optimizer casts (2 + 4), adds (4 + 4 + 4) and all-reduces fp32 sums; fp16 adds 16 bits (2 + 2 + 2), to shards
    for precision, expected in (("bf16", (18, 4, True)), ("fp16", (6, 2, False))):
        row = measured(stack="megatron-deepspeed", zero_stage_or_fsdp="ZeRO-1", precision=precision)
        assert row.point is not None
        found = row.point.stack
        assert (found.accumulation_bytes, found.reduce_bytes, found.reduces_whole) == expected


def biases(model: ModelSpec) -> int:
    """Of the matrices that t divides by columns: query, key, value and up."""
    return model.bias * (3 * model.hidden + model.ffn)
