"""A rank of the executor that raises, dies or hangs is named with its action, and what cannot run never starts."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial

import pytest

pytest.importorskip("torch")

import fault_work
import torch
from fault_work import Fault
from leftovers import becomes, belongings

from pipesim.execute import actions, distributed
from pipesim.execute.batch import random_batches
from pipesim.execute.failures import RankFailed
from pipesim.execute.job import Job, even_micro_batches, problems
from pipesim.execute.launch import run_processes
from pipesim.execute.run import execute
from pipesim.schedules import make_schedule
from pipesim.toy.gpt import GptSpec

pytestmark = pytest.mark.alone
MODEL = GptSpec(vocab=20, context=8, width=8, blocks=2, heads=2)


def job(name: str = "1f1b", *, p: int = 2, m: int = 4, model: GptSpec = MODEL, **others: object) -> Job:
    options = {"segments": 2} if name == "seq1f1b" else {}
    given = {"micro_batches": (1,) * m, "length": 8} | others
    return Job(schedule=make_schedule(name, p=p, m=m, **options), model=model, **given)


@pytest.fixture(autouse=True, scope="module")
def _torch_has_opened_what_it_keeps() -> None:
    run_processes(fault_work.work, [], timeout_s=10)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = belongings()
    yield
    assert becomes(lambda: belongings() == before), (before, belongings())


def failed(monkeypatch: pytest.MonkeyPatch, fault: Fault, job: Job, timeout_s: float = 90.0) -> RankFailed:
    monkeypatch.setattr(distributed, "work", partial(fault_work.work, fault))
    with pytest.raises(RankFailed) as caught:
        execute(job, timeout_s=timeout_s)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize("action", ["1B2", "0F3", "1F0"])
def test_a_rank_that_raises_is_named_with_its_action_and_traceback(
    monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    error = failed(monkeypatch, Fault(action, "raises"), job())
    assert (error.rank, error.doing) == (int(action[0]), action)
    assert str(error).startswith(f"rank {error.rank} raised FloatingPointError in {action}.\nTraceback")
    assert "FloatingPointError: a gradient is not a number" in str(error)
    assert "in strike" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "ending"), [("exits", "died with exit code 3"), ("is killed", "died of SIGKILL")])
def test_a_rank_that_dies_is_named_among_four(monkeypatch: pytest.MonkeyPatch, way: str, ending: str) -> None:
    model = GptSpec(vocab=20, context=8, width=8, blocks=6, heads=2)
    error = failed(monkeypatch, Fault("5I1", way), job("zbv", p=4, model=model))
    assert (error.rank, error.doing) == (2, "5I1")
    assert str(error).startswith(f"rank 2 {ending} in 5I1.")


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_not_those_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failed(monkeypatch, Fault("1B2", "hangs"), job(), timeout_s=25)
    assert (error.rank, error.doing) == (1, "1B2")
    assert str(error).startswith("rank 1 hangs, silent for ")
    assert "(timeout_s=25 is over), in 1B2." in str(error)
    assert "in strike" in str(error)
    assert "rank 0: in 0B2, waiting for rank 1 for" in str(error)


@pytest.mark.slow
def test_one_of_two_replicas_that_dies_ends_both(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failed(monkeypatch, Fault("1B2", "exits"), job(d=2))
    assert error.rank in (2, 3)
    assert error.doing == "1B2"


def test_a_thread_that_raises_is_named_as_a_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "run", fault_work.faulty(Fault("1B2", "raises")))
    with pytest.raises(RankFailed, match=r"1B2(?s:.)*FloatingPointError: a gradient is not a number") as caught:
        execute(job(), mode="threads", timeout_s=60)
    assert (caught.value.rank, caught.value.doing) == (1, "1B2")


def test_a_thread_that_hangs_is_named_not_those_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(Fault, "strike", lambda _: goes_on.wait(60))
    monkeypatch.setattr(actions, "run", fault_work.faulty(Fault("1B2", "hangs")))
    try:
        with pytest.raises(RankFailed, match=r"rank 1 hangs, silent for .* in 1B2\.") as caught:
            execute(job(), mode="threads", timeout_s=2)
    finally:
        goes_on.set()
    assert (caught.value.rank, caught.value.doing) == (1, "1B2")
    assert "goes_on.wait(60)" in str(caught.value)
    assert "rank 0: in 0B2, waiting for rank 1 for" in str(caught.value)


REFUSED = [
    (job(p=6), "6 stages need at least one unit each; 2 blocks, embedding and head are 4. Nearest: 4 stages"),
    (job(micro_batches=even_micro_batches(7, 1)), "micro_batches has 7 entries; 1f1b runs 4 micro-batches"),
    (job(micro_batches=(1, 1, 0, 1)), "micro_batches[2]=0 must be at least 1 sequence. Nearest: 1."),
    (job("seq1f1b", length=7), "length=7 does not divide into 2 segments. Nearest: 6."),
    (job(length=9), "length=9 exceeds the model's context of 8. Nearest: 8."),
    (job(t=4), "t=4 must divide the model's 2 heads. Nearest: t=2."),
    (job(partition=(1, 2)), "partition=(1, 2) has 3 units; the model has 4."),
]


@pytest.mark.parametrize(("bad", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_does_not_divide_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, bad: Job, message: str
) -> None:
    monkeypatch.setattr(distributed, "run_processes", _must_not_start)
    with pytest.raises(ValueError, match=re.escape(message)):
        execute(bad)


def test_too_few_gpus_for_the_processes_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert problems(job(d=2, device="cuda")) == [
        "t=1 x p=2 x d=2 needs 4 GPUs, one per process; this machine has 3. Nearest: device=cpu."
    ]
    assert problems(job(device="cuda")) == []


def test_a_batch_of_another_size_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "run_processes", _must_not_start)
    (batch,) = random_batches(job())
    with pytest.raises(ValueError, match=r"need int64 of shape \(1, 4, 9\)"):
        execute(job(), batches=[batch[:, :3]])


def _must_not_start(*_: object, **__: object) -> None:
    raise AssertionError("processes were started")
