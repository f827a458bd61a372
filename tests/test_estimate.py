"""Estimates and rows: items add up, published figures are met, and no input changes a result the wrong way."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import DEEPSEEK, EVERY, MIXTRAL, SMALL, composed, default, point, row, rows, wider, with_cluster

from pipesim import legality
from pipesim.costs.memory import layer_activation_bytes, recomputed_layer_bytes
from pipesim.costs.parameters import head_parameters, total_parameters
from pipesim.estimate import COMPUTE_ITEMS, TIME_ITEMS, Points, evaluate, evaluate_columns, pipeline, points_of
from pipesim.plan import grid
from pipesim.plan.asked.space import Axis, Slice, Space
from pipesim.report.words import trust
from pipesim.schedules import make_schedule, problems, schedule_names, stages_per_rank
from pipesim.simulate import simulate

LAW = settings(deadline=None, max_examples=12)

BLOOM_STEP_S = 104.70
"""Measured: BigScience, tr11-176B-ml/chronicles.md, iteration 85376 of BLOOM's training, "elapsed time per iteration"."""
BLOOM_MEMORY_BYTES = 60e9
"""Of the same log, "about 60 GB" of each GPU."""
BLOOM_TFLOPS = 149.77
"""Of the same line: hardware TFLOP/s of a GPU at that step time."""


@pytest.mark.parametrize(
    ("t", "p", "d", "params", "states", "m", "bubble", "dp_bytes"),
    [
        (1, 6, 64, 29.33, 122.8, 16, 23.8, 115.50),
        (1, 24, 16, 7.33, 34.8, 64, 26.4, 27.50),
        (4, 12, 8, 3.67, 20.2, 128, 7.9, 12.83),
        (8, 6, 8, 3.67, 20.2, 128, 3.8, 12.83),
        (8, 24, 2, 0.92, 9.2, 512, 4.3, 1.83),
    ],
)
def test_the_lecture_gives_its_closed_forms(
    t: int, p: int, d: int, params: float, states: float, m: int, bubble: float, dp_bytes: float
) -> None:
    lecture = row("costs=lecture", t=t, p=p)
    held = 176e9 / (t * p)
    assert lecture["d"] == d
    assert lecture["num_microbatches"] == m == 2048 / (2 * d)
    assert lecture["params_per_gpu"] == pytest.approx(held, rel=1e-12)
    assert lecture["model_state_bytes"] == pytest.approx(held * (2 + 2 + 12 / d), rel=1e-12)
    assert lecture["bubble_fraction"] == pytest.approx((p - 1) / (m + p - 1), rel=1e-12)
    assert lecture["bubble_overhead"] == pytest.approx((p - 1) / m, rel=1e-12)
    assert lecture["dp_bytes_per_gpu"] == pytest.approx(2 * (d - 1) / d * 2 * held, rel=1e-12)
    assert lecture["fits"] == (held * (4 + 12 / d) <= 80e9) == (p != 6 or t != 1)
    # as printed
    assert round(lecture["params_per_gpu"] / 1e9, 2) == params
    assert round(lecture["model_state_bytes"] / 1e9, 1) == states
    assert round(100 * lecture["bubble_fraction"], 1) == bubble
    assert round(lecture["dp_bytes_per_gpu"] / 1e9, 2) == dp_bytes


def test_the_lecture_computes_at_the_peak_and_talks_for_free() -> None:
    lecture = row("costs=lecture")
    m, p = 128, 12
    one_s = 6 * 176e9 / 48 * 2 * 2048 / 312e12  # forward and backward of one micro-batch on one stage
    assert lecture["step_time_s"] == pytest.approx((m + p - 1) * one_s, rel=1e-12)
    assert lecture["matmul_s"] == pytest.approx(m * one_s, rel=1e-12)
    idle = (
        "tp_s", "cp_s", "ep_s", "vocab_s", "pp_exposed_s", "dp_exposed_s", "optimizer_s", "launch_s", "recompute_s", "fixed_s",
    )  # fmt: skip
    assert {lecture[item] for item in idle} == {0}
    assert lecture["mfu"] == pytest.approx(1 - lecture["bubble_fraction"], rel=1e-12)
    assert lecture["memory_bytes"] == lecture["model_state_bytes"]


