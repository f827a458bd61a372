"""Runs that are wrong on purpose: the check of equality catches each and names the first parameter and its stage."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from execute_cases import job
from torch import Tensor

from pipesim.execute import actions, data_parallel, interpreter, layers, stages
from pipesim.execute.batch import micro_batch
from pipesim.execute.equality import Unequal, check_equal, differences
from pipesim.execute.groups import Alone, Group
from pipesim.execute.job import Job
from pipesim.execute.live import Activation
from pipesim.execute.reference import reference
from pipesim.execute.run import execute
from pipesim.schedules.action import Action, Op


def caught(made: Job, first: str, stage: int) -> None:
    torch.set_num_threads(1)
    executed, wanted = execute(made, mode="threads"), reference(made)
    with pytest.raises(Unequal, match=re.escape(f"the gradient of {first} (stage {stage}) differs by")):
        check_equal(executed, wanted, made)
    assert differences(executed, wanted, made)[0].relative_error > 1e-4


def test_a_mean_of_means_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = job("1f1b", 2, 3, steps=1)
    right = stages.loss

    def mean_of_means(x: Tensor, call: stages.Call) -> Tensor:
        assert call.targets is not None
        return right(x, call) * call.batch_tokens / call.targets.numel() / len(made.micro_batches)

    monkeypatch.setattr(stages, "loss", mean_of_means)
    caught(made, "tokens.weight", 0)


def test_a_lost_accumulation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = job("1f1b", 2, 3, steps=1)

    def last_one_wins(weight: Tensor, gradient: Tensor) -> None:
        if weight.shape == (made.model.vocab, made.model.width) and weight.grad is not None:
            weight.grad = gradient  # of the token table and the head
        else:
            right(weight, gradient)

    right = layers.accumulate
    monkeypatch.setattr(layers, "accumulate", last_one_wins)
    caught(made, "tokens.weight", 0)


def test_a_tied_weight_that_is_not_summed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = data_parallel.share

    def alone(weights: list[Tensor], group: Group, *choices: Any) -> data_parallel.Share:
        return right(weights, Alone(), *choices)

    monkeypatch.setattr(data_parallel, "share", alone)
    made = job("1f1b", 2, 3, steps=1, tied=True)
    caught(made, "tokens.weight", 0)
    assert [each.parameter for each in differences(execute(made, mode="threads"), reference(made), made)] == [
        "tokens.weight", "tokens.weight",
    ]  # fmt: skip
    assert execute(made, mode="threads").unlike_copies == ("tokens.weight",)


def test_a_weight_used_twice_in_a_split_backward_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(activation: Activation, work: Any) -> None:
        work()  # in the I as well …
        if not activation.now:
            activation.owed.append(work)  # … as in the W

    monkeypatch.setattr(Activation, "owe", twice)
    caught(job("zb_h1", 3, 4, steps=1), "tokens.weight", 0)


def test_swapped_micro_batches_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(bench: actions.Bench, number: int, start: int) -> Tensor:
        return micro_batch(bench.job, bench.batch, {0: 1, 1: 0}.get(number, number))[1]

    monkeypatch.setattr(actions, "_targets", swapped)
    caught(job("1f1b", 2, 3, steps=1), "tokens.weight", 0)


def test_one_stage_s_missing_gradient_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    made = job("1f1b", 3, 4, steps=1)
    right = actions.run

    def forgets(action: Action, given: Tensor | None, bench: actions.Bench) -> Tensor | None:
        output = right(action, given, bench)
        if action.stage == 1 and action.op == Op.B:
            for weight in bench.weights.values():
                weight.grad = None
        return output

    monkeypatch.setattr(interpreter.actions, "run", forgets)
    first = f"{made.units[1][0]}.attention_norm.weight"
    caught(made, first, 1)


def test_an_error_is_relative_to_the_largest_element_and_a_nan_is_never_equal() -> None:
    from pipesim.execute.equality import relative_error

    assert relative_error(torch.tensor([1.0, 8.0]), torch.tensor([2.0, 8.0])) == 1 / 8
    assert relative_error(torch.zeros(2), torch.zeros(2)) == 0
    made = job("1f1b", 2, 2, steps=1)
    executed, wanted = execute(made, mode="threads"), reference(made)
    executed.gradients["norm.bias"][0] = float("nan")
    assert [each.parameter for each in differences(executed, wanted, made)] == ["norm.bias"]
