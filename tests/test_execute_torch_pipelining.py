"""PyTorch's own pipeline runtime finds the gradients of one process from our schedules, and from its own."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from pipesim.execute import torch_pipelining as peer
from pipesim.execute.batch import random_batches
from pipesim.execute.job import Job
from pipesim.execute.run import execute
from pipesim.execute.torch_pipelining import OWN_CLASSES, UNSUITED, Csv, Order, PeerRun
from pipesim.schedules import make_schedule, read_schedule, schedule_names, stages_per_rank
from pipesim.toy.gpt import Gpt, GptSpec

TOLERANCE = 1e-12
P, M = 2, 4
SUITED = [name for name in schedule_names() if name not in UNSUITED]


def job(name: str, *, p: int = P, m: int = M, tied: bool = False, **others: object) -> Job:
    v = stages_per_rank(name)
    options = {"segments": 2} if name == "seq1f1b" else {}
    model = GptSpec(vocab=20, context=8, width=8, blocks=max(2, p * v - 2), heads=2, tied=tied)
    given = {"micro_batches": (2,) * m, "length": 8, "dtype": "float64"} | others
    return Job(schedule=make_schedule(name, p=p, m=m, v=v, **options), model=model, **given)


def order(job: Job, csv: Csv | None = Csv.COMPUTING) -> Order:
    torch.manual_seed(1)
    state = dict(Gpt(job.model).to(job.torch_dtype).named_parameters())
    return Order(job, {name: weight.detach() for name, weight in state.items()}, random_batches(job)[0], csv)


def alone(order: Order) -> PeerRun:
    """One process, one backward, the whole model."""
    model = Gpt(order.job.model).to(order.job.torch_dtype)
    model.load_state_dict(dict(order.state), strict=not order.job.model.tied)
    logits, targets = model(order.batch[0, :, :-1]), order.batch[0, :, 1:]
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    return PeerRun(loss=loss.item(), gradients={name: each.grad for name, each in model.named_parameters()})


def furthest(run: PeerRun, reference: PeerRun) -> float:
    """The largest difference of loss and gradients, relative to the largest entry of each."""
    assert run.gradients.keys() == reference.gradients.keys()
    apart = [abs(run.loss - reference.loss) / reference.loss]
    for name, gradient in reference.gradients.items():
        apart.append(((run.gradients[name] - gradient).abs().max() / gradient.abs().max()).item())
    return max(apart)


def ours(order: Order) -> PeerRun:
    """Our executor, a thread for each rank."""
    done = execute(order.job, order.state, [order.batch], mode="threads")
    return PeerRun(loss=done.losses[0], gradients=dict(done.gradients))


def assert_all_equal_one_process_and_ours(orders: list[Order]) -> None:
    torch.set_num_threads(1)
    for each, run in zip(orders, peer.run(orders, timeout_s=300), strict=True):
        assert furthest(run, alone(each)) < TOLERANCE, (each.job.schedule.name, each.csv)
        assert furthest(run, ours(each)) < TOLERANCE, (each.job.schedule.name, each.csv)


@pytest.mark.alone
@pytest.mark.slow
def test_a_schedule_by_pytorchs_runtime_has_the_gradients_of_one_process() -> None:
    assert_all_equal_one_process_and_ours([order(job("zb_h1"))])


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("csv", Csv)
def test_every_family_with_a_rank_for_each_stage_runs_in_pytorchs_runtime(csv: Csv) -> None:
    assert_all_equal_one_process_and_ours([order(job(name), csv) for name in SUITED])


@pytest.mark.alone
@pytest.mark.slow
def test_pytorchs_own_classes_agree_too() -> None:
    assert_all_equal_one_process_and_ours([order(job(name), None) for name in OWN_CLASSES])


@pytest.mark.alone
@pytest.mark.slow
def test_on_four_ranks_too() -> None:
    names = ["1f1b", "interleaved_1f1b", "zb_h2", "zbv", "dualpipev", "hanayo"]
    given = [order(job(name, p=4, m=8)) for name in names]
    assert_all_equal_one_process_and_ours(
        [*given, *(order(job(name, p=4, m=8), None) for name in ("zbv", "dualpipev"))]
    )


@pytest.mark.alone
@pytest.mark.slow
def test_a_tied_table_has_the_sum_of_both_gradients_on_whichever_stages_it_is() -> None:
    assert_all_equal_one_process_and_ours([order(job(name, tied=True)) for name in ("1f1b", "zbv")])


@pytest.mark.alone
@pytest.mark.slow
def test_a_schedule_from_a_file_runs_as_well() -> None:
    schedule = read_schedule("0F0,0F1,0B1,0I0,0W0\n1F0,1F1,1I1,1B0,1W1\n")
    given = job("1f1b", m=2)
    own = Job(schedule=schedule, model=given.model, micro_batches=(3, 3), length=8, dtype="float64")
    assert_all_equal_one_process_and_ours([order(own), order(own, Csv.TRANSFERS)])


@pytest.mark.parametrize("name", schedule_names())
def test_the_families_that_pytorch_cannot_run_are_those_of_the_list(name: str) -> None:
    found = peer.problems(order(job(name)))
    assert bool(found) == (name in UNSUITED)
    assert not found or UNSUITED[name] in found[0]


def test_what_pytorch_cannot_run_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match=r"dualpipe: a stage is on two ranks.*Nearest: dualpipev"):
        peer.run([order(job("dualpipe"))], timeout_s=60)
    with pytest.raises(ValueError, match="PyTorch has no class for schedule zb_h1"):
        peer.run([order(job("zb_h1"), None)], timeout_s=60)
    with pytest.raises(ValueError, match=r"schedules of \[2, 4\] ranks cannot share processes"):
        peer.run([order(job("1f1b")), order(job("1f1b", p=4))], timeout_s=60)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"micro_batches": (3, 2, 2, 2)}, "one shape. Nearest: 4 of 2"),
        ({"d": 2}, "d=2: .* Nearest: d=1"),
        ({"t": 2}, "t=2: .* Nearest: t=1"),
        ({"steps": 3}, "steps=3: .* Nearest: steps=1"),
        ({"dropout": 0.1}, "dropout=0.1: .* Nearest: dropout=0"),
    ],
)
def test_jobs_beyond_the_comparison_are_refused_with_what_works(others: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        peer.run([order(job("1f1b", **others))], timeout_s=60)


def test_losses_out_of_order_are_refused_for_pytorch_would_mistake_them() -> None:
    schedule = read_schedule("0F1,0F0,0B1,0B0\n1F1,1F0,1B1,1B0\n")
    given = job("1f1b", m=2)
    own = Job(schedule=schedule, model=given.model, micro_batches=(2, 2), length=8)
    assert "do not run in the order" in peer.problems(order(own))[0]


def test_this_version_of_torch_is_one_it_was_tested_with() -> None:
    peer.check_version()
    assert torch.__version__.startswith(peer.TESTED_VERSIONS)


def test_a_torch_without_the_runtime_is_refused_with_one_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(peer.private, "_PipelineScheduleRuntime")
    with pytest.raises(RuntimeError, match=r"no _PipelineScheduleRuntime._load_csv .* pip install 'torch==2.13"):
        peer.run([order(job("1f1b"))], timeout_s=60)
