"""Laws of the cost model: items add up, alone means silent, and no input moves a result the wrong way."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import EVERY, SMALL, composed, point, row, rows, wider, with_cluster

from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.specs import Point

LAW = settings(deadline=None, max_examples=25)
SLACK = 1 + 1e-12
"""Sums of one order and another differ in the last bits."""

LAYOUTS = st.fixed_dictionaries(
    {
        "t": st.sampled_from([1, 2, 4, 8, 16]),
        "p": st.sampled_from([1, 2, 3, 6]),
        "d": st.sampled_from([1, 2, 4, 16]),
        "c": st.sampled_from([1, 2]),
        "zero": st.integers(0, 3),
        "recompute": st.sampled_from(["none", "selective", "operators", "full"]),
        "micro_batch": st.sampled_from([1, 2]),
        "global_batch": st.just(128),
        "blocking_hops": st.booleans(),
        "dp_overlap": st.sampled_from([0.0, 0.5, 1.0]),
        "schedule": st.sampled_from(["1f1b", "gpipe", "zb_h1"]),
    }
)


@pytest.mark.parametrize("name", EVERY)
def test_items_add_up_to_their_totals_exactly(name: str) -> None:
    each = row(*EVERY[name])
    assert sum(each[f"{item}_s"] for item in TIME_ITEMS) == each["step_time_s"]
    assert sum(each[f"{item}_bytes"] for item in MEMORY_ITEMS) == each["memory_bytes"]
    states = each["weights_bytes"] + each["gradients_bytes"] + each["optimizer_bytes"]
    assert states == each["model_state_bytes"]
    assert each["memory_bytes"] == max(each["rank_memory_bytes"])
    assert each["rank_memory_bytes"].index(each["memory_bytes"]) == each["heaviest_rank"]
    asked = composed(*EVERY[name])
    tokens = asked.training.global_batch * (asked.training.seq_length or asked.model.context)
    assert each["tokens_per_s"] == pytest.approx(tokens / each["step_time_s"], rel=1e-12)
    assert each["tokens_per_s_per_gpu"] * each["gpus"] == pytest.approx(each["tokens_per_s"], rel=1e-12)


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_items_of_any_layout_add_up_and_none_is_negative(layout: dict[str, Any]) -> None:
    each = row(*SMALL, **layout)
    seconds, held = [each[f"{item}_s"] for item in TIME_ITEMS], [each[f"{item}_bytes"] for item in MEMORY_ITEMS]
    assert min(*seconds, *held) >= 0
    assert (sum(seconds), sum(held)) == (each["step_time_s"], each["memory_bytes"])
    assert each["memory_bytes"] == pytest.approx(max(each["rank_memory_bytes"]), rel=1e-12)  # summed in another order


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_who_is_alone_talks_to_nobody_and_waits_for_nobody(layout: dict[str, Any]) -> None:
    each = row(*SMALL, **layout)
    alone = {"tp_s": "t", "cp_s": "c", "pp_exposed_s": "p", "imbalance_s": "p"}
    for item, degree in alone.items():
        assert layout[degree] > 1 or each[item] == 0, item
    assert layout["p"] > 1 or each["bubble_s"] <= 1e-12 * each["step_time_s"]
    assert layout["d"] * layout["c"] > 1 or each["dp_exposed_s"] == each["dp_bytes_per_gpu"] == 0
    assert each["ep_s"] == 0
    assert layout["t"] > 1 or each["tp_bytes_per_gpu"] == 0
    assert layout["p"] > 1 or each["pp_bytes_per_gpu"] == 0


FASTER: dict[str, Callable[[Point, float], Point]] = {
    "peak": lambda at, by: with_cluster(
        at, peak_flops_per_s={k: v * by for k, v in at.cluster.peak_flops_per_s.items()}
    ),
    "memory bandwidth": lambda at, by: with_cluster(at, hbm_bytes_per_s=at.cluster.hbm_bytes_per_s * by),
    "links in a node": lambda at, by: with_cluster(at, intra_node=wider(at.cluster.intra_node, by)),
    "network": lambda at, by: with_cluster(at, inter_node=wider(at.cluster.inter_node, by)),
    "latencies": lambda at, by: with_cluster(
        at,
        intra_node=dataclasses.replace(at.cluster.intra_node, latency_s=at.cluster.intra_node.latency_s / by),
        inter_node=dataclasses.replace(at.cluster.inter_node, latency_s=at.cluster.inter_node.latency_s / by),
    ),
    "host": lambda at, by: dataclasses.replace(
        at,
        stack=dataclasses.replace(
            at.stack, forward_launch_s=at.stack.forward_launch_s / by, backward_launch_s=at.stack.backward_launch_s / by
        ),
    ),
}


@pytest.mark.parametrize("what", FASTER)
@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, by=st.floats(1, 8))
def test_a_better_machine_is_never_slower(what: str, layout: dict[str, Any], by: float) -> None:
    asked = point(*SMALL, **layout)
    before, after = rows(asked, FASTER[what](asked, by))
    assert after["step_time_s"] <= before["step_time_s"] * SLACK
    assert after["memory_bytes"] == before["memory_bytes"]


@pytest.mark.parametrize("what", ["peak", "memory bandwidth", "links in a node", "network"])
def test_bloom_is_faster_on_a_better_machine(what: str) -> None:
    before, after = rows(point(), FASTER[what](point(), 2))
    assert after["step_time_s"] < before["step_time_s"]


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, memory_gb=st.floats(1, 200), more=st.floats(1, 10))
def test_more_memory_never_turns_a_fit_into_a_misfit(layout: dict[str, Any], memory_gb: float, more: float) -> None:
    small, large = rows(*(point(*SMALL, **layout, memory_bytes=gb * 1e9) for gb in (memory_gb, memory_gb * more)))
    assert large["fits"] >= small["fits"]
    assert large["memory_bytes"] == small["memory_bytes"]
    assert large["step_time_s"] == small["step_time_s"]
    for each in (small, large):
        assert each["fits"] == (each["memory_bytes"] <= each["memory_limit_bytes"]) == (each["status"] == "ok")


MORE: dict[str, Callable[[Point, int], Point]] = {
    "sequences in a step": lambda at, by: _training(at, global_batch=at.training.global_batch * by),
    "tokens in a sequence": lambda at, by: _training(at, seq_length=at.model.context * by),
    "layers": lambda at, by: _model(at, layers=at.model.layers + by),
    "vocabulary": lambda at, by: _model(at, vocab=at.model.vocab * by),
    "width of the MLP": lambda at, by: _model(at, ffn=at.model.ffn * by),
    "heads": lambda at, by: _model(at, heads=at.model.heads * by, kv_heads=at.model.kv_heads * by),
}


def _training(at: Point, **changes: Any) -> Point:
    return dataclasses.replace(at, training=dataclasses.replace(at.training, **changes))


def _model(at: Point, **changes: Any) -> Point:
    return dataclasses.replace(at, model=dataclasses.replace(at.model, **changes))


@pytest.mark.parametrize("what", MORE)
@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, by=st.integers(2, 5))
def test_more_work_never_takes_less_time_or_memory(what: str, layout: dict[str, Any], by: int) -> None:
    asked = point(*SMALL, **layout)
    less, more = rows(asked, MORE[what](asked, by))
    assert more["step_time_s"] * SLACK >= less["step_time_s"]
    assert more["memory_bytes"] * SLACK >= less["memory_bytes"]


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_a_higher_zero_stage_never_holds_more_states(layout: dict[str, Any]) -> None:
    stages = [row(*SMALL, **layout | {"zero": zero}) for zero in range(4)]
    for lower, higher in itertools.pairwise(stages):
        assert higher["model_state_bytes"] <= lower["model_state_bytes"] * SLACK
    whole = [each["memory_bytes"] - (1 + composed(*SMALL).stack.slack) * each["buffers_bytes"] for each in stages]
    assert all(higher <= lower * SLACK for lower, higher in itertools.pairwise(whole))
    divided = layout["d"] * layout["c"] > 1
    sums_stay = divided and layout["p"] > 1 and stages[0]["num_microbatches"] > 1
    assert [each["buffers_bytes"] > 0 for each in stages] == [False, False, sums_stay, divided]


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_recomputing_more_never_holds_more_and_never_takes_less_time(layout: dict[str, Any]) -> None:
    shape = layout | {"attention": "unfused"}
    by = {each: row(*SMALL, **shape | {"recompute": each}) for each in ("none", "selective", "operators", "full")}
    for less, more in (("none", "selective"), ("none", "operators"), ("selective", "full"), ("operators", "full")):
        assert by[more]["memory_bytes"] <= by[less]["memory_bytes"] * SLACK
        assert by[more]["step_time_s"] * SLACK >= by[less]["step_time_s"]
        assert by[more]["hfu"] / by[more]["mfu"] * SLACK >= by[less]["hfu"] / by[less]["mfu"]
    assert by["none"]["recompute_s"] == 0
    assert by["none"]["hfu"] == by["none"]["mfu"]


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, layers=st.integers(0, 40), recompute=st.sampled_from(["selective", "operators", "full"]))
def test_recomputing_some_layers_lies_between_none_and_all(layout: dict[str, Any], layers: int, recompute: str) -> None:
    shape = layout | {"recompute": recompute, "attention": "unfused"}
    none, some, every = (row(*SMALL, **shape, recompute_layers=each) for each in (0, layers, None))
    assert none["step_time_s"] <= some["step_time_s"] * SLACK <= every["step_time_s"] * SLACK**2
    assert every["memory_bytes"] <= some["memory_bytes"] * SLACK
    if layers >= max(some["stage_units"]):
        assert {**some, "warning": None} == {**every, "warning": None}  # of frameworks that count no layers
    plain = row(*SMALL, **shape | {"recompute": "none"})
    for item in ("step_time_s", "memory_bytes", "hfu"):
        assert none[item] == pytest.approx(plain[item], rel=1e-12)


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_steps_that_need_not_wait_for_the_slowest_rank_are_never_longer(layout: dict[str, Any]) -> None:
    waiting, running = (row(*SMALL, **layout, optimizer_barrier=each) for each in (True, False))
    assert running["step_time_s"] <= waiting["step_time_s"] * SLACK
    assert running["memory_bytes"] == waiting["memory_bytes"]


@pytest.mark.slow
@LAW
@given(m=st.integers(1, 32), more=st.integers(1, 32), schedule=st.sampled_from(["1f1b", "gpipe"]))
def test_more_micro_batches_never_enlarge_the_bubble_fraction(m: int, more: int, schedule: str) -> None:
    few, many = (
        row(*SMALL, t=1, p=4, d=1, micro_batch=1, global_batch=size, schedule=schedule) for size in (m, m + more)
    )
    assert many["bubble_fraction"] <= few["bubble_fraction"] + 1e-12


def test_model_flops_do_not_depend_on_the_cut() -> None:
    # MFU is model FLOPs over peak: at the same tokens per second it is the same for every cut and recipe
    ratios = [
        each["mfu"] / each["tokens_per_s_per_gpu"]
        for each in (
            row(), row(t=8, p=6), row(recompute="none"), row(zero=3), row(t=2, p=24, micro_batch=1),
        )
    ]  # fmt: skip
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-12)
