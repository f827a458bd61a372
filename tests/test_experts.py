"""What tokens send to their experts: laws, and right values of DeepSeek-V3."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import SMALL, point, row, rows

from pipesim.checks import Invalid
from pipesim.costs.collectives import relayed_all_to_all_s, relayed_bytes
from pipesim.costs.experts import reached, reached_nodes
from pipesim.costs.topology import Group, Link
from pipesim.specs import Moe

LAW = settings(deadline=None, max_examples=50)
DEEPSEEK = ("model=deepseek_v3", "cluster=dgx_h100", "parallel=megatron", "training=megatron", "stack=megatron_lm")
SHAPE: dict[str, Any] = {
    "t": 1, "p": 16, "e": 64, "micro_batch": 1, "global_batch": 1024, "gpus": 1024, "sequence_parallel": False,
    "seq_length": 4096, "precision": "fp8", "schedule": "1f1b", "recompute": "none",
}  # fmt: skip
V3 = Moe(experts=256, top_k=8, ffn=2048, groups=8, group_limit=4)


def sent(*overrides: str, **changes: Any) -> list[list[Any]]:
    """The table's lines of expert parallelism without its times: kind, …, bytes of one message, bytes sent for one."""
    table = json.loads(row(*DEEPSEEK, *overrides, **SHAPE | changes)["communication"])
    return [[line[1], line[6], line[7] / line[5]] for line in table if line[0] == "ep"]


def own_s(*overrides: str, **changes: Any) -> float:
    return float(row(*DEEPSEEK, *overrides, **SHAPE | changes)["ep_s"])


@pytest.mark.parametrize(("experts", "top_k", "places"), [(8, 2, 2), (8, 2, 8), (8, 3, 4), (6, 5, 2), (4, 4, 1)])
def test_a_token_reaches_as_many_places_as_its_experts_lie_on(experts: int, top_k: int, places: int) -> None:
    of = [len({i * places // experts for i in chosen}) for chosen in itertools.combinations(range(experts), top_k)]
    found = reached(Moe(experts=experts, top_k=top_k, ffn=1), places)
    assert float(found) == pytest.approx(np.mean(of), rel=1e-9)


@pytest.mark.parametrize(("nodes", "most"), [(1, 1), (2, 2), (4, 4), (8, 4), (16, 8)])
def test_groups_of_experts_limit_the_nodes(nodes: int, most: int) -> None:
    # DeepSeek-V3: 4 of 8 groups, one on each of 8 nodes; on 16 nodes each takes two
    free = dataclasses.replace(V3, groups=1, group_limit=1)
    assert float(reached_nodes(V3, nodes)) == pytest.approx(min(most, float(reached(free, nodes))))
    assert float(reached_nodes(free, nodes)) == pytest.approx(float(reached(free, nodes)))


@LAW
@given(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 16), st.sampled_from([1, 2, 4, 8, 16]))
def test_more_groups_allowed_never_reach_fewer_nodes_and_as_many_as_experts_are_no_limit(
    groups: int, top_k: int, nodes: int
) -> None:
    least = -(-top_k * groups // 64)
    found = [
        float(reached_nodes(Moe(experts=64, top_k=top_k, ffn=1, groups=groups, group_limit=limit), nodes))
        for limit in range(least, groups + 1)
    ]
    assert found == sorted(found)
    assert 1 - 1e-9 <= found[0] <= min(top_k, nodes) + 1e-9
    free = float(reached(Moe(experts=64, top_k=top_k, ffn=1), nodes))
    assert all(each == pytest.approx(free, rel=1e-9) for limit, each in enumerate(found, least) if limit >= top_k)


@LAW
@given(st.floats(1, 1e9), st.sampled_from([1, 2, 8]), st.sampled_from([1, 2, 16]), st.floats(0, 1))
def test_a_relayed_message_crosses_the_network_once_and_costs_its_slower_link(
    message: float, inside: int, nodes: int, crossing: float
) -> None:
    within, between = Link(450e9, 0.0), Link(40e9, 0.0)
    group = Group(inside * nodes, inside, np.asarray(nodes > 1), 1.0, between, within, between)
    handed_on, crossed = relayed_bytes(message, group, crossing)
    assert handed_on == pytest.approx(message * (inside - 1) / inside)
    assert crossed == pytest.approx(message * crossing * (nodes - 1) / nodes)
    found = float(np.squeeze(relayed_all_to_all_s(message, group, crossing)))
    assert found == pytest.approx(max(handed_on / 450e9, crossed / 40e9))


def test_deepseek_sends_eight_copies_of_a_token_or_one_to_each_of_four_nodes() -> None:
    # 4,096 tokens of 7,168 elements of 2 bytes; 8 copies, of which 63 of 64 go to other ranks
    token = 4096 * 7168 * 2
    assert sent() == [["all-to-all", 8 * token, 8 * token * 63 / 64]]
    (line,) = sent(relayed_dispatch=True)
    copies = float(reached(V3, 64))  # ranks that hold one of its 8 experts
    assert line[:2] == ["relayed all-to-all", pytest.approx(copies * token)]
    assert line[2] == pytest.approx((copies * 7 / 8 + 4 * 7 / 8) * token)


def test_tokens_travel_in_fp8_with_their_scales_and_come_back_in_16_bits() -> None:
    there, back = sent(fp8_dispatch=True)
    assert there[1] / back[1] == pytest.approx((1 + 4 / 128) / 2)
    assert sent(fp8_dispatch=True, precision="bf16") == sent(precision="bf16")


def test_a_limit_makes_relayed_tokens_faster_and_leaves_copies_as_they_are() -> None:
    free = ("model.moe.group_limit=8",)
    assert own_s(relayed_dispatch=True) < own_s(*free, relayed_dispatch=True) < own_s()
    assert own_s(*free) == own_s()
    assert own_s(relayed_dispatch=True, fp8_dispatch=True) < own_s(relayed_dispatch=True)


def test_models_with_and_without_groups_are_priced_together_as_alone() -> None:
    limits: tuple[tuple[str, ...], ...] = ((), ("model.moe.groups=1", "model.moe.group_limit=1"))
    asked = [
        point(*DEEPSEEK, *limit, **SHAPE | {"e": e, "relayed_dispatch": True}) for e in (1, 16, 64) for limit in limits
    ]
    alone = [rows(each)[0] for each in asked]
    assert [each["ep_s"] for each in rows(*asked)] == [each["ep_s"] for each in alone]


def test_a_dense_model_has_nothing_to_relay() -> None:
    plain, relayed = (row(*SMALL, relayed_dispatch=each, fp8_dispatch=each) for each in (False, True))
    assert {k: plain[k] for k in ("step_time_s", "communication")} == {
        k: relayed[k] for k in ("step_time_s", "communication")
    }


@pytest.mark.parametrize(
    ("groups", "limit", "told"),
    [
        (7, 7, "model.moe.groups=7 must divide model.moe.experts=256. Nearest: 4 or 8."),
        (8, 9, "must be 1 to model.moe.groups=8, for a token's model.moe.top_k=8 experts. Nearest: 8."),
        (256, 4, "must be 8 to model.moe.groups=256, for a token's model.moe.top_k=8 experts. Nearest: 8."),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: int, limit: int, told: str) -> None:
    with pytest.raises(Invalid, match=re.escape(told)):
        Moe(experts=256, top_k=8, ffn=2048, groups=groups, group_limit=limit)
