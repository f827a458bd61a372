"""Goodput: Daly's model against events drawn one by one, published trainings, ramps as Megatron-LM walks them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import configs

from pipesim import compose
from pipesim.checks import Invalid
from pipesim.costs import goodput as costs
from pipesim.tasks.goodput.ramp import phases
from pipesim.tasks.goodput.task import goodput

HOUR_S, DAY_S = 3600.0, 86400.0
SECONDS = st.floats(1.0, 1e5)


def worked_s(rng: np.random.Generator, segments: int, tau: float, delta: float, mtbf: float, restart: float) -> float:
    """Seconds until so many intervals are done, failure by failure."""
    clock, failure = 0.0, rng.exponential(mtbf)
    for _ in range(segments):
        need = tau + delta
        while failure < clock + need:  # the work since the last checkpoint is gone, and a restart comes first
            clock, need = failure, restart + tau + delta
            failure = clock + rng.exponential(mtbf)
        clock += need
    return clock


@pytest.mark.parametrize(("mtbf", "restart"), [(50.0, 5.0), (10.0, 0.0), (6.0, 4.0)])
def test_the_expected_time_is_the_mean_of_drawn_failures(mtbf: float, restart: float) -> None:
    rng, segments, tau, delta = np.random.default_rng(7), 40_000, 8.0, 1.0
    drawn = worked_s(rng, segments, tau, delta, mtbf, restart)
    expected = sum(costs.times_s(segments * tau, tau, delta, mtbf, restart).values())
    assert drawn == pytest.approx(expected, rel=0.02)


@given(useful=SECONDS, tau=SECONDS, delta=SECONDS, restart=SECONDS, mtbf=st.floats(1e4, 1e7))
def test_the_items_sum_to_daly_s_closed_form(
    useful: float, tau: float, delta: float, restart: float, mtbf: float
) -> None:
    found = costs.times_s(useful, tau, delta, mtbf, restart)
    assert tuple(found) == costs.TIMES
    assert min(found.values()) >= 0
    closed = mtbf * np.exp(restart / mtbf) * np.expm1((tau + delta) / mtbf) * useful / tau
    assert sum(found.values()) == pytest.approx(closed, rel=1e-9)
    assert costs.useful_share(tau, delta, mtbf, restart) == pytest.approx(useful / closed, rel=1e-9)


@pytest.mark.parametrize(("mtbf_h", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_intervals_are_those_of_daly_s_figures(mtbf_h: float, minutes: float) -> None:
    # Daly 2006, figures 3 to 5: checkpoints of 5 minutes, M = 24 h, 6 h and 15 min
    assert costs.daly_interval_s(300.0, mtbf_h * HOUR_S) / 60 == pytest.approx(
        minutes, abs=0.5 if minutes > 10 else 0.05
    )


@given(delta=SECONDS, mtbf=st.floats(1e3, 1e7), restart=st.floats(0, 1e4), away=st.floats(0.5, 2))
def test_no_interval_is_better_than_the_best(delta: float, mtbf: float, restart: float, away: float) -> None:
    best = costs.best_interval_s(delta, mtbf)
    here, there = (costs.useful_share(tau, delta, mtbf, restart) for tau in (best, best * away))
    assert here >= there * (1 - 1e-9)


@given(delta=st.floats(1, 100), mtbf=st.floats(1e5, 1e7))
def test_young_and_daly_come_near_the_best_where_checkpoints_are_short(delta: float, mtbf: float) -> None:
    best = costs.best_interval_s(delta, mtbf)
    assert costs.young_interval_s(delta, mtbf) == pytest.approx(best, rel=0.05)
    assert costs.daly_interval_s(delta, mtbf) == pytest.approx(best, rel=1e-3)


def test_arrays_are_what_each_is_alone() -> None:
    delta, mtbf = np.array([1.0, 60.0, 9e3]), np.array([1e4, 1e5, 4e3])
    for formula in (costs.young_interval_s, costs.daly_interval_s, costs.best_interval_s):
        assert formula(delta, mtbf).tolist() == [float(formula(d, m)) for d, m in zip(delta, mtbf, strict=True)]
    shares = costs.useful_share(np.full(3, 500.0), delta, mtbf, 60.0)
    assert shares.tolist() == [costs.useful_share(500.0, d, m, 60.0) for d, m in zip(delta, mtbf, strict=True)]


def test_more_failures_longer_checkpoints_and_restarts_leave_less() -> None:
    many = np.linspace(1, 10, 20)
    for shares in (
        costs.useful_share(600.0, 30.0, 2e4 / many, 300.0),
        costs.useful_share(600.0, 30.0 * many, 2e4, 300.0),
        costs.useful_share(600.0, 30.0, 2e4, 300.0 * many),
    ):
        assert (np.diff(shares) < 0).all()


def test_llama_3_kept_nine_tenths_useful() -> None:
    # Grattafiori et al. 2024, section 3.3.4: 419 unexpected interruptions in 54 days on 16,384 GPUs, more than 90 %
    # effective training time; section 3.3.1: storage of 2 TB/s. A restart of 10 minutes is an assumption.
    mtbf_s = 54 * DAY_S / 419
    assert costs.system_mtbf_s(50_677 * HOUR_S, 16_384) == pytest.approx(mtbf_s, rel=1e-3)
    checkpoint_s = costs.checkpoint_bytes(405.85e9) / 2e12
    share = costs.useful_share(costs.best_interval_s(checkpoint_s, mtbf_s), checkpoint_s, mtbf_s, 600.0)
    assert 0.9 < share < 0.95


def test_bloom_s_checkpoint_is_the_published_one() -> None:
    parameters = 176_247_271_424
    assert 2 * parameters / 2**30 == pytest.approx(329, abs=1)  # BigScience's model page: 329 GB of weights, in GiB
    assert costs.checkpoint_bytes(parameters) / 2**40 == pytest.approx(2.3, abs=0.06)  # and 2.3 TB with the optimizer


def test_the_critical_batch_is_kaplan_s() -> None:
    # Kaplan et al. 2020, figure 10: about 2.1e8 L^-4.8 tokens; at a loss of 3 about a million
    assert costs.critical_batch_tokens(3.0) == pytest.approx(2.1e8 * 3.0**-4.8, rel=0.1)
    losses = costs.expected_loss(1e9, np.geomspace(1e8, 1e12, 9))
    assert (np.diff(costs.critical_batch_tokens(losses)) > 0).all()


def megatron(start: int, increment: int, samples: int, last: int, total: float) -> list[int]:
    """The batch of every step, as Megatron-LM chooses it from the sequences done so far."""
    done, found = 0, []
    while done < total:
        rises = (last - start) // increment
        batch = last if done > samples else start + int(done / (samples / rises)) * increment
        found.append(min(batch, last))
        done += found[-1]
    return found


@settings(max_examples=50)
@given(start=st.integers(1, 20), increment=st.integers(1, 8), rises=st.integers(1, 12), samples=st.integers(200, 5000))
def test_a_ramp_is_walked_as_megatron_does(start: int, increment: int, rises: int, samples: int) -> None:
    last, total = start + increment * rises, 2.0 * samples
    asked = {"ramp": [], "rampup_batch_size": [start, increment, samples], "tokens": total * 8}
    steps = [phase.batch for phase in phases(asked, last, 1, 8) for _ in range(phase.steps)]
    expected = megatron(start, increment, samples, last, total)
    # a boundary that is hit exactly is a matter of rounding there: one step of one phase at most
    assert len(steps) == pytest.approx(len(expected), abs=1)
    assert sum(a != b for a, b in zip(steps, expected, strict=False)) <= rises


def test_every_step_of_a_ramp_is_counted_once() -> None:
    asked = {"ramp": [[1000, 2], [5000, 4]], "rampup_batch_size": [], "tokens": 10_000}
    assert phases(asked, 8, 2, 10) == [(2, 50, 100), (4, 100, 500), (8, 63, 1004)]
    assert phases({**asked, "ramp": []}, 8, 2, 10) == [(8, 125, 1000)]


def asked(*overrides: str) -> dict[str, Any]:
    with compose.composer() as hydra:
        (config,) = configs(compose.expand(*hydra, ["experiment=goodput", *overrides], {}))
    return config


BLOOM = ("task.goodput.rampup_batch_size=[192,464,9765625]", "cluster.usd_per_gpu_hour=2", "cluster.watts_per_gpu=400")


@pytest.fixture(scope="module")
def bloom() -> Any:
    return goodput(asked(*BLOOM))


def tables(done: Any) -> dict[str, Any]:
    return {
        block.title: block for section in done.document.sections for block in section.blocks if hasattr(block, "rows")
    }


def test_bloom_s_whole_training_takes_the_published_hours(bloom: Any) -> None:
    # BLOOM paper, 2022: 1,082,990 GPU-hours in all, stops, evaluation and lost time included, 366B tokens. Here the batch
    # grows in 4 rises, there in 116.
    *parts, whole = tables(bloom)["Where the time goes"].rows
    assert whole[3] == pytest.approx(1_082_990, rel=0.1)
    assert sum(row[1] for row in parts) == pytest.approx(whole[1])
    assert sum(row[2] for row in parts) == pytest.approx(1)
    assert whole[4] == pytest.approx(2 * whole[3])
    assert whole[5] == pytest.approx(400 * whole[3] / 1e6)


LLAMA = (
    "model=llama3_405b", "cluster=dgx_h100", "cluster.gpus=16384", "parallel=megatron", "training=megatron",
    "stack=megatron_lm", "parallel.t=8", "parallel.p=16", "parallel.v=8", "schedule=interleaved_1f1b",
    "training.global_batch=2048", "training.micro_batch=1", "task.goodput.tokens=15.6e12",
)  # fmt: skip


@pytest.mark.slow
def test_llama_3_s_whole_training_takes_the_published_hours() -> None:
    # Llama 3.1 model card: 30.84M GPU-hours for 405B. Its batch grew, on numbers of GPUs that are not told for each batch:
    # here it is the last one throughout.
    done = goodput(asked(*LLAMA))
    *_, whole = tables(done)["Where the time goes"].rows
    assert whole[3] == pytest.approx(30.84e6, rel=0.1)
    assert whole[2] == 1
    assert tables(done)["Where the time goes"].rows[0][2] > 0.9


def test_the_useful_time_is_its_items_and_its_phases(bloom: Any) -> None:
    found = tables(bloom)
    *items, whole = found["Useful time by item"].rows
    assert sum(row[1] for row in items) == pytest.approx(whole[1])
    assert whole[1] == pytest.approx(found["Where the time goes"].rows[0][1])
    shown = found["Phases of the batch"].rows
    assert shown[0][0] == 192
    assert shown[-1][0] == 2048
    assert len(bloom.rows) == len(shown) == 5
    assert [row[7] for row in shown] == sorted(row[7] for row in shown)


def test_a_ramp_costs_time_and_a_single_batch_is_simply_its_steps(bloom: Any) -> None:
    plain = tables(goodput(asked("task.goodput.interval_s=3600")))
    days = plain["Where the time goes"].rows[0][1]
    assert days < tables(bloom)["Where the time goes"].rows[0][1]
    ((_, steps, _, step_s, *_),) = plain["Phases of the batch"].rows
    assert days == pytest.approx(steps * step_s / DAY_S)
    assert plain["Intervals"].rows[-1][:2] == ("asked", "60.0 min")
    changed = {row[0]: row for row in plain["Each with its own best interval"].rows}
    assert changed["best interval"][4] <= 0
    assert (
        changed["time between failures x 0.5"][3] > changed["best interval"][3] > changed["checkpoint bandwidth x 2"][3]
    )


def test_a_batch_beyond_the_critical_one_is_warned_of(bloom: Any) -> None:
    def said(done: Any) -> str:
        return str(done.document.sections[0])

    assert "beyond the critical one" not in said(bloom)
    assert "beyond the critical one" in said(goodput(asked("training.global_batch=16384")))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("task.goodput.ramp=[[1e9,100],[2e9,200]]", "batch 100 is no multiple of training.micro_batch x parallel.d = 16. "),
        ("task.goodput.ramp=[[1e9,100],[2e9,200]]", "x parallel.d = 16. Nearest: 192 or 208."),
        ("task.goodput.ramp=[[1e9,160],[1e8,320]]", "a phase until token 1e+08 must end behind the one before (1e+09)"),
        ("task.goodput.ramp=[[1e12,160]]", "within task.goodput.tokens=3.66e+11. Nearest: 3.66e+11."),
        ("task.goodput.ramp=[[1e9,160.5]]", "batch 160.5 must be a whole number"),
        ("task.goodput.ramp=[[1e9]]", "must be [until this token, batch]"),
        ("task.goodput.ramp=[1e9,32]", "1000000000.0 must be [until this token, batch]"),
        ("task.goodput.ramp=[[a,b]]", "must be [until this token, batch]"),
        ("task.goodput.rampup_batch_size=[192,24,1000]", "training.global_batch=2048. Nearest: a first batch of 200 or 176."),
        ("task.goodput.rampup_batch_size=[192,8,1000]", "batch 200 is no multiple"),
        ("task.goodput.rampup_batch_size=[192,24]", "must be [first batch, increment, samples]"),
        ("task.goodput.restart_s=-1", "task.goodput.restart_s=-1"),
        ("task.goodput.gpu_mtbf_hours=0", "task.goodput.gpu_mtbf_hours=0"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_the_nearest_that_works(override: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        goodput(asked(override))
    assert said in str(refused.value)


def test_batches_that_the_schedule_cannot_run_are_named() -> None:
    grouped = ("schedule=interleaved_1f1b", "parallel.v=2", "schedule.group=15", "training.global_batch=480")
    with pytest.raises(Invalid, match=r"batch 320: schedule.group=15"):
        goodput(asked(*grouped, "task.goodput.ramp=[[1e9,320]]"))


def test_a_long_ramp_is_told_by_some_of_its_phases_and_kept_whole() -> None:
    done = goodput(asked("parallel.p=1", "parallel.t=8", "task.goodput.rampup_batch_size=[96,96,1000000]",
                         "training.global_batch=1920"))  # fmt: skip
    found = tables(done)["Phases of the batch"]
    assert len(done.rows) == 20
    assert len(found.rows) == 10
    assert found.note.startswith("10 phases in between are left out")


@pytest.mark.parametrize("override", ["task.goodput.gpu_mtbf_hours=0.5", "task.goodput.interval_s=1e12"])
def test_a_training_that_never_ends_is_refused_with_what_would_end(override: str) -> None:
    with pytest.raises(Invalid, match=r"never ends.*Nearest: task\.goodput\.interval_s=null") as refused:
        goodput(asked(override))
    (hours,) = re.findall(r"gpu_mtbf_hours=(\S+) or more", str(refused.value))
    assert goodput(asked(f"task.goodput.gpu_mtbf_hours={hours}")).rows


@given(share=st.floats(1e-20, 1e-6))
def test_the_best_interval_of_the_rarest_failures_is_youngs(share: float) -> None:
    mtbf_s = 1e9
    assert costs.best_interval_s(share * mtbf_s, mtbf_s) == pytest.approx(math.sqrt(2 * share) * mtbf_s, rel=2e-3)


@pytest.mark.parametrize("key", ["tokens", "gpu_mtbf_hours", "checkpoint_gb_per_s", "interval_s", "restart_s"])
def test_numbers_beyond_all_bounds_name_the_key_and_the_largest(key: str) -> None:
    with pytest.raises(Invalid, match=rf"task\.goodput\.{key}=1e\+20 must be at most .* Nearest: 1e\+1"):
        goodput(asked(f"task.goodput.{key}=1e20"))
