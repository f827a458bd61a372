"""Every schedule computes what the uncut model computes: losses, gradients and, after three steps, weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from execute_cases import job, job_of
from torch.nn import functional

from pipesim.execute.batch import random_batches
from pipesim.execute.equality import check_equal, errors, sums_alike
from pipesim.execute.job import Job
from pipesim.execute.reference import initial_state, reference
from pipesim.execute.run import execute
from pipesim.schedules import make_schedule, problems, read_schedule, schedule_names
from pipesim.toy.gpt import Gpt

IN_ORDER = {
    "naive", "gpipe", "1f1b", "eager_1f1b", "interleaved_1f1b", "interleaved_zb", "zb_h1", "zb_h2", "zbv", "v_half",
    "v_min", "1f1b_v", "dualpipev", "hanayo", "auto",
}  # fmt: skip
"""Families that take each stage's weight gradients from the first micro-batch to the last: every bit must be right."""


def matrix(sizes: list[tuple[int, int]]) -> list[tuple[str, int, int]]:
    """Every family with every (p, m) that it takes."""
    return [(name, p, m) for name in schedule_names() for p, m in sizes if not problems(name, p, m)]


def check(made: Job) -> None:
    """Equal within the precision's tolerance, copies alike, and where sums are taken alike equal to the bit."""
    torch.set_num_threads(1)
    executed, wanted = execute(made, mode="threads"), reference(made)
    check_equal(executed, wanted, made)
    assert executed.unlike_copies == ()
    if sums_alike(made):
        assert {each.relative_error for each in errors(executed, wanted, made)} == {0.0}


@pytest.mark.parametrize(("name", "p", "m"), matrix([(2, 3)]))
def test_every_schedule_computes_what_the_uncut_model_computes(name: str, p: int, m: int) -> None:
    check(job(name, p, m))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "p", "m"), matrix([(1, 2), (2, 8), (3, 5), (4, 8), (5, 6)]))
def test_every_schedule_computes_it_for_more_sizes(name: str, p: int, m: int) -> None:
    check(job(name, p, m))


@pytest.mark.parametrize("name", ["interleaved_1f1b", "looped_bfs", "interleaved_zb", "hanayo"])
def test_more_stages_per_rank_compute_the_same(name: str) -> None:
    check(job(name, 2, 4, v=4))


@pytest.mark.parametrize("name", schedule_names())
def test_the_families_whose_sums_are_the_reference_s_are_known(name: str) -> None:
    assert sums_alike(job(name, 4, 6)) == (name in IN_ORDER)


def test_any_csv_runs_also_with_whole_and_split_backwards_mixed_and_a_stage_on_two_ranks() -> None:
    rows = "0F0,1F1,,0F2,0I0,(1F3;0B2)OVERLAP_F_B,1B3,1I1,0W0,1W1\n1F0,1B0,0F1,1F2,1I2,0F3,1W2,0B3,0B1\n"
    check(job_of(read_schedule(rows)))


@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipe", "seq1f1b"])
def test_float32_agrees_to_a_hundred_thousandth(name: str) -> None:
    check(job(name, 2, 4, dtype="float32"))


@pytest.mark.parametrize("name", ["1f1b", "zbv", "dualpipe", "chimera", "seq1f1b", "looped_bfs"])
def test_tied_embeddings_are_summed_once(name: str) -> None:
    check(job(name, 2, 4, tied=True))


def test_tied_embeddings_on_one_rank_are_one_parameter() -> None:
    made = job("1f1b_v", 2, 4, tied=True)
    assert made.units[0][0] == "embedding"
    assert made.units[-1][-1] == "head"
    check(made)


@pytest.mark.parametrize("name", ["1f1b", "zb_h1", "dualpipe", "seq1f1b"])
def test_dropout_falls_alike_in_every_cut(name: str) -> None:
    check(job(name, 2, 4, dropout=0.3))


@pytest.mark.parametrize("name", ["1f1b", "zbv", "seq1f1b"])
def test_adam_takes_the_same_steps(name: str) -> None:
    made = job(name, 2, 4, optimizer="adam", learning_rate=0.01)
    executed, wanted = execute(made, mode="threads"), reference(made)
    assert max(each.relative_error for each in errors(executed, wanted, made)) <= (0.0 if sums_alike(made) else 1e-8)


@pytest.mark.parametrize("partition", [(1, 1, 1, 3), (1, 3, 1, 1), (2, 2, 1, 1)])
def test_uneven_partitions_compute_the_same(partition: tuple[int, ...]) -> None:
    made = job("1f1b", 4, 4)
    check(replace(made, partition=partition, model=replace(made.model, blocks=4)))


@pytest.mark.parametrize("segments", [1, 2, 4])
def test_segments_see_the_keys_of_those_before_them(segments: int) -> None:
    check(job_of(make_schedule("seq1f1b", p=2, m=3, segments=segments)))


def test_the_reference_is_the_mean_over_all_tokens_of_the_batch_in_one_go() -> None:
    made = job("gpipe", 1, 3, steps=1, d=2)
    state, (batch,) = initial_state(made), random_batches(made)
    model = Gpt(made.model).double()
    model.load_state_dict(state, strict=not made.model.tied)
    rows = batch.flatten(0, 1)
    loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    loss.backward()
    wanted = reference(made, state, [batch])
    assert math.isclose(wanted.losses[0], loss.item(), rel_tol=1e-13)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(wanted.gradients[name], weight.grad, rtol=1e-12, atol=1e-15)


def test_the_same_job_gives_the_same_bits() -> None:
    made = job("zbv", 2, 4, dropout=0.1)
    first, second = (execute(made, mode="threads") for _ in range(2))
    assert first.losses == second.losses
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
