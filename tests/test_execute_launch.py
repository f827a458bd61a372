"""A run in processes brings every result or names the rank that failed, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import launch_work as work
from leftovers import alive, becomes, belongings

from pipesim.execute.launch import RankFailed, run_processes

pytestmark = pytest.mark.alone
BOUND_S = 30.0
LOOPBACK = "0100007F"


@pytest.fixture(autouse=True, scope="module")
def _torch_has_opened_what_it_keeps() -> None:
    run_processes(work.square, [], timeout_s=BOUND_S)  # libuv holds one pipe in each process that had a store


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = belongings()
    yield
    assert becomes(lambda: belongings() == before), (before, belongings())


def failed(function: Callable[..., Any], given: list[Any], **limits: float) -> RankFailed:
    begins_s = time.monotonic()
    with pytest.raises(RankFailed) as caught:
        run_processes(function, given, **{"timeout_s": BOUND_S, **limits})
    assert time.monotonic() - begins_s < BOUND_S + 5
    return caught.value


def test_results_come_in_the_order_of_the_ranks() -> None:
    assert run_processes(work.square, [3, 4, 5], timeout_s=BOUND_S) == [(0, 3, 9), (1, 3, 16), (2, 3, 25)]


def test_of_no_ranks_there_are_no_results() -> None:
    assert run_processes(work.square, [], timeout_s=BOUND_S) == []


def test_more_than_a_pipe_holds_goes_through_and_comes_back() -> None:
    load = bytes(range(256)) * 40_000
    assert run_processes(work.many_bytes, [load, load[::-1]], timeout_s=BOUND_S) == [load, load[::-1]]


@pytest.mark.slow
def test_each_process_computes_with_the_threads_it_was_given() -> None:
    assert run_processes(work.threads_allowed, [None], timeout_s=60, threads=2) == [2]


@pytest.mark.slow
def test_a_group_adds_over_the_ranks_and_listens_on_loopback_alone() -> None:
    for total, addresses in run_processes(work.sum_over_ranks, [1, 2, 3], timeout_s=90):
        assert total == 6
        assert {address.split(":")[0] for address in addresses} == {LOOPBACK}


def test_a_rank_that_raises_is_named_with_its_action_and_its_traceback() -> None:
    error = failed(work.raise_on, [1, 1])
    assert (error.rank, error.doing) == (1, "1B2")
    assert str(error).startswith("rank 1 raised LookupError in 1B2.\nTraceback")
    assert "LookupError: no such micro-batch" in str(error)
    assert "in raise_on" in str(error)
    assert "\nrank 0: in 1B2 for" in str(error) or "\nrank 0: in its start for" in str(error)


@pytest.mark.parametrize(
    ("function", "ending"),
    [
        (work.exit_on, "rank 1 died with exit code 3 in 1B2."),
        (work.leave_on, "rank 1 raised SystemExit in its work."),
        (work.kill_oneself_on, "rank 1 died of SIGKILL in 0W1."),
        (work.crash_on, "rank 1 died of SIGSEGV in 0I7."),
    ],
)
def test_a_rank_that_dies_is_named_with_its_action_and_how_it_died(function: Callable[..., Any], ending: str) -> None:
    error = failed(function, [1, 1])
    assert error.rank == 1
    assert str(error).startswith(ending)


def test_a_crash_in_machine_code_has_its_traceback() -> None:
    error = failed(work.crash_on, [0])
    assert "Segmentation fault" in str(error)
    assert "in crash_on" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"timeout_s": 4.0}, {"silence_s": 1.0}])
def test_a_rank_that_hangs_is_named_with_its_action_and_its_stack_not_those_that_wait(limits: dict[str, float]) -> None:
    error = failed(work.hang_on, [1, 1, 1], **limits)
    assert (error.rank, error.doing) == (1, "2F0")
    assert str(error).startswith("rank 1 hangs, silent for ")
    assert all(f"{key}={limit:g}" in str(error) for key, limit in limits.items())
    assert "in hang_on" in str(error)
    assert "rank 0: in 3RECV_F0, waiting for rank 1 for" in str(error)
    assert "rank 2: had ended" in str(error)


def test_ranks_that_wait_for_each_other_are_said_to() -> None:
    error = failed(work.wait_in_a_circle, [None, None], silence_s=1.0)
    message = str(error)
    assert f"in {error.rank}RECV_F0" in message
    assert f"rank {1 - error.rank}: in {1 - error.rank}RECV_F0, waiting for rank {error.rank}" in message


@pytest.mark.slow
def test_who_tells_something_is_not_silent() -> None:
    assert run_processes(work.tell_often, [2.0], timeout_s=BOUND_S, silence_s=0.8) == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "ending"),
    [("raises", "raised LookupError"), ("dies", "died with exit code 3"), ("is killed", "died of SIGKILL")],
)
def test_ranks_in_a_collective_do_not_hide_the_one_that_failed(way: str, ending: str) -> None:
    error = failed(work.fail_while_others_reduce, [way] * 3, timeout_s=90)
    assert (error.rank, error.doing) == (1, "round 2")
    assert str(error).startswith(f"rank 1 {ending} in round 2.")


@pytest.mark.slow
def test_what_a_rank_started_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    failed(work.start_a_sleeper, [str(file)], timeout_s=3)
    assert becomes(lambda: not alive(int(file.read_text())))


def test_a_result_that_cannot_travel_is_the_ranks_failure() -> None:
    error = failed(work.give_what_cannot_travel, [None])
    assert "give_what_cannot_travel.<locals>.<lambda>" in str(error)


def test_work_that_cannot_be_imported_is_refused_before_anything_starts() -> None:
    with pytest.raises(Exception, match="lambda"):
        run_processes(lambda seat, given: None, [None], timeout_s=BOUND_S)


def launched(folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A launcher in a process of its own, and its two workers at work."""
    launcher = subprocess.Popen([sys.executable, work.__file__, str(folder)], stderr=subprocess.DEVNULL, cwd=folder)
    files = [folder / str(rank) for rank in range(2)]
    assert becomes(lambda: all(file.exists() and file.read_text() for file in files), within_s=BOUND_S)
    return launcher, [int(file.read_text()) for file in files]


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_when_their_launcher_ends_however_it_ends(blow: signal.Signals, tmp_path: Path) -> None:
    launcher, pids = launched(tmp_path)
    assert all(map(alive, pids))
    launcher.send_signal(blow)
    launcher.wait(10)
    assert becomes(lambda: not any(map(alive, pids)))
