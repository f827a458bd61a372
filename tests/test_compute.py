"""Seconds and FLOPs of computing: peaks, published formulas, and the one list of matrices behind both."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from pipesim.config import ModelConf, build_model
from pipesim.costs.compute import (
    Machine,
    Parts,
    embedding_seconds,
    gemm_s,
    head_seconds,
    layer_seconds,
    machine,
    model_flops_per_token,
)
from pipesim.costs.cut import Cut
from pipesim.costs.matrices import dense_matrices, expert_matrices
from pipesim.costs.parameters import layer_parameters, moe_layers
from pipesim.specs import ClusterSpec, CostConstants, LinkSpec, ModelSpec

LAW = settings(deadline=None, max_examples=25)
DIM = st.integers(1, 10**6)
PEAK = 312e12
FOLDER = Path(__file__).parents[1] / "conf" / "model"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

IDEAL = Machine(PEAK, 2e12, CostConstants(kind="full"))
"""Matrix products at the peak, nothing else takes time."""


@functools.cache
def load(name: str) -> ModelSpec:
    merged = OmegaConf.merge(OmegaConf.structured(ModelConf), OmegaConf.load(FOLDER / f"{name}.yaml"))
    values: Any = OmegaConf.to_container(merged, throw_on_missing=True)
    return build_model(values)


def cut(**changes: Any) -> Cut:
    values: dict[str, Any] = {
        "t": 1, "d": 1, "c": 1, "e": 1, "micro_batch": 2, "seq_length": 2048, "zero": 0, "sequence_parallel": False,
        "recompute": "none", "attention": "unfused", "precision": "bf16", "dropout": False,
        "gradient_bytes": 4, "reduce_bytes": 4,
    }  # fmt: skip
    return Cut(**values | changes)


def on(**costs: float) -> Machine:
    return IDEAL._replace(costs=CostConstants(kind="full", **costs))


@LAW
@given(rows=DIM, outputs=DIM, inputs=DIM)
def test_at_the_peak_a_matrix_product_takes_its_flops(rows: int, outputs: int, inputs: int) -> None:
    assert gemm_s(rows, outputs, inputs, IDEAL) == 2 * rows * outputs * inputs / PEAK


def test_a_worked_matrix_product() -> None:
    # 4096 x 4096 x 4096 at 312 TFLOP/s: 137.4 GFLOP in 0.4405 ms
    assert gemm_s(4096, 4096, 4096, IDEAL) == pytest.approx(0.4405e-3, rel=1e-4)


@LAW
@given(rows=DIM, outputs=DIM, inputs=DIM, half_dim=st.floats(0, 1000), efficiency=st.floats(0.01, 1))
def test_a_matrix_product_is_never_faster_than_the_peak(
    rows: int, outputs: int, inputs: int, half_dim: float, efficiency: float
) -> None:
    seconds = gemm_s(rows, outputs, inputs, on(gemm_half_dim=half_dim, gemm_efficiency=efficiency))
    assert seconds >= gemm_s(rows, outputs, inputs, IDEAL) / efficiency * (1 - 1e-12)


@pytest.mark.parametrize("thin", [0, 1, 2])
def test_a_dimension_of_the_half_size_halves_the_speed(thin: int) -> None:
    dims = [10**12] * 3
    dims[thin] = 100
    slower = gemm_s(*dims, on(gemm_half_dim=100)) / gemm_s(*dims, IDEAL)
    assert slower == pytest.approx(2, rel=1e-9)


@LAW
@given(rows=DIM, outputs=DIM, inputs=DIM, times=st.integers(2, 9))
def test_thicker_products_never_reach_fewer_flops_per_second(rows: int, outputs: int, inputs: int, times: int) -> None:
    thin = on(gemm_half_dim=100)
    for thicker in ((rows * times, outputs, inputs), (rows, outputs * times, inputs), (rows, outputs, inputs * times)):
        assert gemm_s(*thicker, thin) <= times * gemm_s(rows, outputs, inputs, thin) * (1 + 1e-12)


@LAW
@given(dims=st.lists(st.tuples(DIM, DIM, DIM), min_size=1, max_size=20))
def test_an_array_of_matrix_products_equals_each_to_the_last_bit(dims: list[tuple[int, int, int]]) -> None:
    real = on(gemm_half_dim=100, gemm_efficiency=0.78)
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


@pytest.mark.parametrize("name", NAMES)
def test_each_half_of_a_backward_multiplies_as_much_as_the_forward(name: str) -> None:
    model = load(name)
    layer = layer_seconds(model, cut(), on(gemm_half_dim=100), moe=bool(model.moe))
    assert layer.input_grad.matmul_s == layer.weight_grad.matmul_s == layer.forward.matmul_s > 0
    head = head_seconds(model, cut(), on(gemm_half_dim=100))
    assert head.input_grad.matmul_s == head.weight_grad.matmul_s == head.forward.matmul_s > 0


def test_unfused_attention_multiplies_the_whole_square_and_moves_every_score() -> None:
    model, b, s = load("gpt3_175b"), 2, 2048
    flops = 4 * b * s * s * model.hidden  # Narayanan et al. 2021, appendix: 2 b s^2 h for scores, as much for values
    layer = layer_seconds(model, cut(), IDEAL, moe=False)
    assert layer.forward.attention_s == pytest.approx(flops / PEAK, rel=1e-12)
    assert layer.input_grad.attention_s == pytest.approx(2 * flops / PEAK, rel=1e-12)
    moved = layer_seconds(model, cut(), on(score_bytes=11), moe=False).forward.attention_s - layer.forward.attention_s
    assert moved == pytest.approx(11 * b * s * s * model.heads / 2e12, rel=1e-9)


def test_flash_attention_skips_the_masked_half_and_recomputes_scores_backward() -> None:
    model = load("gpt3_175b")
    flash, unfused = (
        layer_seconds(model, cut(attention=kind), IDEAL, moe=False).forward for kind in ("flash", "unfused")
    )
    assert flash.attention_s == unfused.attention_s / 2
    # Dao 2023, section 3.1: two products forward, five backward
    backward = layer_seconds(model, cut(attention="flash"), IDEAL, moe=False).input_grad
    assert backward.attention_s == 5 / 2 * flash.attention_s
    moving = layer_seconds(model, cut(attention="flash"), on(score_bytes=11), moe=False).forward
    assert moving.attention_s == flash.attention_s


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
    attention, expert, router = 2 * 4096**2 + 2 * 4096 * 1024, 3 * 4096 * 14336, 4096 * 8
    seconds = layer_seconds(model, cut(e=e), IDEAL, moe=True).forward.matmul_s
    assert seconds == pytest.approx(2 * 4096 * (attention + 2 * expert + router) / PEAK, rel=1e-12)


def test_fewer_experts_on_a_gpu_give_each_a_thicker_product() -> None:
    model, real = load("deepseek_v3"), on(gemm_half_dim=100)
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
    seconds = embedding_seconds(model, cut(), IDEAL)
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


def test_a_machine_has_the_peak_of_its_precision_and_a_share_of_its_memory_speed() -> None:
    link = LinkSpec(bandwidth_bytes_per_s=1e9, latency_s=0)
    cluster = ClusterSpec(
        name="x", gpus=8, gpus_per_node=8, peak_flops_per_s={"bf16": 1e15, "fp8": 2e15}, memory_bytes=80e9,
        hbm_bytes_per_s=4e12, intra_node=link, inter_node=link,
    )  # fmt: skip
    costs = CostConstants(kind="full", hbm_efficiency=0.75)
    assert machine(cluster, costs, cut()) == (1e15, 3e12, costs)
    assert machine(cluster, costs, cut(precision="fp8")) == (2e15, 3e12, costs)


@LAW
@given(
    cuts=st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.integers(64, 8192)), min_size=1, max_size=9
    )
)
def test_a_layer_of_many_cuts_equals_that_of_each_to_the_last_bit(cuts: list[tuple[int, int, int]]) -> None:
    model = load("mixtral_8x7b")
    real = on(gemm_half_dim=100, gemm_efficiency=0.78, norm_bytes=17, mlp_bytes=6, score_bytes=11)
    t, micro_batch, seq_length = np.array(cuts, np.float64).T
    together = layer_seconds(model, cut(t=t, micro_batch=micro_batch, seq_length=seq_length), real, moe=True)
    for i, (each_t, each_b, each_s) in enumerate(cuts):
        alone = layer_seconds(
            model, cut(t=float(each_t), micro_batch=float(each_b), seq_length=float(each_s)), real, moe=True
        )
        for many, one in zip(together, alone, strict=True):
            assert [float(np.broadcast_to(x, len(cuts))[i]) for x in many] == [float(x) for x in one]
