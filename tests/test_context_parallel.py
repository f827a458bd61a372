"""What cutting the sequence costs: steps of a ring, gathered keys and values, exchanged heads; nothing where c is 1."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import SMALL, point, row, rows
from shapes import cluster, cut, gpt, stack

from pipesim.costs import attention as scores
from pipesim.costs import compute, kernels, memory
from pipesim.costs.collectives import Collective, ring_pass_exposed_s
from pipesim.costs.matrices import key_value_width
from pipesim.costs.stage import STEP_LAUNCHES, layer_collectives
from pipesim.costs.topology import Group, Link
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.specs import CostConstants

LAW = settings(deadline=None, max_examples=50)
WAYS = ("ring", "all_gather", "ulysses")
COSTS = CostConstants(kind="full")
FLASH: dict[str, Any] = {"attention": "flash", "precision": "bf16", "recompute": "none"}
SECONDS = st.floats(0, 10)


def ring(ranks: int, send_s: float, start_s: float) -> Collective:
    """Whose sends take ``send_s`` each, once they have started."""
    link = Link(bandwidth_bytes_per_s=1.0, latency_s=0.0, start_s=start_s)
    return Collective("cp", "ring pass", Group(ranks, ranks, np.bool_(False), 1, link, link, link), ranks * send_s, 1.0)


def attention(context: str = "ring", **changes: Any) -> tuple[float, float]:
    """Seconds of one layer's attention, forward and backward, on an A100 that reaches its peak in everything else."""
    chosen = cut(**{"context": context, "attention": "flash", "micro_batch": 4} | changes)
    on = kernels.machine(cluster(), COSTS, stack(), chosen)
    found = compute.layer_seconds(gpt(kv_heads=8), chosen, on, moe=False)
    return float(found.forward.attention_s), float(found.input_grad.attention_s)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_one_context_rank_costs_nothing_whatever_the_way(recompute: str) -> None:
    shape: dict[str, Any] = {"t": 2, "p": 2, "d": 2, "micro_batch": 1, "global_batch": 8} | FLASH
    found = [row(*SMALL, **shape | {"c": 1, "context": way, "recompute": recompute}) for way in WAYS]
    items = [f"{item}_s" for item in TIME_ITEMS] + [f"{item}_bytes" for item in MEMORY_ITEMS]
    assert found[0]["cp_s"] == 0
    assert all(each[item] == found[0][item] for each in found for item in items)


@LAW
@given(ranks=st.integers(1, 32), send_s=SECONDS, start_s=SECONDS, step_s=SECONDS, more_s=SECONDS)
def test_what_a_ring_shows_is_at_most_all_of_it_and_less_of_it_when_attention_is_longer(
    ranks: int, send_s: float, start_s: float, step_s: float, more_s: float
) -> None:
    for backward, times in ((False, 1), (True, 2)):
        each = ring(ranks, send_s, start_s)._replace(times=times)
        shown, longer = (float(ring_pass_exposed_s(each, s, backward)) for s in (step_s, step_s + more_s))
        assert 0 <= longer <= shown <= float(each.seconds()) * (1 + 1e-12)
        slack = 1e-9 * (1 + ranks * step_s)
        assert longer + ranks * (step_s + more_s) >= shown + ranks * step_s - slack  # more to compute is never faster


def test_a_ring_shows_of_each_step_what_its_attention_does_not_hide() -> None:
    each = ring(4, send_s=3.0, start_s=1.0)
    assert ring_pass_exposed_s(each, 1.0, False) == 3 * 3  # three sends of 1 + 3 s beside 1 s of attention
    # one of keys and values, two with gradients beside them, one of gradients: 1 + 3, 1 + 6, 1 + 6, 1 + 3
    assert ring_pass_exposed_s(each, 1.0, True) == 3 + 6 + 6 + 3
    assert ring_pass_exposed_s(each, 5.0, True) == 2 * 2
    assert ring_pass_exposed_s(each, 7.0, True) == 0
    assert ring_pass_exposed_s(ring(1, 3.0, 1.0), 0.0, True) == 0


@pytest.mark.parametrize("c", [2, 4])
def test_runs_of_blocks_and_tiles_of_a_ring_are_those_that_its_slowest_rank_counts(c: int) -> None:
    """Rank by rank and step by step: with earlier ranks' keys all queries run, with later ones' the second half."""
    blocks, heads = 16 * c, 4 * 32
    part = blocks // (2 * c)
    slowest = 0.0
    for rank in range(c):
        own = [*range(rank * part, (rank + 1) * part), *range(blocks - (rank + 1) * part, blocks - rank * part)]
        runs = sum(len(own) if other <= rank else part for other in range(c))
        slowest = max(slowest, sum(block + 1 for block in own) + runs * scores.FLASH_START_TILES)
    on = kernels.machine(cluster(), COSTS, stack(), cut(attention="flash"))
    chosen = cut(c=c, seq_length=128 * blocks, micro_batch=4, attention="flash")
    assert scores.flash_tiles(gpt(), chosen, on) == pytest.approx(heads * slowest, rel=1e-12)


def test_few_blocks_wait_for_the_longest() -> None:
    # 1 x 32 / 16 heads x 16 blocks are 32 of 108 multiprocessors' work: 16 tiles of keys and the start of one
    on = kernels.machine(cluster(), COSTS, stack(), cut(attention="flash"))
    chosen = cut(t=16, micro_batch=1, attention="flash")
    assert scores.flash_tiles(gpt(), chosen, on) == 108 * (16 + scores.FLASH_START_TILES)


