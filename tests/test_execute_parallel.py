"""Tensor and data parallelism, alone and together with pipelines, compute what the uncut model computes."""

from __future__ import annotations

import pytest
import torch
from execute_cases import job

from pipesim.execute import data_parallel, layout, optimizers, tensor_parallel
from pipesim.execute.equality import check_equal, errors, sums_alike
from pipesim.execute.groups import Alone
from pipesim.execute.job import Job, Place, places
from pipesim.execute.reference import initial_state, reference
from pipesim.execute.run import execute
from pipesim.schedules import schedule_names
from pipesim.simulate import simulate

CUBE = {"t": 2, "d": 2}


def check(made: Job, mode: str = "threads") -> None:
    torch.set_num_threads(1)
    executed, wanted = execute(made, mode=mode), reference(made)
    check_equal(executed, wanted, made)
    assert executed.unlike_copies == ()
    assert executed.peak_live == simulate(made.schedule).peak_inflight
    assert executed.link_bytes == layout.link_bytes(made)
    if sums_alike(made):
        assert {each.relative_error for each in errors(executed, wanted, made)} == {0.0}


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipe", "seq1f1b"])
def test_layers_divided_over_two_ranks_compute_the_same(name: str, sequence_parallel: bool) -> None:
    check(job(name, 2, 4, t=2, sequence_parallel=sequence_parallel, dropout=0.2))


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("name", ["1f1b", "zbv", "chimera"])
def test_replicas_sum_their_gradients(name: str, zero: int) -> None:
    check(job(name, 2, 4, d=2, zero=zero))


def test_three_replicas_with_shards_of_uneven_parameters_compute_the_same() -> None:
    check(job("1f1b", 2, 3, d=3, zero=1, tied=True))


@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "dualpipe"])
def test_two_by_two_by_two_threads_compute_the_same(name: str) -> None:
    check(job(name, 2, 4, **CUBE, zero=1, sequence_parallel=True, tied=True, dropout=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("name", schedule_names())
def test_every_schedule_runs_on_two_by_two_by_two_threads(name: str) -> None:
    check(job(name, 2, 4, **CUBE))


def test_a_sharded_adam_takes_the_steps_of_a_whole_one() -> None:
    made = job("1f1b", 2, 4, d=2, zero=1, optimizer="adam", learning_rate=0.01)
    executed, wanted = execute(made, mode="threads"), reference(made)
    assert {each.relative_error for each in errors(executed, wanted, made)} == {0.0}


def test_a_shard_holds_its_part_of_the_optimizer_s_state_only() -> None:
    weights = [torch.zeros(3, 4), torch.zeros(5)]
    whole = data_parallel.share(weights, Alone(), 0, "adam", 0.1)
    part = data_parallel.share(weights, Alone(rank=1, size=4), 1, "adam", 0.1)
    assert isinstance(whole.optimizer, optimizers.Adam)
    assert isinstance(part.optimizer, optimizers.Adam)
    assert (whole.optimizer.mean.numel(), part.optimizer.mean.numel()) == (17, 5)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_optimizers_step_as_pytorch_s_do(kind: str) -> None:
    torch.manual_seed(0)
    ours = torch.randn(50, dtype=torch.float64)
    theirs = ours.clone().requires_grad_()
    made = optimizers.make(kind, 0.1, ours)
    wanted = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind]([theirs], lr=0.1)
    for _ in range(5):
        theirs.grad = torch.randn(50, dtype=torch.float64)
        made.step(ours, theirs.grad)
        wanted.step()
    assert torch.equal(ours, theirs.detach())


@pytest.mark.parametrize("t", [1, 2, 4])
def test_parameters_are_what_their_parts_are_united_to(t: int) -> None:
    state = initial_state(job("1f1b", 2, 2))
    for name, whole in state.items():
        parts = [tensor_parallel.divide(name, whole, t, rank) for rank in range(t)]
        assert torch.equal(tensor_parallel.unite(name, parts), whole)
        assert parts[0].numel() == whole.numel() // (t if tensor_parallel.is_divided(name) else 1)


def test_query_key_and_value_are_divided_by_heads() -> None:
    rows = torch.arange(24)[:, None].expand(24, 8)
    part = tensor_parallel.divide("blocks.0.qkv.weight", rows, 2, 1)
    assert part[:, 0].tolist() == [*range(4, 8), *range(12, 16), *range(20, 24)]


def test_processes_are_numbered_with_tensor_ranks_as_neighbours() -> None:
    made = job("1f1b", 2, 2, **CUBE)
    assert [place.number(made) for place in places(made)] == list(range(8))
    assert layout.team(made, Place(1, 0, 1)) == (4, 5)
    assert layout.copies(made, Place(1, 0, 1), (1,)) == (5, 7)
    tied = job("1f1b", 2, 2, tied=True)
    assert layout.holders(tied)["tokens.weight"] == (0, 1)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", ["1f1b", "zbv", "chimera", "seq1f1b"])
def test_two_processes_compute_the_same(name: str) -> None:
    check(job(name, 2, 4, tied=True, dropout=0.1), "processes")


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", ["zb_h1", "dualpipe"])
def test_two_by_two_by_two_processes_compute_the_same(name: str) -> None:
    check(job(name, 2, 4, **CUBE, zero=1, sequence_parallel=True, tied=True), "processes")


@pytest.mark.alone
@pytest.mark.slow
def test_four_processes_compute_every_bit_of_the_reference() -> None:
    made = job("zbv", 4, 6)
    assert sums_alike(made)
    check(made, "processes")