def test_zero_and_pipelines_share_states_as_counted_by_hand() -> None:
    # (p, d, ZeRO) -> bytes over parameters: 16 / p, with ZeRO-1 4 / p + 12 / (p d)
    cuts = {(8, 1, 0): 2.0, (8, 1, 1): 2.0, (4, 2, 0): 4.0, (4, 2, 1): 2.5}
    for (p, d, zero), expected in cuts.items():
        states = row("costs=lecture", t=1, p=p, d=d, zero=zero)["model_state_bytes"]
        assert states / 176e9 == pytest.approx(expected, rel=1e-12)


def test_bloom_s_step_is_predicted_within_seven_percent_and_its_memory_within_five() -> None:
    bloom = row()
    assert bloom["step_time_s"] == pytest.approx(BLOOM_STEP_S, rel=0.07)
    assert bloom["memory_bytes"] == pytest.approx(BLOOM_MEMORY_BYTES, rel=0.05)


def test_bloom_s_measured_step_lies_in_the_interval_that_its_report_gives() -> None:
    bloom = row()
    assert bloom["step_time_lo_s"] < BLOOM_STEP_S < bloom["step_time_hi_s"]
    assert bloom["memory_lo_bytes"] < BLOOM_MEMORY_BYTES < bloom["memory_hi_bytes"]
    assert f"{bloom['step_time_hi_s']:.2f} s" in trust({"costs": "full", **bloom})


def test_bloom_s_hardware_flops_are_those_its_log_prints() -> None:
    bloom = row()
    assert bloom["hfu"] * 312 * bloom["step_time_s"] / BLOOM_STEP_S == pytest.approx(BLOOM_TFLOPS, abs=0.01)


def test_bloom_s_first_rank_holds_five_layers_and_the_table() -> None:
    bloom = row()
    assert bloom["stage_units"] == [6] * 12
    assert bloom["peak_inflight"] == list(range(12, 0, -1))
    assert bloom["heaviest_rank"] == 0
    assert bloom["gpus"] == 384
    # Shoeybi et al. 2019, section 3: matrices and column biases over t, norms and row biases whole
    h = 14336
    layer = (12 * h * h + 7 * h) / 4 + 6 * h
    assert bloom["params_per_gpu"] == 5 * layer + 250880 * h / 4 + 2 * h


