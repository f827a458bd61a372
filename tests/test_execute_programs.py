"""One pass turns a schedule into programs that agree, and what cannot run is refused before anything starts."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from execute_cases import job

from pipesim.execute import actions, layout, partition
from pipesim.execute.batch import check_batches, random_batches
from pipesim.execute.clock import between
from pipesim.execute.job import check, even_micro_batches, problems
from pipesim.execute.launch import RankFailed
from pipesim.execute.programs import ReceiveFrom, Result, Run, SendTo, needed, programs
from pipesim.execute.reference import initial_state
from pipesim.execute.run import execute
from pipesim.schedules import lower, make_schedule, ranks_of_stages, schedule_names
from pipesim.schedules.action import Op, Schedule, parse
from pipesim.toy.gpt import GptSpec

BIDIRECTIONAL = ("dualpipe", "chimera")


@pytest.mark.parametrize("name", schedule_names())
def test_both_sides_of_a_pair_of_ranks_have_their_messages_in_one_order(name: str) -> None:
    every = programs(make_schedule(name, p=4, m=6))
    for one in range(4):
        for other in range(one):
            sides = [
                [(step.result, (a, b) if isinstance(step, SendTo) else (b, a)) for step in every[a].instructions
                 if not isinstance(step, Run) and step.peer == b]
                for a, b in ((one, other), (other, one))
            ]  # fmt: skip
            assert sides[0] == sides[1]


@pytest.mark.parametrize("name", schedule_names())
def test_what_is_needed_is_there_when_it_is_needed(name: str) -> None:
    schedule = make_schedule(name, p=4, m=6)
    for program in programs(schedule):
        there: set[Result | None] = {None}
        ran = []
        for step in program.instructions:
            if isinstance(step, ReceiveFrom):
                there.add(step.result)
            elif isinstance(step, SendTo):
                assert step.result.stage in {action.stage for action in ran}
            else:
                ran += step.actions
                there |= {
                    Result(Op.F if each.op == Op.F else Op.B, each.stage, each.micro_batch) for each in step.actions
                }
                assert {needed(action, schedule.stages) for action in step.actions} <= there
        assert "".join(map(str, ran)) == "".join(
            str(schedule.action(i)) for i in range(*schedule.rank_start[program.rank : program.rank + 2])
        )


@pytest.mark.parametrize("name", [name for name in schedule_names() if name not in BIDIRECTIONAL])
def test_programs_transfer_what_pytorch_s_lowering_does(name: str) -> None:
    schedule = make_schedule(name, p=4, m=6)
    transfers = sum(not isinstance(step, Run) for program in programs(schedule) for step in program.instructions)
    assert transfers == lower(schedule).transfers()


@pytest.mark.parametrize(
    ("name", "t"), [*((name, 1) for name in schedule_names()), *((name, 2) for name in ("1f1b", "dualpipe", "seq1f1b"))]
)
def test_measured_bytes_of_every_link_are_the_computed_ones(name: str, t: int) -> None:
    torch.set_num_threads(1)
    made = job(name, 2, 4, steps=1, t=t, sequence_parallel=t > 1)
    measured = execute(made, mode="threads").link_bytes
    assert measured == layout.link_bytes(made)
    if name not in BIDIRECTIONAL:
        v = made.schedule.stages // 2
        ranks = ranks_of_stages(name, 2, v)
        crossed = sum(a != b for a, b in pairwise(ranks))
        assert sum(measured.values()) == 2 * crossed * made.sequences * made.length * made.model.width * 8 // t


def test_units_are_cut_as_evenly_as_possible() -> None:
    model = GptSpec(blocks=4)
    assert [len(units) for units in partition.units_of_stages(model, 4, None)] == [1, 2, 1, 2]
    assert partition.units_of_stages(model, 2, (1, 5))[0] == ("embedding",)


def test_every_broken_rule_is_named_with_what_works() -> None:
    made = replace(
        job("1f1b", 4, 4), micro_batches=(2, 0), length=9, t=3, dtype="float16", optimizer="lion", partition=(3, 3, 0),
        steps=0, dropout=1.0, zero=3, device="tpu",
    )  # fmt: skip
    told = "\n".join(problems(made))
    for rule in (
        "micro_batches has 2 entries; 1f1b runs 4 micro-batches",
        "micro_batches[1]=0 must be at least 1 sequence. Nearest: 1.",
        "length=9 exceeds the model's context of 8. Nearest: 8.",
        "t=3 must divide the model's 2 heads. Nearest: t=2.",
        "dtype='float16' must be one of float32, float64.",
        "optimizer='lion' must be one of sgd, adam.",
        "zero=3 must be one of 0, 1.",
        "device='tpu' must be one of cpu, cuda.",
        "steps=0 must be at least 1.",
        "dropout=1.0 must be at least 0 and below 1.",
        "partition has 3 entries for 4 stages.",
        "leaves a stage without units",
        "has 6 units; the model has 4.",
    ):
        assert rule in told
    with pytest.raises(ValueError, match="Nearest"):
        check(made)


def test_more_stages_than_units_are_refused() -> None:
    made = job("1f1b", 6, 6)
    assert problems(replace(made, model=replace(made.model, blocks=3))) == [
        "6 stages need at least one unit each; 3 blocks, embedding and head are 5. Nearest: 5 stages, or a model of 4 "
        "blocks."
    ]


def test_lengths_that_do_not_divide_are_refused() -> None:
    made = job("seq1f1b", 2, 4, length=7)
    assert problems(made) == ["length=7 does not divide into 2 segments. Nearest: 6."]
    made = job("1f1b", 2, 4, length=7, t=2, sequence_parallel=True)
    assert problems(made) == [
        "length=7 does not divide into 1 segments x t=2 ranks of sequence parallelism. Nearest: 6."
    ]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("0F0,0B1,0F1,0B0\n1F0,1B0,1F1,1B1\n", "0B1 comes before 0F1"),
        ("0F0,0F1,0B0,0B1\n1F1,1B1,1F0\n", "1B0 is missing"),
        ("0F0,0B0,0F1,0B1\n1F1,1F0,1B1,1B0\n", "deadlocks"),
    ],
)
def test_orders_that_cannot_run_are_refused_before_anything_starts(rows: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        execute(from_rows(rows))


def from_rows(rows: str):  # type: ignore[no-untyped-def]
    schedule: Schedule = parse(rows)
    return replace(job("1f1b", 2, 2), schedule=schedule)


def test_gpus_that_are_not_there_are_refused() -> None:
    made = job("1f1b", 2, 2, device="cuda")
    missing = torch.cuda.device_count() < 2
    assert [told for told in problems(made) if "needs 2 GPUs, one per process" in told] or not missing


def test_batches_that_do_not_divide_are_refused() -> None:
    made = job("1f1b", 2, 2)
    good = random_batches(made)
    with pytest.raises(ValueError, match=r"the batch of step 0 has shape \(1, 2, 9\)"):
        check_batches(made, [batch[:, 1:] for batch in good])
    with pytest.raises(ValueError, match="2 batches for steps=3"):
        check_batches(made, good[1:])
    with pytest.raises(ValueError, match="the model knows 0 to 10"):
        check_batches(made, [batch + 5 for batch in good])
    assert even_micro_batches(7, 2) == (2, 2, 2, 1)


def test_weights_that_do_not_fit_are_refused() -> None:
    made = job("1f1b", 2, 2)
    state = initial_state(made)
    with pytest.raises(ValueError, match=r"head\.weight is missing"):
        execute(made, {name: state[name] for name in state if name != "head.weight"}, mode="threads")
    with pytest.raises(ValueError, match=r"norm\.bias has shape \(3,\)"):
        execute(made, state | {"norm.bias": torch.zeros(3)}, mode="threads")
    with pytest.raises(ValueError, match="mode='rays'"):
        execute(made, mode="rays")


def test_a_thread_that_raises_is_named_with_its_action_and_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    right = actions.run

    def fails(action, given, bench):  # type: ignore[no-untyped-def]
        if str(action) == "1F1":
            raise ArithmeticError("out of luck")
        return right(action, given, bench)

    monkeypatch.setattr(actions, "run", fails)
    before = threading.active_count()
    with pytest.raises(RankFailed, match=r"ArithmeticError: out of luck") as failed:
        execute(job("1f1b", 3, 4), mode="threads")
    assert (failed.value.rank, failed.value.doing) == (1, "1F1")
    for _ in range(100):
        if threading.active_count() == before:
            break
        threading.Event().wait(0.02)
    assert threading.active_count() == before


def test_a_clock_counts_as_the_same_if_the_round_trip_cannot_tell_it_apart() -> None:
    assert between(1.0, 1.4, 2.0) == 0.0
    assert between(1.0, 11.5, 2.0) == 10.0
