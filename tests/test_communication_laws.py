"""Laws of communication over layouts of every kind: better links are never slower, more to send never faster."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import MIXTRAL, SMALL, point, row, rows, wider, with_cluster

from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.specs import LinkSpec, Point

LAW = settings(deadline=None, max_examples=25)
SLACK = 1 + 1e-12

LAYOUTS = st.fixed_dictionaries(
    {
        "t": st.sampled_from([1, 2, 8, 16]), "p": st.sampled_from([1, 2, 4]), "d": st.sampled_from([4, 8, 32]),
        "c": st.sampled_from([1, 2, 4]), "e": st.sampled_from([1, 2, 4]), "v": st.sampled_from([1, 2]),
        "zero": st.integers(0, 3), "shard": st.sampled_from([None, 4]), "sequence_parallel": st.booleans(),
        "context": st.sampled_from(["ring", "all_gather", "ulysses"]),
        "rank_order": st.sampled_from(["tcdp", "tcpd", "dctp", "ptcd"]),
        "recompute": st.sampled_from(["none", "selective", "operators", "full"]),
        "attention": st.sampled_from(["unfused", "flash"]),
        "blocking_hops": st.booleans(), "tp_overlap": st.sampled_from([0.0, 0.5]), "dp_overlap": st.sampled_from([0.0, 0.7]),
    }
)  # fmt: skip


def asked(layout: dict[str, Any], **changes: Any) -> Point:
    fixed: dict[str, Any] = {"micro_batch": 1, "global_batch": 128, "gpus": 2**14}
    if layout["zero"] == 0:
        fixed["shard"] = None
    fixed["v"] = layout["v"] if layout["p"] > 1 else 1
    fixed["schedule"] = "interleaved_1f1b" if fixed["v"] > 1 else "1f1b"
    if layout["context"] == "ulysses":
        fixed["c"] = min(layout["c"], 32 // layout["t"])
    return point(*MIXTRAL, **layout | fixed | changes)


def estimated(*points: Point) -> list[dict[str, Any]]:
    found = rows(*points)
    assert {each["status"] for each in found} <= {"ok", "infeasible"}, [each["reason"] for each in found]
    return found


def sooner(link: LinkSpec, by: float) -> LinkSpec:
    return dataclasses.replace(link, latency_s=link.latency_s / by)


BETTER: dict[str, Callable[[Point, float], Point]] = {
    "intra-node bandwidth": lambda at, by: with_cluster(at, intra_node=wider(at.cluster.intra_node, by)),
    "inter-node bandwidth": lambda at, by: with_cluster(at, inter_node=wider(at.cluster.inter_node, by)),
    "intra-node latency": lambda at, by: with_cluster(at, intra_node=sooner(at.cluster.intra_node, by)),
    "inter-node latency": lambda at, by: with_cluster(at, inter_node=sooner(at.cluster.inter_node, by)),
    "memory bandwidth": lambda at, by: with_cluster(at, hbm_bytes_per_s=at.cluster.hbm_bytes_per_s * by),
    "peak": lambda at, by: with_cluster(
        at, peak_flops_per_s={k: v * by for k, v in at.cluster.peak_flops_per_s.items()}
    ),
}
"""What takes less time leaves less to hide behind: the step is no slower as a whole, exposed gradients may be more."""


@pytest.mark.parametrize("what", BETTER)
@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, by=st.floats(1, 10))
def test_a_better_machine_is_never_slower_for_any_layout(what: str, layout: dict[str, Any], by: float) -> None:
    base = asked(layout)
    before, after = estimated(base, BETTER[what](base, by))
    assert after["step_time_s"] <= before["step_time_s"] * SLACK
    if what not in ("memory bandwidth", "peak"):
        assert all(after[item] <= before[item] * SLACK for item in ("tp_s", "cp_s", "ep_s"))


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS, by=st.sampled_from([2, 4]))
def test_larger_messages_are_never_faster(layout: dict[str, Any], by: int) -> None:
    base = asked(layout)
    larger = dataclasses.replace(base.stack, reduce_bytes=base.stack.reduce_bytes * by)
    tokens = dataclasses.replace(base.training, micro_batch=by, global_batch=base.training.global_batch * by)
    before, gradients, activations = estimated(
        base, dataclasses.replace(base, stack=larger), dataclasses.replace(base, training=tokens)
    )
    assert gradients["dp_exposed_s"] * SLACK >= before["dp_exposed_s"]
    assert gradients["dp_bytes_per_gpu"] >= before["dp_bytes_per_gpu"]
    for item in ("tp_s", "ep_s", "pp_bytes_per_gpu", "tp_bytes_per_gpu"):
        assert activations[item] * SLACK >= before[item]


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_more_recomputation_is_never_faster(layout: dict[str, Any]) -> None:
    none, selective, full = estimated(*(asked(layout | {"recompute": each}) for each in ("none", "selective", "full")))
    shapes = [
        [sum(each[f"stage_{op}_s"]) for op in ("forward", "input_grad", "weight_grad")]
        for each in (none, selective, full)
    ]
    for less, more in ((0, 1), (1, 2)):
        assert all(a <= b * SLACK for a, b in zip(shapes[less], shapes[more], strict=True))
    assert none["makespan_s"] <= selective["makespan_s"] * SLACK <= full["makespan_s"] * SLACK**2


@pytest.mark.slow
@LAW
@given(layout=LAYOUTS)
def test_items_of_any_layout_sum_to_its_totals_and_every_exchange_has_its_own(layout: dict[str, Any]) -> None:
    (found,) = estimated(asked(layout))
    seconds = [found[f"{item}_s"] for item in TIME_ITEMS]
    assert min(seconds) >= 0
    assert sum(seconds) == found["step_time_s"]
    assert sum(found[f"{item}_bytes"] for item in MEMORY_ITEMS) == found["memory_bytes"]
    listed = {line[0] for line in json.loads(found["communication"])}
    items = {"tp": "tp_s", "cp": "cp_s", "ep": "ep_s", "pp": "pp_exposed_s", "dp": "dp_exposed_s"}
    for dimension, item in items.items():
        assert dimension in listed or found[item] == 0, dimension
    assert {"tp", "ep"} & listed == {key for key in ("tp", "ep") if found[items[key]] > 0}


HSDP: dict[str, Any] = {
    "t": 1, "p": 1, "d": 32, "shard": 8, "micro_batch": 1, "global_batch": 128, "recompute": "none", "gather_overlap": 1.0,
    "gather_interference": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(("zero", "tokens"), [(1, 64), (3, 3072)])
def test_replicas_of_shards_reduce_behind_what_the_shards_leave_of_the_last_backward(zero: int, tokens: int) -> None:
    # All that fits hides: a long backward hides both, a short one neither whole, and a share is a share of what fits
    def exposed_s(**changes: Any) -> float:
        return float(row(*SMALL, **HSDP | {"zero": zero} | changes)["dp_exposed_s"])

    assert exposed_s(dp_overlap=1.0, seq_length=16384) == pytest.approx(0, abs=1e-12)
    short = {"seq_length": tokens}
    whole_s, rest_s = exposed_s(dp_overlap=0.0, **short), exposed_s(dp_overlap=1.0, **short)
    backward_s = sum(
        sum(row(*SMALL, **HSDP, zero=zero, **short)[f"stage_{op}_s"]) for op in ("input_grad", "weight_grad")
    )
    assert 0 < whole_s - rest_s <= backward_s * SLACK
    assert exposed_s(dp_overlap=0.5, **short) == pytest.approx((whole_s + rest_s) / 2, rel=1e-9)


def test_one_group_of_shards_has_no_replicas_to_reduce_with() -> None:
    whole, one = (row(*SMALL, **HSDP | {"shard": each}, zero=1) for each in (None, 32))
    assert whole["dp_exposed_s"] == one["dp_exposed_s"]
    assert whole["communication"] == one["communication"]