def test_steps_are_put_together_through_memory() -> None:
    # 4 x 4096 tokens; outputs and queries of 32 heads, keys and values of 8; 4 bytes for the first step, 6 for the second
    both = {way: attention(way, c=2, seq_length=8192) for way in WAYS}
    _, hidden, passed = 4 * 4096, 32 * 128, 2 * 8 * 128
    once = 4 * 4096 / 2e12
    start_s = 2 * 4 * 32 * 32 * 128**2 * 128 * 2 / 312e12 / 0.6 / (1 + 3 / 128)  # of each block's second run
    merged = once * 10 * hidden, once * 10 * (hidden + passed)
    assert both["ring"][0] - both["ulysses"][0] == pytest.approx(merged[0] + start_s, rel=1e-9)
    assert both["ring"][1] - both["ulysses"][1] == pytest.approx(merged[1] + 2.5 / 0.88 * start_s, rel=1e-9)
    assert both["all_gather"][0] - both["ulysses"][0] == pytest.approx(once * 2 * 8 * passed, rel=1e-9)
    assert both["all_gather"][1] - both["ulysses"][1] == pytest.approx(once * 2 * 18 * passed, rel=1e-9)


def test_a_step_of_a_ring_launches_kernels_of_its_own() -> None:
    slow_host: dict[str, Any] = {"forward_launch_s": 1.0, "backward_launch_s": 2.0, "synchronous": True}
    shape: dict[str, Any] = {"t": 1, "p": 1, "d": 1, "micro_batch": 1, "global_batch": 2} | FLASH | slow_host
    launches = {way: row(*SMALL, **shape, c=4, context=way)["launch_s"] for way in WAYS}
    assert launches["all_gather"] == launches["ulysses"] == pytest.approx(2 * 32 * 3.0, rel=1e-12)
    assert launches["ring"] == pytest.approx(2 * 32 * 3.0 * (1 + 3 * STEP_LAUNCHES), rel=1e-12)


def test_gathered_keys_and_values_hide_behind_nothing() -> None:
    shape: dict[str, Any] = {"t": 1, "p": 1, "d": 1, "c": 2, "micro_batch": 1, "global_batch": 2} | FLASH
    ring_s, gathered_s = (row(*SMALL, **shape, seq_length=2**15, context=way)["cp_s"] for way in WAYS[:2])
    assert ring_s == 0 < gathered_s


def test_each_rank_that_attends_to_its_heads_needs_one_head_of_keys() -> None:
    # 32 heads of queries and 2 of keys over t x c = 8: of 4 heads of queries each, and of 1 of keys, copied
    forward, _ = layer_collectives(
        gpt(kv_heads=2), cluster(), COSTS, stack(), cut(t=2, c=4, context="ulysses"), moe=False
    )
    queries, keys = (each for each in forward if each.dimension == "cp")
    tokens_bytes = 2 * 2048 / 4 * 128 * 2
    assert queries.message_bytes == 16 * tokens_bytes
    assert keys.message_bytes == 4 * tokens_bytes


@pytest.mark.parametrize("context", WAYS)
@settings(deadline=None, max_examples=10)
@given(
    c=st.sampled_from([2, 4, 8]), t=st.sampled_from([1, 2]), tokens=st.sampled_from([1024, 2048, 8192]),
    recompute=st.sampled_from(["none", "selective", "full"]), attention=st.sampled_from(["flash", "unfused"]),
)  # fmt: skip
def test_c_ranks_are_never_faster_than_perfect_division(
    context: str, c: int, t: int, tokens: int, recompute: str, attention: str
) -> None:
    shape: dict[str, Any] = {"t": t, "p": 1, "d": 1, "micro_batch": 1, "global_batch": 1, "seq_length": tokens}
    shape |= {"precision": "bf16", "recompute": recompute, "attention": attention, "context": context, "zero": 0}
    one, many = rows(*(point(*SMALL, **shape, c=each) for each in (1, c)))
    for op in ("forward", "input_grad", "weight_grad"):
        alone, divided = (sum(each[f"stage_{op}_s"]) for each in (one, many))
        assert c * divided >= alone * (1 - 1e-12)


def test_context_ranks_share_gradients_and_activations() -> None:
    shape: dict[str, Any] = {"t": 1, "p": 1, "micro_batch": 1, "global_batch": 16, "zero": 1, "gpus": 16} | FLASH
    plain, cut_ = (row(*SMALL, **shape, d=16 // c, c=c, context="ulysses") for c in (1, 4))
    assert plain["dp_bytes_per_gpu"] == cut_["dp_bytes_per_gpu"]  # all d c ranks hold the same parameters
    assert plain["model_state_bytes"] == cut_["model_state_bytes"]
    assert cut_["activation_bytes"] == pytest.approx(plain["activation_bytes"] / 4, rel=1e-12)


def test_what_a_layer_holds_beside_for_its_context_ranks() -> None:
    model, tokens = gpt(kv_heads=8), 2 * 2048 / 4
    passed, output = float(key_value_width(model, 2)), 32 / 2 * 128
    held = {way: float(memory.context_bytes(model, cut(t=2, c=4, context=way))) for way in WAYS}
    assert held == {
        "ring": 2 * tokens * 4 * (passed + output), "all_gather": 2 * tokens * 2 * 4 * passed, "ulysses": 0
    }  # fmt: skip
    two = dataclasses.replace(cut(t=2, c=2), context="ring")
    assert (
        memory.context_bytes(gpt(), two) == 2 * 2048 * 4 * 2 * 16 * 128
    )  # backward: keys, values and gradients, twice


def test_longer_parts_waste_less_of_a_ring() -> None:
    waste = [attention(c=8, seq_length=s)[0] * 8 / attention(c=1, seq_length=s)[0] for s in (2048, 8192, 32768)]
    assert waste[0] > waste[1] > waste[2] > 1