def test_learned_positions_are_whole_on_every_tensor_rank() -> None:
    # Megatron-LM divides the token table by rows; its position table is an ordinary embedding
    gpt = row("model=gpt3_175b", "cluster=dgx_a100", "training=megatron", t=8, p=1, d=16)
    h = 12288
    layer = (12 * h * h + 7 * h) / 8 + 6 * h
    assert gpt["params_per_gpu"] == 96 * layer + 51200 * h / 8 + 2048 * h + 2 * h


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("model", ["gpt3_175b"])
def test_flops_of_a_gpt_equal_narayanan_s_formula(model: str, recompute: str) -> None:
    # Narayanan et al. 2021, equation 3: 96 B s l h^2 (1 + s / (6 h) + V / (16 l h)) with full recomputation
    gpt = row(f"model={model}", "cluster=dgx_a100", "training=megatron", t=8, p=8, d=16, recompute=recompute)
    shape = composed(f"model={model}").model
    layers, h, s, v = shape.layers, shape.hidden, 2048, shape.vocab
    tokens_per_s = gpt["tokens_per_s_per_gpu"]
    hardware = tokens_per_s * 96 * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h)) / 312e12
    model_flops = tokens_per_s * 72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h)) / 312e12
    assert gpt["mfu"] == pytest.approx(model_flops, rel=1e-12)
    assert gpt["hfu"] == pytest.approx(hardware if recompute == "full" else model_flops, rel=1e-12)
    assert gpt["model_tflops_per_gpu"] == pytest.approx(312 * model_flops, rel=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_every_model_evaluates_to_finite_numbers_above_nothing(name: str) -> None:
    each = row(*EVERY[name])
    numbers = {key: value for key, value in each.items() if isinstance(value, float)}
    assert all(math.isfinite(value) and value >= 0 for value in numbers.values()), numbers
    above = ("step_time_s", "memory_bytes", "matmul_s", "attention_s", "elementwise_s", "tokens_per_s", "optimizer_s")
    assert all(each[key] > 0 for key in above)
    assert 0 < each["mfu"] <= each["hfu"] < 1
    assert 0 <= each["bubble_fraction"] < 1
    for stage_s in ("stage_forward_s", "stage_input_grad_s", "stage_weight_grad_s"):
        assert all(math.isfinite(value) and value >= 0 for value in each[stage_s])
    assert each["status"] == "ok"


def test_only_a_mixture_exchanges_tokens_and_only_if_its_experts_are_spread() -> None:
    assert row(*MIXTRAL)["ep_s"] > 0
    assert row(*DEEPSEEK)["ep_s"] > 0
    assert row(*MIXTRAL, e=1)["ep_s"] == 0
    assert row()["ep_s"] == 0


@LAW
@given(p=st.sampled_from([1, 3, 4, 9]), m=st.integers(1, 24), schedule=st.sampled_from(["gpipe", "1f1b", "naive"]))
def test_the_row_s_timeline_is_its_makespan_and_the_rest_its_tail(p: int, m: int, schedule: str) -> None:
    each = row(*SMALL, t=2, p=p, d=1, micro_batch=1, global_batch=m, schedule=schedule)
    drawn, bound_s, idle_s = pipeline({**each, "p": p, "schedule": schedule})
    assert bound_s <= drawn.makespan_s * (1 + 1e-12)
    assert sum(idle_s.values()) == pytest.approx(p * drawn.makespan_s - drawn.busy_s.sum(), abs=1e-9)
    assert drawn.makespan_s == pytest.approx(each["makespan_s"], rel=1e-12)
    assert drawn.bubble_fraction == pytest.approx(each["bubble_fraction"], rel=1e-12, abs=1e-12)
    tail = each["dp_exposed_s"] + each["optimizer_s"] + each["fixed_s"]
    assert each["step_time_s"] == pytest.approx(each["makespan_s"] + tail, rel=1e-9)
    assert min(each[f"{item}_s"] for item in TIME_ITEMS) >= 0


@pytest.mark.parametrize("model", ["bloom_176b", "llama2_7b", "mixtral_8x7b", "gpt2_small", "toy"])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_parameters_over_the_ranks_are_the_model_s_and_a_tied_head_copy(model: str, p: int) -> None:
    asked = point(
        f"model={model}", "cluster=dgx_a100", "training=megatron", "stack=ideal",
        t=1, p=p, d=1, zero=0, micro_batch=1, global_batch=4, seq_length=1, recompute="full", attention="flash",
    )  # fmt: skip
    spec = asked.model
    # 18 bytes each: weights, gradients of 4 bytes, optimizer. Without activations nothing else is left on an ideal stack.
    batch = evaluate([legality.resolve(asked)])
    held = sum(batch.columns["rank_memory_bytes"][0])
    working = held - 18 * (total_parameters(spec) + (head_parameters(spec) if spec.tied_embeddings and p > 1 else 0))
    # what is left are the activations of one-token micro-batches: at most a few hundred hidden widths a layer
    assert 0 < working < 1e3 * spec.hidden * spec.layers * p


@LAW
@given(
    schedule=st.sampled_from(["gpipe", "1f1b", "naive"]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    p=st.sampled_from([1, 2, 4, 8, 17, 34]),
    m=st.integers(1, 40),
)
def test_every_rank_holds_what_the_simulated_order_keeps_in_flight(
    schedule: str, recompute: str, p: int, m: int
) -> None:
    asked = point(*SMALL, t=1, p=p, d=1, micro_batch=1, global_batch=m, schedule=schedule, recompute=recompute,
                  attention="unfused")  # fmt: skip
    one = dataclasses.replace(asked, training=dataclasses.replace(asked.training, global_batch=1))
    many, single = rows(asked, one)
    simulated = simulate(make_schedule(schedule, p=p, m=m))
    in_flight = [int(simulated.inflight(rank)[1].max()) for rank in range(p)]
    closed = {"gpipe": [m] * p, "1f1b": [min(p - rank, m) for rank in range(p)], "naive": [1] * p}
    assert many["peak_inflight"] == in_flight == closed[schedule]
    per_layer = layer_activation_bytes if recompute == "none" else recomputed_layer_bytes
    kept = float(per_layer(asked.model, points_of([legality.resolve(asked)]).cut, asked.stack, moe=False).squeeze())
    layers = list(many["stage_units"])
    layers[0] -= 1
    layers[-1] -= 1
    for rank in range(p):
        more = many["rank_memory_bytes"][rank] - single["rank_memory_bytes"][rank]
        held = (in_flight[rank] - 1) * layers[rank] * kept
        assert more == pytest.approx(held * (1 + asked.stack.slack), rel=1e-9, abs=16)


@pytest.mark.parametrize(("schedule", "held"), [("gpipe", [304] * 4), ("1f1b", [4, 3, 2, 1])])
def test_what_is_in_flight_of_very_many_micro_batches_is_counted_too(schedule: str, held: list[int]) -> None:
    # their orders are not made whole: the program of fewer repeats its bodies
    layout = {"t": 1, "p": 4, "d": 1, "micro_batch": 1, "recompute": "none", "attention": "unfused"}
    one, many = (
        row(*SMALL, global_batch=1, schedule=schedule, **layout),
        row(*SMALL, global_batch=304, schedule=schedule, **layout),
    )
    assert many["peak_inflight"] == held
    asked = legality.resolve(point(*SMALL, **layout, global_batch=1))
    kept = float(layer_activation_bytes(asked.model, points_of([asked]).cut, asked.stack, moe=False).squeeze())
    layers = [units - (rank in (0, 3)) for rank, units in enumerate(many["stage_units"])]
    for rank in range(4):
        more = many["rank_memory_bytes"][rank] - one["rank_memory_bytes"][rank]
        assert more == pytest.approx((held[rank] - 1) * layers[rank] * kept * (1 + asked.stack.slack), rel=1e-9, abs=16)


def test_memory_of_the_heaviest_rank_counts_as_by_hand() -> None:
    each = row(*SMALL, t=1, p=2, d=1, zero=0, micro_batch=1, global_batch=8, recompute="selective", attention="unfused")
    asked = legality.resolve(point(*SMALL, t=1, p=2, d=1, attention="unfused", recompute="selective"))
    whole, kept = (
        float(of(asked.model, points_of([asked]).cut, asked.stack, moe=False).squeeze())
        for of in (layer_activation_bytes, recomputed_layer_bytes)
    )
    assert each["heaviest_rank"] == 0
    assert each["activation_bytes"] == pytest.approx(2 * 16 * kept + (whole - kept), rel=1e-12)
    assert each["context_bytes"] == asked.stack.device_context_bytes
    assert (each["logits_bytes"], each["buffers_bytes"]) == (0, 0)
    counted = each["model_state_bytes"] + each["activation_bytes"]
    assert each["slack_bytes"] == pytest.approx(asked.stack.slack * counted, rel=1e-12)


def test_an_invalid_point_is_a_row_with_every_reason() -> None:
    (invalid,) = rows(point(t=5, p=7))
    assert invalid["status"] == "invalid"
    assert "parallel.t=5 x parallel.p=7 = 35 does not divide cluster.gpus=384" in invalid["reason"]
    assert "parallel.t=5 does not divide model.heads=112" in invalid["reason"]


def test_a_point_that_fails_costs_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    micro_batch = Axis(keys=("training.micro_batch",), values=tuple((b,) for b in (1, 2, 4, 8, 16)))
    space = Space(base=default(), axes=(micro_batch,))

    def explode(points: Points, details: bool) -> Any:
        if (points.cut.micro_batch == 4).any():
            raise ArithmeticError("boom")
        return evaluate_columns(points, details)

    whole = grid.evaluate([Slice(space, 0, 5)], details=True).to_pylist()
    monkeypatch.setattr(grid, "evaluate_columns", explode)
    rows = grid.evaluate([Slice(space, 0, 5)], details=True).to_pylist()
    assert [row["status"] == "failed" for row in rows] == [row["micro_batch"] == 4 for row in rows]
    assert [row["reason"] for row in rows if row["micro_batch"] == 4] == ["ArithmeticError: boom"]
    assert [row for row in rows if row["micro_batch"] != 4] == [row for row in whole if row["micro_batch"] != 4]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", schedule_names())
def test_numbers_of_micro_batches_together_are_each_alone_to_the_last_bit(schedule: str) -> None:
    # with few some ranks leave a copy of a stage idle: the orders of one batch do not all have the same stages
    asked = [
        point(*SMALL, schedule=schedule, t=1, p=p, v=stages_per_rank(schedule), d=1, micro_batch=1, global_batch=m)
        for p in (2, 4)
        for m in (1, 2, 3, 4, 8, 12, 31, 144, 176)
        if not problems(schedule, p, m)
    ]
    resolved = [legality.resolve(each) for each in asked]
    together, alone = evaluate(resolved), [evaluate([each]) for each in resolved]
    for name in ("seconds", "bytes", "columns"):
        for column, values in getattr(together, name).items():
            each = [getattr(one, name)[column][0] for one in alone]
            assert all(map(np.array_equal, values, each)), column


def test_a_misfit_says_which_rank_lacks_how_much_and_keeps_its_numbers() -> None:
    misfit = row(t=1, p=6)
    short = misfit["memory_bytes"] - 80e9
    assert misfit["status"] == "infeasible"
    assert not misfit["fits"]
    assert misfit["reason"] == (
        f"does not fit: rank {misfit['heaviest_rank']} needs {misfit['memory_bytes'] / 1e9:.1f} GB, "
        f"{short / 1e9:.1f} GB more than cluster.memory_gb=80."
    )
    assert misfit["verdict"] == "memory"
    assert misfit["step_time_s"] > 0


def test_what_fits_exactly_fits() -> None:
    needed = row()["memory_bytes"]
    exact, short = (row(memory_bytes=each) for each in (needed, math.nextafter(needed, 0)))
    assert (exact["fits"], exact["status"], exact["reason"]) == (True, "ok", None)
    assert (short["fits"], short["status"]) == (False, "infeasible")


@pytest.mark.parametrize(
    ("verdict", "overrides", "changes"),
    [
        ("compute", (), {}),
        ("bubble", (), {"global_batch": 16}),
        ("tp", SMALL, {"t": 32, "p": 1, "d": 1, "micro_batch": 1}),
        ("dp", SMALL, {"t": 1, "p": 1, "d": 256, "micro_batch": 1, "global_batch": 256, "seq_length": 64}),
        (
            "imbalance",
            SMALL,
            {"t": 1, "p": 4, "d": 1, "partition": (31, 1, 1, 1), "global_batch": 64, "memory_bytes": 1e15},
        ),
        ("memory", (), {"t": 1, "p": 6}),
    ],
)
def test_the_verdict_names_the_largest_share(verdict: str, overrides: tuple[str, ...], changes: dict[str, Any]) -> None:
    each = row(*overrides, **changes)
    assert each["verdict"] == verdict
    if verdict != "memory":
        shares = {"compute": sum(each[f"{item}_s"] for item in (*COMPUTE_ITEMS, "optimizer", "fixed"))}
        shares |= {
            "tp": each["tp_s"],
            "cp": each["cp_s"],
            "ep": each["ep_s"],
            "vocab": each["vocab_s"],
            "imbalance": each["imbalance_s"],
        }
        shares |= {"bubble": each["bubble_s"], "pp": each["pp_exposed_s"], "dp": each["dp_exposed_s"]}
        assert max(shares, key=lambda name: shares[name]) == verdict
        assert sum(shares.values()) == pytest.approx(each["step_time_s"])


def test_a_heavy_stage_bounds_the_efficiency() -> None:
    each = row(*SMALL, t=1, p=4, d=1, partition=(13, 7, 7, 7), global_batch=8, micro_batch=1, blocking_hops=False)
    names = ("stage_forward_s", "stage_input_grad_s", "stage_weight_grad_s")
    work_s = [sum(ops) for ops in zip(*(each[name] for name in names), strict=True)]
    assert each["imbalance"] == pytest.approx(max(work_s) / (sum(work_s) / 4), rel=1e-12)
    assert each["efficiency_bound"] == pytest.approx(1 / each["imbalance"], rel=1e-12)
    assert 1 - each["bubble_fraction"] <= each["efficiency_bound"]
    assert each["imbalance_s"] > 0


def test_equal_stages_have_the_published_bubble() -> None:
    # Narayanan et al. 2021, section 2.2; the middle of a deep pipeline without its ends
    each = row(*SMALL, "costs=lecture", t=1, p=2, d=1, micro_batch=1, global_batch=8)
    assert each["bubble_s"] == pytest.approx(1 / 8 * each["matmul_s"], rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_a_data_parallel_step_sends_gradients_and_fetches_weights(zero: int) -> None:
    # Rajbhandari et al. 2020, section 7: a reduce-scatter and an all-gather, (d - 1) / d of all parameters each.
    # Reduced are gradients, reduce_bytes each. Without ZeRO they are gathered too, with it the 2-byte weights.
    for reduce_bytes in (2, 4):
        each = row(*SMALL, t=1, p=1, d=8, zero=zero, micro_batch=1, global_batch=8, reduce_bytes=reduce_bytes)
        gathered_bytes = 2 if zero else reduce_bytes
        expected = 7 / 8 * 6_738_415_616 * (reduce_bytes + gathered_bytes)
        assert each["dp_bytes_per_gpu"] == pytest.approx(expected, rel=1e-12), (zero, reduce_bytes)


@pytest.mark.parametrize(("zero", "gathers"), [(0, 0), (1, 1), (2, None), (3, None)])
def test_a_stack_that_reduces_whole_gradients_sends_an_all_reduce_and_fetches_weights(
    zero: int, gathers: int | None
) -> None:
    # DeepSpeed's BF16_Optimizer: 2 (d - 1) / d of all fp32 sums, then the 2-byte weights; ZeRO-2 and 3 reduce to shards
    asked = {"t": 1, "p": 1, "d": 8, "zero": zero, "micro_batch": 1, "global_batch": 8}
    whole, shard = (row(*SMALL, **asked, reduce_bytes=4, reduces_whole=each) for each in (True, False))
    if gathers is None:
        assert whole["dp_bytes_per_gpu"] == shard["dp_bytes_per_gpu"]
    else:
        expected = 7 / 8 * 6_738_415_616 * (2 * 4 + 2 * gathers)
        assert whole["dp_bytes_per_gpu"] == pytest.approx(expected, rel=1e-12)


def test_zero_3_fetches_weights_twice_and_reduces_once_for_every_micro_batch() -> None:
    # Rajbhandari et al. 2020, section 7.2.2: 3 / 2 of plain data parallelism, here repeated m times
    for reduce_bytes in (2, 4):
        each = row(*SMALL, t=1, p=1, d=8, zero=3, micro_batch=1, global_batch=32, reduce_bytes=reduce_bytes)
        expected = 4 * 7 / 8 * 6_738_415_616 * (2 + 2 + reduce_bytes)
        assert each["dp_bytes_per_gpu"] == pytest.approx(expected, rel=1e-12), reduce_bytes


@pytest.mark.parametrize(("p", "reductions"), [(1, 4), (4, 1)])
def test_zero_2_reduces_every_micro_batch_but_in_a_pipeline_and_fetches_weights_once(p: int, reductions: int) -> None:
    one, two = (
        row(*SMALL, t=1, p=p, d=8, zero=zero, micro_batch=1, global_batch=32, reduce_bytes=4) for zero in (1, 2)
    )
    expected = one["dp_bytes_per_gpu"] * (reductions * 4 + 2) / (4 + 2)
    assert two["dp_bytes_per_gpu"] == pytest.approx(expected, rel=1e-12)
    undivided = one["gradients_bytes"] - two["gradients_bytes"]
    assert two["buffers_bytes"] == pytest.approx(undivided if p > 1 else 0.0)


def test_neighbour_stages_exchange_an_activation_and_its_gradient() -> None:
    each = row(*SMALL, t=1, p=4, d=1, micro_batch=2, global_batch=16, sequence_parallel=False)
    message = 2 * 4096 * 4096 * 2
    assert each["pp_bytes_per_gpu"] == 8 * 2 * message  # an inner rank sends one forward and one back
    assert row(*SMALL, t=1, p=1, d=1)["pp_bytes_per_gpu"] == 0


def test_tensor_ranks_send_four_all_reduces_a_layer_and_six_with_full_recomputation() -> None:
    for recompute, all_reduces in (("none", 4), ("selective", 4), ("full", 6)):
        each = row(*SMALL, t=4, p=1, d=1, micro_batch=1, global_batch=8, recompute=recompute)
        ring = 2 * 3 / 4 * 4096 * 4096 * 2
        assert each["tp_bytes_per_gpu"] == pytest.approx(8 * 32 * all_reduces * ring, rel=1e-12)


def test_tensor_groups_that_do_not_divide_a_node_talk_over_the_network() -> None:
    # Ranks 7 to 13 of groups of seven lie on two nodes of eight, and the slowest group decides.
    asked = point(t=7, p=6, d=9, global_batch=18 * 8)
    slower = with_cluster(asked, inter_node=wider(asked.cluster.inter_node, 0.1))
    fast, slow = rows(asked, slower)
    assert slow["tp_s"] > fast["tp_s"]
