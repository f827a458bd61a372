"""Jobs measured on their own ranks, and what the simulator makes of the measurements."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np
import pytest
import torch
from execute_cases import job

from pipesim.execute import layout
from pipesim.execute.calibration import beside, calibrate
from pipesim.execute.hops import Hop
from pipesim.execute.job import Job
from pipesim.execute.measure import Measured, measure
from pipesim.execute.reference import reference
from pipesim.schedules import make_schedule, schedule_names
from pipesim.schedules.action import Op
from pipesim.simulate import simulate
from pipesim.simulate.kernel import FloatArray
from pipesim.toy.gpt import GptSpec


def made_up(job: Job, alone_s: FloatArray, hops: dict[tuple[int, int], Hop] | None = None) -> Measured:
    """A measurement with these seconds of every action, shape (repeats, actions)."""
    return Measured(
        job=job, executed=cast(Any, None), alone_s=alone_s, hops=hops or {}, core_share=np.ones(len(alone_s))
    )


def one_step(name: str, p: int = 2, m: int = 4, **choices: Any) -> Job:
    return job(name, p, m, steps=1, **choices)


def unit_s(job: Job) -> FloatArray:
    """F, I and W take 1, B takes 2, and an overlapped pair what its two take. Shape (1, actions)."""
    schedule = job.schedule
    took_s = np.where(schedule.op == Op.B, 2.0, 1.0)
    pair_s = took_s + np.r_[took_s[1:], 0.0]
    took_s = np.where(schedule.joined, pair_s, took_s)
    second = np.r_[False, schedule.joined[:-1]]
    return np.where(second, np.r_[0.0, took_s[:-1]], took_s)[None]


@pytest.mark.parametrize("name", schedule_names())
def test_the_simulation_with_measured_seconds_is_that_of_the_same_seconds(name: str) -> None:
    asked = one_step(name)
    calibrated = calibrate(made_up(asked, unit_s(asked))).simulated(asked)
    wanted = simulate(asked.schedule, pair_s=3.0)
    np.testing.assert_allclose(calibrated.start_s, wanted.start_s)
    np.testing.assert_allclose(calibrated.end_s, wanted.end_s)


def test_one_slow_repeat_does_not_move_the_calibration() -> None:
    asked = one_step("1f1b")
    seconds = np.concatenate([unit_s(asked), 100 * unit_s(asked), unit_s(asked)])
    assert calibrate(made_up(asked, seconds)).simulated(asked).makespan_s == simulate(asked.schedule).makespan_s


def test_a_smaller_last_micro_batch_has_seconds_of_its_own() -> None:
    asked = one_step("1f1b", micro_batches=(2, 2, 2, 1))
    seconds = np.where(asked.schedule.micro_batch == 3, 0.5, 1.0)[None] * unit_s(asked)
    found = calibrate(made_up(asked, seconds))
    assert found.forward_s.tolist() == [[1, 1, 1, 0.5]] * 2
    assert found.input_grad_s.tolist() == [[2, 2, 2, 1]] * 2


def test_links_take_what_was_measured_for_them() -> None:
    asked = one_step("1f1b", p=3)
    hops = {(0, 1): Hop(1.0, 3.0, 128), (1, 2): Hop(2.0, 2.0, 128)}
    links = calibrate(made_up(asked, unit_s(asked), hops)).links
    took_s = links.hop_s(3) + links.result_bytes(3)[0] * links.s_per_byte(3)
    assert [took_s[link] for link in ((0, 1), (1, 0), (1, 2), (2, 1))] == [3.0, 3.0, 2.0, 2.0]


@pytest.mark.parametrize("choices", [{"repeats": 0}, {"warm_up": -1}, {"mode": "fibres"}])
def test_what_cannot_be_measured_is_refused_with_the_nearest(choices: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Nearest: ") as error:
        measure(one_step("1f1b"), **choices)
    assert next(iter(choices)) in str(error.value)


def test_repeats_are_no_steps_of_training() -> None:
    with pytest.raises(ValueError, match=r"steps=3.*Nearest: steps=1"):
        measure(job("1f1b", 2, 4), mode="threads")


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("1f1b", {"t": 2, "d": 2}), ("zb_h1", {}), ("zbv", {}), ("interleaved_1f1b", {"v": 2}), ("dualpipe", {}),
        ("dualpipev", {}), ("chimera", {}), ("seq1f1b", {}), ("gpipe", {"p": 1}),
    ],
)  # fmt: skip
def test_measuring_changes_nothing_of_what_is_computed_held_and_sent(name: str, choices: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    asked = one_step(name, **choices)
    measured = measure(asked, repeats=2, mode="threads")
    found, executed = beside(measured, calibrate(measured)), measured.executed
    wanted = reference(asked)
    for name_, gradient in executed.gradients.items():
        torch.testing.assert_close(gradient, wanted.gradients[name_], rtol=1e-9, atol=1e-12)
    assert executed.losses == pytest.approx(wanted.losses * 2)
    assert executed.peak_live == found.simulated.peak_inflight
    assert executed.link_bytes == layout.link_bytes(asked)
    assert len(found.measured) == 2
    assert all(each.start_s.min() == 0 for each in found.measured)
    assert measured.alone_s.shape == (2, len(asked.schedule))
    assert (measured.alone_s > 0).all()
    assert set(measured.hops) == {(min(link), max(link)) for link in layout.link_bytes(asked)}


@pytest.mark.alone
@pytest.mark.slow
def test_processes_are_measured_as_threads_are() -> None:
    asked = one_step("zbv")
    measured = measure(asked, repeats=2, mode="processes", timeout_s=120)
    assert measured.executed.peak_live == simulate(asked.schedule).peak_inflight
    assert measured.executed.link_bytes == layout.link_bytes(asked)
    assert measured.hops.keys() == {(0, 1)}


@pytest.mark.alone
@pytest.mark.slow
def test_the_predicted_makespan_of_two_processes_is_within_a_tenth() -> None:
    """Stages of tens of milliseconds; the median of those of nine repeats in which no other program took their cores."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    model = GptSpec(width=256, blocks=4, heads=4, context=64)
    asked = Job(schedule=make_schedule("1f1b", p=2, m=8), model=model, micro_batches=(4,) * 8, length=64)
    measured = measure(asked, repeats=9, timeout_s=300)
    quiet = measured.core_share > 0.95
    if quiet.sum() < 5:
        pytest.skip(f"other programs run on these cores, of which the ranks had {measured.core_share.round(2)}")
    errors = beside(measured, calibrate(measured)).errors[quiet]
    assert abs(np.median(errors)) < 0.10, errors
