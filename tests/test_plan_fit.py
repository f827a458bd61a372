"""Does it fit, what would make it, and what every rank holds when: laws, brute force, and what users reported."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from points import plain

from pipesim import config, fitting, headroom, legality, make_schedule, simulate
from pipesim.estimate import pipeline
from pipesim.estimate.by_rank import held_by_rank
from pipesim.plan import grid
from pipesim.plan.asked.behind import config_behind
from pipesim.plan.asked.space import Axis, Slice, Space, with_values
from pipesim.plan.explain.fit import ELSEWHERE, Fit, evaluated, fit
from pipesim.report import fit_tables
from pipesim.report.ranking import ranked
from pipesim.report.say import english
from pipesim.swept import with_told

TODAY = ("cluster=dgx_h100", "parallel=megatron", "training=megatron", "stack=megatron_lm")
LLAMA = ("model=llama3_70b", *TODAY, "cluster.gpus=64")
DENSE = (*LLAMA, "parallel.t=4", "parallel.p=4", "training.recompute=none", "training.global_batch=64")
TIGHT = (*DENSE, "training.micro_batch=4", "training.seq_length=4096")


@functools.cache
def found(*overrides: str) -> Fit:
    answer = fit(plain(*overrides))
    assert answer is not None
    return answer


def row(*overrides: str) -> dict[str, Any]:
    (only,) = grid.rows([plain(*overrides)])
    return only


def settings(answer: Fit, kind: str) -> dict[str, Any]:
    return next((dict(change.settings) for change in answer.changes if change.kinds == (kind,)), {})


@pytest.mark.slow
@pytest.mark.parametrize("asked", [("parallel.t=2",), TIGHT])
def test_every_change_fits_when_it_is_asked_itself_and_the_asked_layout_does_not(asked: tuple[str, ...]) -> None:
    answer = found(*asked)
    assert answer.asked["memory_bytes"] > answer.asked["memory_limit_bytes"]
    assert len(answer.changes) >= 3
    for change in answer.changes:
        (again,) = grid.rows([with_values(plain(*asked), change.settings)])
        assert headroom.left(again, headroom.USUAL)
        assert (again["memory_bytes"], again["step_time_s"]) == (change.row["memory_bytes"], change.row["step_time_s"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "asked"),
    [("parallel.t", TIGHT), ("parallel.p", ("parallel.t=2",)), ("training.micro_batch", TIGHT),
     ("training.recompute_layers", TIGHT)],
)  # fmt: skip
def test_no_smaller_change_of_its_kind_fits(key: str, asked: tuple[str, ...]) -> None:
    group, kind = key.split(".")
    change = settings(found(*asked), kind)
    assert change
    now = plain(*asked)[group][kind] or 0
    between = range(min(now, change[key]) + 1, max(now, change[key]))
    rows = evaluated(plain(*asked), [{**change, key: value} for value in between])
    assert not any(headroom.left(each, headroom.USUAL) for each in rows)


@pytest.mark.slow
def test_the_cheapest_is_the_fastest_on_the_same_machines() -> None:
    answer = found(*TIGHT)
    here = [each for each in answer.changes if each.kinds[0] not in ELSEWHERE]
    assert answer.cheapest in here
    assert answer.cheapest.row["step_time_s"] == min(each.row["step_time_s"] for each in here)
    assert answer.pair is None


@pytest.mark.slow
def test_a_pair_is_looked_for_where_no_change_does_alone() -> None:
    asked = (*DENSE, "cluster.gpus=32", "parallel.p=2", "training.global_batch=128", "training.micro_batch=4")
    answer = found(*asked)
    assert {each.kinds[0] for each in answer.changes} <= set(ELSEWHERE)
    assert answer.pair is not None
    assert answer.pair == answer.cheapest
    assert len(answer.pair.kinds) == 2
    assert answer.pair.row["fits"]


def test_a_layout_that_fits_or_breaks_a_rule_needs_no_way_out() -> None:
    assert fit(plain()) is None
    assert fit(plain("parallel.t=5")) is None


@pytest.mark.slow
def test_what_the_framework_cannot_run_is_no_way_out() -> None:
    """nanotron divides the optimizer alone, ZeRO-1."""
    asked = (
        "model=llama2_13b", "cluster=dgx_a100", "cluster.gpus=8", "parallel=one_gpu", "parallel.d=8", "parallel.zero=1",
        "stack=nanotron", "training=megatron", "training.recompute=full", "training.global_batch=64",
    )  # fmt: skip
    free = with_values(plain(*asked), {"stack.framework": None})
    answer = fit(free)
    assert answer is not None
    more = {each.kinds for each in answer.changes} - {each.kinds for each in found(*asked).changes}
    assert ("zero",) in more
    assert settings(answer, "zero") == {"parallel.zero": 2}


@pytest.mark.slow
def test_an_explicit_d_gives_way_to_other_degrees() -> None:
    assert settings(found("parallel.t=2", "parallel.d=16"), "t") == {"parallel.t": 4, "parallel.d": 8}
    assert settings(found("parallel.t=2"), "t") == {"parallel.t": 4}


def test_a_written_partition_gives_way_to_other_stages() -> None:
    config = plain("parallel.partition=[7,5,6,6,6,6,6,6,6,6,6,6]")
    more, same = evaluated(config, [{"parallel.p": 24}, {"parallel.t": 8}])
    assert (more["status"], more["p"]) == ("ok", 24)
    assert same["imbalance"] > evaluated(plain(), [{"parallel.t": 8}])[0]["imbalance"]


@pytest.mark.slow
def test_more_virtual_stages_make_an_interleaved_pipeline_fit() -> None:
    """A user's 70B fine-tune ran out of memory with v=5 and ran with v=10 (NVIDIA-NeMo/Megatron-Bridge pull 3107): rank 0
    holds 23 chunks of 4 layers, or 43 of 2, in 1F1B 80 layers.
    """
    asked = (*LLAMA, "cluster.gpus=32", "parallel.t=4", "parallel.p=4", "schedule=interleaved_1f1b", "parallel.v=5")
    first, other = (row(*asked, f"parallel.v={v}", "training.global_batch=64") for v in (5, 10))
    assert (first["peak_inflight"][0], other["peak_inflight"][0]) == (23, 43)
    # the embedding is a unit of its own, so stage 0 has a layer less than 4 of 80 / 20
    assert other["activation_bytes"] < first["activation_bytes"]
    between = (first["memory_bytes"] + other["memory_bytes"]) / 2e9
    answer = fit(
        with_values(plain(*asked, "training.global_batch=64"), {"cluster.memory_gb": between, "headroom": 0.0})
    )
    assert answer is not None
    assert settings(answer, "v")["parallel.v"] > 5


NEOX = (
    "model=gpt_22b", "model.layers=44", "model.vocab=50432", "model.tied_embeddings=false", "model.positions=rotary",
    "parallel=one_gpu", "stack=megatron_deepspeed", "training=megatron", "training.global_batch=32", "training.recompute=full",
    "training.precision=fp16", "training.attention=unfused",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "p", "t", "fits"),
    [("dgx_a100", 1, 2, False), ("dgx_a100", 2, 2, False), ("dgx_a100", 4, 2, True), ("dgx2_v100", 2, 2, False),
     ("dgx_a100_40g", 6, 4, True)],
)  # fmt: skip
def test_gpt_neox_20b_fits_where_its_users_say_so(cluster: str, p: int, t: int, fits: bool) -> None:
    """EleutherAI/gpt-neox issues 616, 707, 892: GPUs of 80, 80, 80, 32 and 40 GB."""
    found_row = row(*NEOX, f"cluster={cluster}", f"cluster.gpus={p * t}", f"parallel.p={p}", f"parallel.t={t}")
    assert found_row["fits"] is fits
    # 16 bytes a parameter are a lower bound: 165, 82, 41 and 13.7 GB
    assert found_row["memory_bytes"] > 16 * 20.6e9 / (p * t)


@pytest.mark.parametrize(
    "asked",
    [(), ("schedule=gpipe",), ("schedule=interleaved_1f1b", "parallel.v=3"), ("schedule=zbv",), ("schedule=dualpipe",),
     ("schedule=seq1f1b",), ("schedule=v_min", "training.recompute=none"), ("parallel.spread_vocab=algorithm_1",),
     LLAMA],
)  # fmt: skip
def test_the_items_of_every_rank_sum_to_what_it_holds(asked: tuple[str, ...]) -> None:
    only = row(*asked)
    held = held_by_rank(legality.resolve(config.build(plain(*asked))))
    assert [sum(items.values()) for items in held] == pytest.approx(only["rank_memory_bytes"], rel=1e-12)
    timeline = pipeline(only).timeline
    for rank, items in enumerate(held):
        peak = fit_tables.peak(timeline, only["stage_activation_bytes"], rank)
        assert peak is not None
        share = items["slack"] / (sum(items.values()) - items["slack"] - items["context"])
        assert peak.bytes <= (1 + share) * items["activation"] * (1 + 1e-9)
        assert 0 <= peak.at_s < timeline.makespan_s


@pytest.mark.parametrize(("name", "held"), [("1f1b", [4, 3, 2, 1]), ("gpipe", [8, 8, 8, 8])])
def test_equal_stages_hold_unequal_memory(name: str, held: list[int]) -> None:
    """deepspeedai/DeepSpeed issue 4477: stage r of a 1F1B pipeline holds min(p - r, m) micro-batches, of GPipe m."""
    timeline = simulate(make_schedule(name, p=4, m=8), forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0)
    peaks = [fit_tables.peak(timeline, [1e9] * 4, rank) for rank in range(4)]
    assert [peak and (peak.inflight, peak.bytes) for peak in peaks] == [(count, count * 1e9) for count in held]
    assert [peak and peak.action for peak in peaks] == [f"{rank}F{count - 1}" for rank, count in enumerate(held)]
    # rank r starts its k-th forward of the warm-up at r + k
    assert [peak and peak.at_s for peak in peaks] == [rank + count - 1 for rank, count in enumerate(held)]


def test_end_stages_carry_the_embedding_and_the_context_is_a_line_of_its_own() -> None:
    """BigScience's notes on a 104B model: 953,180,700 parameters on the first rank and 807,435,400 on a middle one; at 18
    bytes each 17.16 and 14.53 GB, of 22 and 18 GB that nvidia-smi shows, 1.27 GB of them the device's context. There the
    vocabulary is 50,257, which four ranks cannot share.
    """
    asked = (
        "model.layers=64", "model.hidden=11600", "model.heads=80", "model.vocab=50256", "model.positions=learned",
        "model.embedding_norm=false", "cluster=dgx2_v100", "cluster.gpus=128", "training.precision=fp16", "parallel.partition=even",
        "parallel.zero=0", "parallel.p=32", "training.micro_batch=1", "stack.device_context_gb=1.27",
        "stack.gradient_bytes=4",
    )  # fmt: skip
    stated = with_values(plain(*asked), {"parallel.partition": [3, *[2] * 30, 3]})
    held = held_by_rank(legality.resolve(config.build(stated)))
    states = [sum(items[item] for item in ("weights", "gradients", "optimizer")) for items in held]
    middle, first = 2 * (12 * 11600**2 + 13 * 11600) / 4, 50256 * 11600 / 4
    assert states[1] == pytest.approx(18 * middle, rel=2e-3)
    positions = 2048 * 11600  # which the notes leave out
    assert states[0] == pytest.approx(18 * (middle + first + positions), rel=2e-3)
    assert {items["context"] for items in held} == {1.27e9}


def test_sizes_of_gpus_are_sure_outside_of_the_interval_alone() -> None:
    only = row()
    low, high = only["memory_lo_bytes"], only["memory_hi_bytes"]
    said = [
        fit_tables.fits_on(only, size)[0]
        for size in (low - 1, low, only["memory_bytes"] - 1, only["memory_bytes"], high)
    ]
    assert said == ["no", "probably not", "probably not", "probably", "surely"]
    table = fit_tables.sizes(only, english)
    assert [line[0] for line in table.rows] == [40e9, 80e9, 96e9, 141e9, 192e9]


def test_the_config_behind_a_row_is_found_from_the_first_point() -> None:
    axes = (
        Axis(keys=("parallel.t",), values=((2,), (4,))),
        Axis(keys=("parallel.d",), values=((None,), (2,))),
        Axis(keys=("schedule.name",), values=(("1f1b",), ("zb_h1",))),
        Axis(keys=("cluster.memory_gb",), values=((80,), (41.5,))),
    )
    (space,) = with_told([Space(base=plain(), axes=axes)])
    asked = [dict(space.config(index)) for index in range(len(space))]
    rows = grid.evaluate([Slice(space, 0, len(space))], details=False).to_pylist()
    behind = [config_behind(each, asked[0]) for each in rows]
    assert all(each in asked for each in behind)
    assert len({repr(each) for each in behind}) == len(asked)
    assert config_behind(rows[0], plain("model=llama3_70b")) is None
    assert config_behind(rows[0], {"lang": "en"}) is None


@pytest.mark.slow
def test_of_a_sweep_without_a_layout_that_fits_the_nearest_have_ways_out() -> None:
    rows = ranked(grid.rows([plain("parallel.t=2", f"parallel.p={p}") for p in (6, 12)]))
    sure, ways = fitting.of_sweep(rows, plain())
    assert sure is None
    missing = [way["asked"]["memory_bytes"] for way in ways]
    assert missing == sorted(row["memory_bytes"] for row in rows)
    table = fit_tables.ways_out(ways, lambda row: f"p{row['p']}", english)
    assert {line[0] for line in table.rows} == {"p6", "p12"}
    text = fit_tables.way_out(ways[0], english)
    assert text.startswith("The cheapest way to make it fit on the same machines is parallel.")
    nothing = fit_tables.way_out({**ways[0], "cheapest": None}, english)
    assert nothing.endswith("makes it fit. Other machines do, see below.")
