"""Batches that grow while a training goes on: phases, as tokens say them or as Megatron-LM does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipesim.checks import Invalid

KEY, MEGATRON = "task.goodput.ramp", "task.goodput.rampup_batch_size"


class Phase(NamedTuple):
    """``steps`` of ``batch`` sequences, so many that ``end`` sequences in all are done: the first step at or behind it."""

    batch: int
    steps: int
    end: int


def phases(asked: Mapping[str, Any], global_batch: int, group: int, seq_length: int) -> list[Phase]:
    """The phases of a training, the last one with ``global_batch``. ``group`` is micro_batch x d, which divides every batch.

    Raises ``Invalid`` with every rule that the ramp breaks.
    """
    if asked["ramp"] and asked["rampup_batch_size"]:
        raise Invalid([f"{KEY} and {MEGATRON} are both given. Nearest: {MEGATRON}=[]."])
    key = MEGATRON if asked["rampup_batch_size"] else KEY
    if asked["rampup_batch_size"]:
        until, batches = _megatron(asked["rampup_batch_size"], global_batch)
    else:
        until, batches = _given(asked["ramp"], asked["tokens"], seq_length)
    found = [f"{key}: {_uneven(batch, group)}" for batch in dict.fromkeys(batches) if batch % group]
    if found:
        raise Invalid(found)
    total = asked["tokens"] / seq_length
    return _walk([*(min(each, total) for each in until), total], [*batches, global_batch])


def _uneven(batch: int, group: int) -> str:
    below = batch // group * group
    nearest = " or ".join(str(each) for each in (below, below + group) if each)
    return f"batch {batch} is no multiple of training.micro_batch x parallel.d = {group}. Nearest: {nearest}."


def _walk(until: Sequence[float], batches: Sequence[int]) -> list[Phase]:
    done, found = 0, []
    for end, batch in zip(until, batches, strict=True):
        steps = max(0, math.ceil((end - done) / batch))
        done += steps * batch
        found.append(Phase(batch, steps, done))
    return found


def _given(ramp: Sequence[Any], tokens: float, seq_length: int) -> tuple[list[float], list[int]]:
    problems = [
        f"{KEY}: {row} must be [until this token, batch], two numbers." for row in ramp if not _two_numbers(row)
    ]
    if problems:
        raise Invalid(problems)
    for before, (end, batch) in zip([0.0, *(row[0] for row in ramp)], ramp, strict=False):
        if batch != int(batch) or batch < 1:
            problems.append(
                f"{KEY}: batch {batch:g} must be a whole number of at least 1. Nearest: {max(1, round(batch))}."
            )
        if not before < end <= tokens:
            problems.append(
                f"{KEY}: a phase until token {end:g} must end behind the one before ({before:g}) and within "
                f"task.goodput.tokens={tokens:g}. Nearest: {max(before, min(end, tokens)):g}."
            )
    if problems:
        raise Invalid(problems)
    return [end / seq_length for end, _ in ramp], [int(batch) for _, batch in ramp]


def _two_numbers(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and all(isinstance(x, int | float) and math.isfinite(x) for x in row)


def _megatron(given: Sequence[int], global_batch: int) -> tuple[list[float], list[int]]:
    """The batch grows by ``increment`` whenever another equal share of ``samples`` is done.

    Source: Megatron-LM, ``--rampup-batch-size START INCREMENT SAMPLES`` and its calculator of micro-batches.
    """
    if len(given) != 3 or min(given) < 1:
        raise Invalid([f"{MEGATRON}={list(given)} must be [first batch, increment, samples], each at least 1."])
    start, increment, samples = given
    growth = global_batch - start
    if growth < 0 or growth % increment:
        nearest = [each for each in (growth // increment, growth // increment + 1) if growth > 0 and each > 0]
        firsts = [global_batch - each * increment for each in nearest if global_batch > each * increment]
        can = f"Nearest: a first batch of {' or '.join(map(str, firsts or [global_batch]))}."
        raise Invalid(
            [
                f"{MEGATRON}={list(given)}: increments of {increment} do not lead from {start} to "
                f"training.global_batch={global_batch}. {can}"
            ]
        )
    rises = growth // increment
    return [(k + 1) * samples / rises for k in range(rises)], [start + k * increment for k in range(rises)]
