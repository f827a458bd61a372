"""What each fix could gain at most is what no estimate of a fixed configuration beats."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import EVERY, MIXTRAL, SMALL, point, row, rows, with_cluster

from pipesim.specs import LinkSpec, Point

LAW = settings(deadline=None, max_examples=25)

LAYOUTS = st.fixed_dictionaries(
    {
        "t": st.sampled_from([1, 2, 8]), "p": st.sampled_from([1, 2, 4]), "d": st.sampled_from([1, 4, 16]),
        "c": st.sampled_from([1, 2]), "zero": st.integers(0, 3), "micro_batch": st.sampled_from([1, 2]),
        "recompute": st.sampled_from(["none", "selective", "operators", "full"]), "attention": st.just("unfused"),
        "sequence_parallel": st.booleans(), "blocking_hops": st.booleans(), "dp_overlap": st.sampled_from([0.0, 0.5]),
        "optimizer_barrier": st.booleans(),
        "schedule": st.sampled_from(["1f1b", "gpipe", "naive", "zb_h1", "zbv", "interleaved_1f1b", "dualpipe", "seq1f1b"]),
    }
)  # fmt: skip


def shape(layout: dict[str, Any]) -> dict[str, Any]:
    if layout["p"] == 1:
        layout = layout | {"schedule": "1f1b"}
    return layout | {"global_batch": 256, "gpus": 4096, "v": None}


def gain(before: dict[str, Any], fix: str) -> float:
    return float(json.loads(before["fixes"]).get(fix, 0.0))


def stands(before: dict[str, Any], after: dict[str, Any], fix: str) -> None:
    assert before["step_time_s"] - after["step_time_s"] <= gain(before, fix) + 1e-9 * before["step_time_s"]


def changed(at: Point, part: str, **changes: Any) -> Point:
    return dataclasses.replace(at, **{part: dataclasses.replace(getattr(at, part), **changes)})


def free_talk(at: Point) -> Point:
    nothing = LinkSpec(bandwidth_bytes_per_s=1e30, latency_s=0.0)
    at = with_cluster(at, intra_node=nothing, inter_node=nothing, network_decay=0.0)
    return changed(changed(at, "costs", collective_start_s=0.0), "stack", hop_start_s=0.0)


FIXED = {
    "recompute": lambda at: changed(at, "training", recompute="none"),
    "tp": lambda at: changed(at, "stack", tp_overlap=1.0),
    "dp": lambda at: changed(at, "stack", dp_overlap=1.0, gather_overlap=1.0, gather_interference=0.0),
    "launch": lambda at: changed(at, "stack", forward_launch_s=0.0, backward_launch_s=0.0),
    "all communication": free_talk,
}


@pytest.mark.parametrize("model", ["llama", "mixtral"])
@pytest.mark.parametrize("fix", FIXED)
@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_no_real_fix_gains_more(fix: str, model: str, layout: dict[str, Any]) -> None:
    asked = point(*EVERY[model], **shape(layout) | {"e": 4 if model == "mixtral" and layout["d"] > 1 else 1})
    before, after = rows(asked, FIXED[fix](asked))
    assert before["status"] in ("ok", "infeasible"), before["reason"]
    stands(before, after, fix)


@pytest.mark.parametrize("fix", FIXED)
@pytest.mark.parametrize("name", ["bloom", "deepseek"])
def test_a_fix_of_a_large_run_gains_most_of_what_is_said(name: str, fix: str) -> None:
    asked = point(*EVERY[name])
    before, after = rows(asked, FIXED[fix](asked))
    stands(before, after, fix)
    if fix in ("recompute", "all communication"):
        assert before["step_time_s"] - after["step_time_s"] >= 0.7 * gain(before, fix)


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_no_larger_batch_and_no_other_schedule_saves_more_than_the_bubble(layout: dict[str, Any]) -> None:
    asked = shape(layout) | {"optimizer_barrier": True}
    before, longer = rows(point(*SMALL, **asked), point(*SMALL, **asked | {"global_batch": 256 * 16}))
    tail = ("dp_exposed_s", "optimizer_s", "fixed_s")
    pipelines = [each["step_time_s"] - sum(each[item] for item in tail) for each in (before, longer)]
    assert pipelines[0] - pipelines[1] / 16 <= gain(before, "bubble") + 1e-9 * pipelines[0]
    if layout["schedule"] in ("gpipe", "naive"):
        stands(before, row(*SMALL, **asked | {"schedule": "1f1b"}), "bubble")


@pytest.mark.slow
@LAW
@given(
    layout=LAYOUTS,
    parts=st.permutations([13, 9, 7, 5]),
    schedule=st.sampled_from(["1f1b", "gpipe", "zb_h1"]),
)  # fmt: skip
def test_no_balanced_partition_gains_more(layout: dict[str, Any], parts: list[int], schedule: str) -> None:
    asked = shape(layout) | {"p": 4, "schedule": schedule}
    before = row(*SMALL, **asked, partition=tuple(parts))
    assert gain(before, "imbalance") > 0
    for better in ("balanced", (9, 8, 8, 9), (9, 9, 8, 8), (8, 9, 9, 8)):
        stands(before, row(*SMALL, **asked, partition=better), "imbalance")


def test_a_step_alone_on_one_gpu_gains_nothing_from_talking_less() -> None:
    only = json.loads(row(*EVERY["toy"])["fixes"])
    assert set(only) <= {"launch", "recompute"}


def test_gains_are_counted_by_hand_where_stages_are_equal() -> None:
    # A spread vocabulary makes both stages equal: m + 1 micro-batches one after the other lose their recomputation
    found = row(*SMALL, t=1, p=2, d=1, micro_batch=1, global_batch=8, recompute="full", spread_vocab="algorithm_2",
                blocking_hops=False, schedule="1f1b")  # fmt: skip
    assert gain(found, "recompute") == pytest.approx(found["recompute_s"] / 8 * 9 + found["pp_exposed_s"], rel=1e-9)
    assert gain(found, "bubble") == pytest.approx(found["bubble_s"] + found["pp_exposed_s"], rel=1e-9)
    assert math.isclose(gain(found, "pp"), found["pp_exposed_s"])


def test_experts_that_talk_for_free_gain_their_all_to_alls_at_most() -> None:
    before = row(*MIXTRAL)
    assert before["ep_s"] < gain(before, "cp and ep") < before["step_time_s"]
