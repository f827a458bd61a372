"""Seconds and FLOPs of computing: peaks, published formulas, and the one list of matrices behind both."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from shapes import cluster, cut, gpt, stack

from pipesim.config import ModelConf, build_model
from pipesim.costs.compute import Parts, embedding_seconds, head_seconds, layer_seconds, model_flops_per_token
from pipesim.costs.kernels import TILES, Machine, gemm_s, machine, tile_efficiency
from pipesim.costs.matrices import dense_matrices, expert_matrices
from pipesim.costs.parameters import layer_parameters, moe_layers
from pipesim.specs import CostConstants, ModelSpec

LAW = settings(deadline=None, max_examples=25)
DIM = st.integers(1, 10**6)
FULL_TILES = st.integers(1, 4000).map(lambda tiles: 256 * tiles)
PEAK, HBM = 312e12, 2e12
FOLDER = Path(__file__).parents[1] / "conf" / "model"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SPEED = {tile[:2]: tile[2] for tile in TILES}

IDEAL = Machine(
    peak_flops_per_s=PEAK, hbm_bytes_per_s=math.inf, multiprocessors=1, gemm_efficiency=1.0, flash_efficiency=1.0,
    costs=CostConstants(kind="full"), stack=stack(),
)  # fmt: skip
"""Products of whole tiles run at the peak, nothing else takes time."""


@functools.cache
def load(name: str) -> ModelSpec:
    merged = OmegaConf.merge(OmegaConf.structured(ModelConf), OmegaConf.load(FOLDER / f"{name}.yaml"))
    values: Any = OmegaConf.to_container(merged, throw_on_missing=True)
    return build_model(values)


def on(machine: Machine = IDEAL, **values: float) -> Machine:
    """A machine whose memory takes time, with some values of its own, of its costs or of its stack."""
    real = machine._replace(hbm_bytes_per_s=HBM)
    for name, value in values.items():
        if name in Machine._fields:
            real = real._replace(**{name: value})
        elif name in CostConstants.__slots__:
            real = real._replace(costs=dataclasses.replace(real.costs, **{name: value}))
        else:
            real = real._replace(stack=dataclasses.replace(real.stack, **{name: value}))
    return real


@LAW
@given(rows=FULL_TILES, outputs=FULL_TILES, inputs=DIM)
def test_at_the_peak_a_matrix_product_takes_its_flops(rows: int, outputs: int, inputs: int) -> None:
    assert gemm_s(rows, outputs, inputs, IDEAL) == 2 * rows * outputs * inputs / PEAK


def test_a_worked_matrix_product() -> None:
    # 4096 x 4096 x 4096 at 312 TFLOP/s: 137.4 GFLOP in 0.4405 ms if nothing is wasted. Of 256 x 128 tiles there are 512:
    # five waves of 108, 540, so that 512 / 540 of what is computed is asked for.
    assert gemm_s(4096, 4096, 4096, IDEAL) == pytest.approx(0.4405e-3, rel=1e-4)
    assert gemm_s(4096, 4096, 4096, on(multiprocessors=108)) == pytest.approx(0.4405e-3 * 540 / 512, rel=1e-4)
    # at 75 % of the peak, with an inner loop that a dimension of 330 halves
    real = on(multiprocessors=108, gemm_efficiency=0.75, gemm_inner_half_dim=330)
    assert gemm_s(4096, 4096, 4096, real) == pytest.approx(0.4405e-3 * 540 / 512 / 0.75 * (1 + 330 / 4096), rel=1e-4)


def test_the_last_wave_of_tiles_costs_as_much_as_a_full_one() -> None:
    # 108 tiles of 256 x 128 on 108 multiprocessors; one more row of tiles starts a second wave
    assert tile_efficiency(108 * 256, 128, 108) == 1
    tiles = {  # tile: useful share of two waves of large tiles, or of more of smaller ones
        (256, 128): 109 / 216, (128, 128): 218 / 324, (256, 64): 218 / 324, (128, 64): 436 / 540, (64, 64): 872 / 972,
    }  # fmt: skip
    best = max(SPEED[tile] * share for tile, share in tiles.items())
    assert tile_efficiency(109 * 256, 128, 108) == pytest.approx(best, rel=1e-12)
    assert best < 1


def test_a_tile_that_is_not_full_is_computed_whole() -> None:
    # 257 rows need two tiles of 256, or five of 64
    shares = {
        (256, 128): 257 / 512,
        (128, 128): 257 / 384,
        (256, 64): 257 / 512,
        (128, 64): 257 / 384,
        (64, 64): 257 / 320,
    }
    lying = {
        (256, 128): 257 / 384,
        (256, 64): 257 / 320,
        (128, 64): 257 / 320,
    }  # the other way round: 128 or 64 rows high
    best = max(SPEED[tile] * share for each in (shares, lying) for tile, share in each.items())
    assert tile_efficiency(257, 256, 1) == pytest.approx(best, rel=1e-12)


@LAW
@given(rows=DIM, outputs=DIM, multiprocessors=st.integers(1, 200))
def test_tiles_are_used_as_well_whichever_way_a_product_lies(rows: int, outputs: int, multiprocessors: int) -> None:
    useful = tile_efficiency(rows, outputs, multiprocessors)
    assert 0 < useful <= 1
    assert useful == pytest.approx(tile_efficiency(outputs, rows, multiprocessors), rel=1e-12)


def test_one_row_takes_as_long_as_its_weights_need_to_arrive() -> None:
    # 1 x 8192 x 8192: 0.134 GFLOP in no time, but 134 MB from memory at 2 TB/s in 67 us
    assert gemm_s(1, 8192, 8192, on(multiprocessors=108)) == pytest.approx(2 * (8192**2 + 2 * 8192) / 2e12, rel=1e-12)


@LAW
@given(rows=DIM, outputs=DIM, inputs=DIM, half_dim=st.floats(0, 1000), efficiency=st.floats(0.01, 1))
def test_a_matrix_product_is_never_faster_than_its_flops_or_its_bytes(
    rows: int, outputs: int, inputs: int, half_dim: float, efficiency: float
) -> None:
    seconds = gemm_s(rows, outputs, inputs, on(gemm_inner_half_dim=half_dim, gemm_efficiency=efficiency))
    assert seconds >= 2 * rows * outputs * inputs / PEAK / efficiency * (1 - 1e-12)
    assert seconds >= 2 * (rows * outputs + outputs * inputs + rows * inputs) / HBM * (1 - 1e-12)


@LAW
@given(rows=FULL_TILES, outputs=FULL_TILES)
def test_an_inner_dimension_of_the_half_size_halves_the_speed(rows: int, outputs: int) -> None:
    slow = IDEAL._replace(costs=CostConstants(kind="full", gemm_inner_half_dim=100))
    assert gemm_s(rows, outputs, 100, slow) == pytest.approx(2 * gemm_s(rows, outputs, 100, IDEAL), rel=1e-12)


@LAW
@given(rows=DIM, outputs=DIM, inputs=DIM, times=st.integers(2, 9))
def test_thicker_products_never_reach_fewer_flops_per_second(rows: int, outputs: int, inputs: int, times: int) -> None:
    thin = on(multiprocessors=108, gemm_inner_half_dim=100)
    for thicker in ((rows * times, outputs, inputs), (rows, outputs * times, inputs), (rows, outputs, inputs * times)):
        assert gemm_s(*thicker, thin) <= times * gemm_s(rows, outputs, inputs, thin) * (1 + 1e-12)


@LAW
@given(rows=DIM, outputs=DIM, inputs=DIM, more=st.integers(1, 1000))
def test_more_rows_never_take_less_time(rows: int, outputs: int, inputs: int, more: int) -> None:
    real = on(multiprocessors=108, gemm_inner_half_dim=100)
    assert gemm_s(rows + more, outputs, inputs, real) >= gemm_s(rows, outputs, inputs, real) * (1 - 1e-12)


@LAW
@given(dims=st.lists(st.tuples(DIM, DIM, DIM), min_size=1, max_size=20))
def test_an_array_of_matrix_products_equals_each_to_the_last_bit(dims: list[tuple[int, int, int]]) -> None:
    real = on(multiprocessors=108, gemm_inner_half_dim=100, gemm_efficiency=0.78)
    together = gemm_s(*np.array(dims, np.float64).T, real)
    assert together.tolist() == [gemm_s(*map(float, each), real) for each in dims]


@pytest.mark.parametrize("name", NAMES)
def test_the_matrices_of_a_layer_are_its_parameters_but_for_norms_and_biases(name: str) -> None:
    model = load(name)
    kinds = [False, True] if moe_layers(model) else [False]
    for moe in kinds:
        matrices = dense_matrices(model, moe)
        experts = expert_matrices(model) * (model.moe.experts if moe and model.moe else 0)
        weights = sum(matrix.inputs * matrix.outputs for matrix in (*matrices, *experts))
        biases = model.bias * sum(matrix.outputs for matrix in (*matrices, *experts))
        norm_size = 2 if model.norm == "layernorm" else 1
        norms = 2 * model.hidden * norm_size
        if model.mla:
            norms += (model.mla.query_rank + model.mla.kv_rank) * norm_size
        router = model.moe.experts * model.moe.router_bias if moe and model.moe else 0
        assert weights + biases + norms + router == layer_parameters(model, moe).total


def test_a_gpt_layer_multiplies_twelve_hidden_squares() -> None:
    model = load("gpt3_175b")
    h = model.hidden
    assert sum(matrix.weights for matrix in dense_matrices(model, moe=False)) == 12 * h * h
    seconds = layer_seconds(model, cut(), IDEAL, moe=False)
    assert seconds.forward.matmul_s == pytest.approx(2 * 4096 * 12 * h * h / PEAK, rel=1e-12)


@pytest.mark.parametrize("name", ["gpt3_175b", "llama3_70b"])
@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallelism_shares_the_matrix_products_evenly(name: str, t: int) -> None:
    model = load(name)
    whole, shared = (layer_seconds(model, cut(t=each), IDEAL, moe=False).forward for each in (1, t))
    assert shared.matmul_s == pytest.approx(whole.matmul_s / t, rel=1e-12)
    assert shared.attention_s == pytest.approx(whole.attention_s / t, rel=1e-12)


@pytest.mark.parametrize("name", ["bloom_176b", "gpt3_175b", "llama3_70b"])
def test_each_half_of_a_backward_multiplies_as_much_as_the_forward(name: str) -> None:
    layer = layer_seconds(load(name), cut(), IDEAL, moe=False)
    head = head_seconds(load(name), cut(), IDEAL)
    for block in (layer, head):
        assert block.input_grad.matmul_s == pytest.approx(block.forward.matmul_s, rel=1e-12)
        assert block.weight_grad.matmul_s == pytest.approx(block.forward.matmul_s, rel=1e-12)


def test_a_backward_multiplies_in_shapes_of_its_own() -> None:
    # A head of 1024 inputs for 4096 tokens and 51200 outputs, inner dimensions 1024, then 51200, then 4096
    model, slow = (
        gpt(hidden=1024, heads=8, kv_heads=8),
        IDEAL._replace(costs=CostConstants(kind="full", gemm_inner_half_dim=512)),
    )
    ideal_s = 2 * 4096 * 1024 * 51200 / PEAK
    head = head_seconds(model, cut(), slow)
    seconds = [op.matmul_s / ideal_s for op in (head.forward, head.input_grad, head.weight_grad)]
    assert seconds == pytest.approx([1 + 512 / 1024, 1 + 512 / 51200, 1 + 512 / 4096], rel=1e-12)


@pytest.mark.parametrize(
    ("attention", "score_bytes"), [("unfused", "unfused_score_bytes"), ("torch", "torch_score_bytes")]
)
def test_unfused_attention_multiplies_the_whole_square_and_moves_every_score(attention: str, score_bytes: str) -> None:
    model, b, s, asked = load("gpt3_175b"), 2, 2048, cut(attention=attention)
    flops = 4 * b * s * s * model.hidden  # Narayanan et al. 2021, appendix: 2 b s^2 h for scores, as much for values
    layer = layer_seconds(model, asked, IDEAL, moe=False)
    assert layer.forward.attention_s == pytest.approx(flops / PEAK, rel=1e-12)
    assert layer.input_grad.attention_s == pytest.approx(2 * flops / PEAK, rel=1e-12)
    moving = layer_seconds(model, asked, on(**{score_bytes: 11}), moe=False)
    moved = 11 * b * s * s * model.heads / HBM
    assert moving.forward.attention_s == pytest.approx(flops / PEAK + moved, rel=1e-12)
    assert moving.input_grad.attention_s == pytest.approx(2 * flops / PEAK + 1.5 * moved, rel=1e-12)


@pytest.mark.parametrize(("head_dim", "times"), [(64, 1), (128, 1), (80, 128 / 80), (96, 128 / 96), (72, 128 / 72)])
def test_products_of_unfused_attention_pad_heads_to_whole_tiles_of_64(head_dim: int, times: float) -> None:
    model = gpt(head_dim=head_dim)
    flops = 4 * 2 * 2048 * 2048 * 32 * head_dim
    assert layer_seconds(model, cut(), IDEAL, moe=False).forward.attention_s == pytest.approx(
        times * flops / PEAK, rel=1e-12
    )


def test_heads_of_no_multiple_of_eight_get_no_tensor_cores_without_flash() -> None:
    odd, even = (layer_seconds(gpt(head_dim=each), cut(), IDEAL, moe=False).forward.attention_s for each in (100, 104))
    assert odd > 4 * even  # both are padded to 128


def test_what_a_product_takes_beside_multiplying_is_the_same_time_on_a_faster_multiplier() -> None:
    slow, fast = (
        on(gemm_inner_half_dim=400),
        on(gemm_inner_half_dim=400)._replace(peak_flops_per_s=2 * PEAK, balance=2.0),
    )
    m = n = 8192
    lost = [gemm_s(m, n, 1024, each) - gemm_s(m, n, 512, each) / 512 * 1024 for each in (slow, fast)]
    assert lost[0] == pytest.approx(lost[1], rel=1e-9) != 0


@pytest.mark.parametrize(("e", "times"), [(8, 1), (4, 2)])
def test_tokens_are_sorted_before_they_leave_and_where_several_experts_live_again(e: int, times: int) -> None:
    model = load("mixtral_8x7b")
    moved = times * 2 * 8 * 4096 * model.hidden  # two experts a token; read and written there and back
    assert layer_seconds(model, cut(e=e), on(), moe=True).forward.elementwise_s == pytest.approx(moved / HBM, rel=1e-12)


def test_flash_attention_skips_the_masked_half_and_recomputes_scores_backward() -> None:
    model = load("gpt3_175b")
    flash, unfused = (layer_seconds(model, cut(attention=kind), IDEAL, moe=False) for kind in ("flash", "unfused"))
    # 16 blocks of 128 queries: half a tile of the diagonal and a tile to start for 8 of each; of 128 blocks at 16k likewise
    assert flash.forward.attention_s == pytest.approx(
        unfused.forward.attention_s / 2 * (1 + 3 / 16) / (1 + 3 / 128), rel=1e-12
    )
    # Dao 2023: two products forward, five backward (section 3.1), at 0.88 of the FLOP/s (figures 4 to 6)
    assert flash.input_grad.attention_s == pytest.approx(5 / 2 / 0.88 * flash.forward.attention_s, rel=1e-12)
    moving = layer_seconds(model, cut(attention="flash"), on(unfused_score_bytes=11, torch_score_bytes=28), moe=False)
    assert moving.forward.attention_s == flash.forward.attention_s
    slower = layer_seconds(model, cut(attention="flash"), on(flash_efficiency=0.5), moe=False).forward
    assert slower.attention_s == 2 * flash.forward.attention_s


def test_elementwise_kernels_take_the_bytes_they_move() -> None:
    model, tokens = load("gpt3_175b"), 4096
    bytes_of = on(norm_bytes=17, mlp_bytes=6)
    h, f = model.hidden, model.ffn
    layer = layer_seconds(model, cut(), bytes_of, moe=False)
    assert layer.forward.elementwise_s == pytest.approx(tokens * (17 * h + 6 * f) / 2e12, rel=1e-12)
    assert layer.input_grad.elementwise_s == 1.5 * layer.forward.elementwise_s
    shared = layer_seconds(model, cut(t=8), bytes_of, moe=False).forward.elementwise_s
    assert shared == pytest.approx(tokens * (17 * h + 6 * f / 8) / 2e12, rel=1e-12)  # every rank repeats the norms
    split = layer_seconds(model, cut(t=8, sequence_parallel=True), bytes_of, moe=False).forward.elementwise_s
    assert split == pytest.approx(layer.forward.elementwise_s / 8, rel=1e-12)


def test_a_gated_mlp_moves_both_of_its_inputs() -> None:
    model = load("llama3_70b")
    gated = layer_seconds(model, cut(), on(mlp_bytes=6), moe=False).forward.elementwise_s
    plain = dataclasses.replace(model, gated=False)
    assert gated == 2 * layer_seconds(plain, cut(), on(mlp_bytes=6), moe=False).forward.elementwise_s


@pytest.mark.parametrize("e", [1, 2, 4, 8])
def test_at_the_peak_a_token_pays_for_its_chosen_experts_wherever_they_live(e: int) -> None:
    model = load("mixtral_8x7b")
    attention, expert = 2 * 4096**2 + 2 * 4096 * 1024, 3 * 4096 * 14336
    router = 4096 * 8 / (8 / 64) / 0.9  # eight outputs fill an eighth of a 256 x 64 tile
    seconds = layer_seconds(model, cut(e=e), IDEAL, moe=True).forward.matmul_s
    assert seconds == pytest.approx(2 * 4096 * (attention + 2 * expert + router) / PEAK, rel=1e-12)


def test_fewer_experts_on_a_gpu_give_each_a_thicker_product() -> None:
    model, real = load("deepseek_v3"), on(multiprocessors=132)
    times = [layer_seconds(model, cut(e=e), real, moe=True).forward.matmul_s for e in (1, 4, 16, 64)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_the_head_multiplies_the_vocabulary_and_moves_its_logits() -> None:
    model = load("bloom_176b")
    head = head_seconds(model, cut(t=4), on(logits_bytes=17)).forward
    assert head.matmul_s == pytest.approx(2 * 4096 * 14336 * 250880 / 4 / PEAK, rel=1e-12)
    assert head.elementwise_s == pytest.approx(17 * 4096 * 250880 / 4 / 2e12, rel=1e-12)


def test_the_embedding_reads_and_writes_a_row_for_each_token() -> None:
    model = load("bloom_176b")
    seconds = embedding_seconds(model, cut(), on())
    assert seconds.forward == Parts(0, 0, 4096 * 14336 * (2 + 2) / 2e12)
    assert seconds.input_grad.total_s() == 0
    assert seconds.weight_grad == seconds.forward


def test_context_parallelism_divides_tokens_but_a_query_still_meets_every_key() -> None:
    model = load("llama3_70b")
    whole, divided = (layer_seconds(model, cut(c=c), IDEAL, moe=False).forward for c in (1, 4))
    assert divided.matmul_s == pytest.approx(whole.matmul_s / 4, rel=1e-12)
    assert divided.attention_s == pytest.approx(whole.attention_s / 4, rel=1e-12)


def test_model_flops_reproduce_the_mfu_that_palm_publishes() -> None:
    # Chowdhery et al. 2022, section 4.1 and appendix B: 540.35e9 parameters, 118 layers, 48 heads of 256, 238.3K
    # tokens/s of 2048-token sequences on 6144 TPU v4 (275 TFLOP/s): 46.2 %
    palm = dataclasses.replace(load("gpt3_175b"), layers=118, hidden=18432, heads=48, kv_heads=48, head_dim=256)
    flops = model_flops_per_token(palm, 2048, 540.35e9)
    assert flops == pytest.approx(6 * 540.35e9 + 12 * 118 * 48 * 256 * 2048, rel=1e-12)
    assert 238.3e3 * flops / (6144 * 275e12) == pytest.approx(0.462, abs=5e-4)


@LAW
@given(lengths=st.lists(st.integers(1, 10**6), min_size=1, max_size=9))
def test_model_flops_of_many_lengths_equal_those_of_each(lengths: list[int]) -> None:
    model = load("deepseek_v3")
    together = model_flops_per_token(model, np.array(lengths, np.float64), 37e9)
    assert together.tolist() == [float(model_flops_per_token(model, float(each), 37e9)) for each in lengths]


def test_a_machine_has_what_its_chip_its_stack_and_its_precision_reach() -> None:
    h100 = cluster(
        chip="h100", peak_flops_per_s={"bf16": 1e15, "fp8": 2e15}, multiprocessors=132, hbm_bytes_per_s=4e12,
        flash_efficiency={"flash": 0.6, "flash3": 0.7},
    )  # fmt: skip
    costs = CostConstants(kind="full", hbm_efficiency=0.75)
    real = stack(gemm_efficiency={"default": 0.5, "h100": 0.8}, fp8_efficiency=0.75)
    flash = machine(h100, costs, real, cut(attention="flash"))
    a100 = 312e12 / 2039e9  # NVIDIA A100 80GB datasheet
    assert flash == Machine(1e15, 3e12, 132, 0.8, 0.6, costs, real, balance=pytest.approx(1e15 / 4e12 / a100))
    assert machine(h100, costs, real, cut(attention="flash3")).flash_efficiency == 0.7
    # attention stays in bf16, which reaches half of fp8's peak
    eight = machine(h100, costs, real, cut(attention="flash", precision="fp8"))
    assert eight == Machine(
        2e15, 3e12, 132, pytest.approx(0.8 * 0.75), pytest.approx(0.6 / 2), costs, real,
        balance=pytest.approx(2e15 / 4e12 / a100), cast_bytes=4.0,
    )  # fmt: skip
    assert machine(dataclasses.replace(h100, chip="tomorrow"), costs, real, cut()).gemm_efficiency == 0.5


@LAW
@given(
    cuts=st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.integers(64, 8192)), min_size=1, max_size=9
    )
)
def test_a_layer_of_many_cuts_equals_that_of_each_to_the_last_bit(cuts: list[tuple[int, int, int]]) -> None:
    model = load("mixtral_8x7b")
    machine = IDEAL._replace(multiprocessors=108)
    real = on(
        machine, gemm_inner_half_dim=100, gemm_efficiency=0.78, norm_bytes=17, mlp_bytes=6, unfused_score_bytes=11
    )
    t, micro_batch, seq_length = np.array(cuts, np.float64).T
    together = layer_seconds(model, cut(t=t, micro_batch=micro_batch, seq_length=seq_length), real, moe=True)
    for i, (each_t, each_b, each_s) in enumerate(cuts):
        alone = layer_seconds(
            model, cut(t=float(each_t), micro_batch=float(each_b), seq_length=float(each_s)), real, moe=True
        )
        for many, one in zip(together, alone, strict=True):
            assert [float(np.broadcast_to(x, len(cuts))[i]) for x in many] == [float(x) for x in one]
