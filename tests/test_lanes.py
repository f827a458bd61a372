"""One program for many points: every lane is what the simulator says of that point alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesim.estimate import orders
from pipesim.schedules import make_schedule, schedule_names, stages_per_rank
from pipesim.schedules.action import Op, Schedule
from pipesim.simulate import lanes, peak_counts, peak_held, programs, simulate

LAW = settings(deadline=None, max_examples=20)
NAMES = [name for name in schedule_names() if name not in ("auto", "custom")]
SEVERAL = ("interleaved_1f1b", "looped_bfs", "interleaved_zb")


def times(schedule: Schedule, n: int, seed: int, alike: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Forward, input and weight gradient of every stage (3, stages, n), all kinds of actions, and a hop (n,)."""
    rng = np.random.default_rng(seed)
    op_s = rng.random((3, schedule.stages, n))
    if alike:
        op_s = np.ones((3, schedule.stages, 1)) * rng.random((3, 1, n))
        op_s[:, -1] *= 1.05
        op_s[:, 0] *= 0.97
    kinds = np.empty((len(Op), *op_s.shape[1:]))
    kinds[[Op.F, Op.I, Op.W]] = op_s
    kinds[Op.B] = kinds[Op.I] + kinds[Op.W]
    return op_s, kinds, rng.random(n) * 0.2


def sizes(name: str) -> tuple[int, int]:
    return 4, (2 if name in SEVERAL else stages_per_rank(name))


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("m", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_every_lane_ends_when_the_simulator_says(name: str, m: int, alike: bool) -> None:
    p, v = sizes(name)
    schedule = make_schedule(name, p=p, m=m, v=v)
    program = programs.compile_schedule(schedule)
    op_s, kinds, hop_s = times(schedule, 70, m, alike)  # more than one block of lanes
    ran = lanes.run(program, p, kinds, hop_s)
    for i in (0, 1, 63, 64, 69):
        timeline = simulate(schedule, *op_s[:, :, i], float(hop_s[i]))
        last_s = timeline.end_s[schedule.rank_start[1:] - 1]
        if len(program.pieces) == 1:
            assert ran.last_s[:, i].tolist() == last_s.tolist()
        assert ran.last_s[:, i] == pytest.approx(last_s, rel=1e-11)
        assert ran.first_s[:, i] == pytest.approx(timeline.start_s[schedule.rank_start[:-1]], rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_longer_orders_of_a_family_are_its_program_repeated(name: str) -> None:
    p, v = sizes(name)
    block = math.lcm(p, 16)
    family = orders._family(name, p, orders.BLOCKS * block, v, (), block)
    if family is None:
        assert name in ("looped_bfs", "dualpipe", "dualpipev", "chimera")  # walked whole, for each m anew
        return
    for more in (1, 5):
        m = (orders.BLOCKS + more) * block
        schedule = make_schedule(name, p=p, m=m, v=v)
        for alike in (True, False):
            op_s, kinds, hop_s = times(schedule, 4, more, alike)
            op_s, kinds, hop_s = (each / schedule.segments for each in (op_s, kinds, hop_s))
            ran = lanes.run(family.program, p, kinds, hop_s, np.full(4, more))
            for i in range(4):
                makespan_s = simulate(schedule, *op_s[:, :, i], float(hop_s[i])).makespan_s
                assert ran.last_s[:, i].max() == pytest.approx(makespan_s, rel=1e-10)
        whole = orders._order(schedule)
        for counted in orders.COUNTED:
            grown = getattr(family, counted) + more * family.growth[counted]
            assert np.array_equal(grown, getattr(whole, counted)), counted


@pytest.mark.parametrize("name", NAMES)
@LAW
@given(data=st.data())
def test_the_greatest_counts_give_the_peak_of_any_weights(name: str, data: st.DataObject) -> None:
    p, v = sizes(name)
    schedule = make_schedule(name, p=p, m=8, v=v)
    weights = np.array(data.draw(st.lists(st.floats(0, 9), min_size=schedule.stages, max_size=schedule.stages)))
    peaks = [float((counts * weights).sum(axis=1).max()) for counts in peak_counts(schedule)]
    assert peaks == pytest.approx(peak_held(schedule, weights).tolist(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("times", [3, 100, 150, 198, 199, 200, 201, 202, 256, 1000])
def test_what_is_slower_now_goes_on_until_it_catches_up(times: int) -> None:
    # Rank 1 begins 100 s late with what rank 0 makes every second, takes half a second for each, and has caught up after 200
    steps = np.array([[[2, -1, -1], [-1] * 3], [[0, -1, 0], [-1] * 3], [[1, 0, -1], [-1] * 3]], np.int32)
    program = programs.Program(
        rank=np.array([1, 0, 1], np.int32), opens=np.array([True, False, False]), steps=steps, places=1,
        pieces=np.array([[0, 1, 1], [1, 3, times]]), grows=np.zeros(2, np.int64), m=times, block=1,
        actions=np.array([times, times, 1]),
    )  # fmt: skip
    ran = lanes.run(program, 2, np.array([[[1.0]], [[0.5]], [[100.0]]]), np.zeros(1))
    assert ran.last_s[:, 0].tolist() == [times, max(100 + 0.5 * times, times + 0.5)]
