"""The report of a partition: what it gains, how to ask for it, and seconds and bytes of every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pipesim import schedules
from pipesim.legality import megatron_layout
from pipesim.plan.partition import Split
from pipesim.report.document import Axis, Bars, Block, Cell, Column, Document, Section, Table
from pipesim.report.formats import show
from pipesim.report.memory_words import memory_sure
from pipesim.report.say import english
from pipesim.specs import Point

LEAST_SHOWN = 5e-4
"""Of a step; smaller gains are told as none."""


class Told(NamedTuple):
    """One partition and its row with details."""

    name: str
    split: Split
    row: Mapping[str, Any]


def page(point: Point, told: Sequence[Told], bound_s: float, room: float) -> Document:
    """``told`` are the best, the balanced one and perhaps the one asked for; no partition is faster than ``bound_s``.
    ``room`` is the share of memory that shall stay free.
    """
    layout = point.layout
    title = (
        f"Partition of {point.model.name}, {point.model.layers} layers on p{layout.p} v{layout.v} of {point.cluster.name}: "
        f"t{layout.t} d{layout.d} b{point.training.micro_batch} {point.schedule}"
    )
    stages_of = _stages_of(point)
    answer: tuple[Block, ...] = (_answer(point, told, bound_s, room), _ways(told, bound_s), _use(point, told[0].split))
    sections = (
        Section(title="The answer", blocks=answer),
        Section(title="Every rank", blocks=(_ranks(told, stages_of), *_bars(told, stages_of))),
    )
    return Document(title=title, sections=sections)


def _answer(point: Point, told: Sequence[Told], bound_s: float, room: float) -> str:
    best, balanced = told[0].split, told[1].split
    gain = 1 - best.step_time_s / balanced.step_time_s
    step, limit = show(best.step_time_s, "seconds"), point.cluster.memory_bytes
    held = f"the heaviest rank holds {show(best.memory_bytes, 'bytes')} of {show(limit, 'bytes')}"
    sure = memory_sure(told[0].row, room, english)
    if not told[0].row["fits"]:
        lacks = show(best.memory_bytes - limit, "bytes")
        return (
            f"No partition that was found fits: the one that comes nearest lacks {lacks}, {held}.{sure} More t or p, a smaller "
            "micro-batch or more recomputation would help."
        )
    if best.partition == balanced.partition:
        text = f"The balanced partition is the best that was found: {step} a step, {held}."
    elif not told[1].row["fits"]:
        text = f"The balanced partition does not fit, another does: {step} a step, {held}."
    elif gain < LEAST_SHOWN:
        text = f"No partition that was found is noticeably faster than the balanced one: {step} a step, {held}."
    else:
        was = show(balanced.step_time_s, "seconds")
        text = (
            f"The best partition found takes {step} a step, {show(gain, 'percent')} less than balanced ({was}); {held}."
        )
    left = max(0.0, 1 - bound_s / best.step_time_s)
    return f"{text}{sure} No partition of this layout is faster than {show(bound_s, 'seconds')}, {show(left, 'percent')} less."


def _ways(told: Sequence[Told], bound_s: float) -> Table:
    columns = (
        Column(title="partition"), Column(title="step", kind="seconds"), Column(title="memory", kind="bytes"),
        Column(title="fits", kind="flag"), Column(title="slowest rank over mean", kind="number"),
        Column(title="bubble fraction", kind="percent"), Column(title="layers that run again", kind="count"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (
            each.name, each.split.step_time_s, each.split.memory_bytes, each.row["fits"], each.row["imbalance"],
            each.row["bubble_fraction"], None if each.split.recompute_layers is None else sum(each.split.recompute_layers),
        )
        for each in told
    ]  # fmt: skip
    note = "The bound holds for any partition and any order of the micro-batches; it need not be reached."
    last: tuple[Cell, ...] = ("bound of any", bound_s, *[None] * (len(columns) - 2))
    return Table(title="Ways to divide", columns=columns, rows=(*rows, last), emphasis=frozenset({0}), note=note)


def _use(point: Point, best: Split) -> str:
    text = megatron_layout.written(best.partition)
    parts = [f"Use it with parallel.partition={_list(best.partition)}"]
    if best.recompute_layers is not None:
        parts.append(f" training.recompute_layers={_list(best.recompute_layers)}")
    parts.append(f'. The same as a layout: --pipeline-model-parallel-layout "{text}" of Megatron-LM')
    if _stages_of(point) != _in_turns(point):
        parts.append(", which has no schedule that places stages as this one does")
    return "".join(parts) + "."


def _list(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _stages_of(point: Point) -> list[list[int]]:
    """Of each rank its stages."""
    layout = point.layout
    rank_of = schedules.ranks_of_stages(point.schedule, layout.p, layout.v or 1, **dict(point.options))
    return [[stage for stage, on in enumerate(rank_of) if on == rank] for rank in range(layout.p)]


def _in_turns(point: Point) -> list[list[int]]:
    stages, p = point.layout.p * (point.layout.v or 1), point.layout.p
    return [list(range(rank, stages, p)) for rank in range(p)]


def _ranks(told: Sequence[Told], stages_of: Sequence[Sequence[int]]) -> Table:
    """Units, seconds and bytes of each rank for the best and the balanced partition."""
    shown = told[:2] if told[0].split != told[1].split else told[:1]
    columns = [Column(title="rank", kind="count")]
    for each in shown:
        columns += [
            Column(title=f"units, {each.name}"),
            *([Column(title="run again")] if each.split.recompute_layers is not None else []),
            Column(title="one micro-batch", kind="seconds"),
            Column(title="memory", kind="bytes"),
        ]
    rows = []
    for rank, stages in enumerate(stages_of):
        line: list[Cell] = [rank]
        for each in shown:
            again = each.split.recompute_layers
            line.append(_plus(each.split.partition, stages))
            line += [_plus(again, stages)] if again is not None else []
            line += [_seconds(each.row, stages), each.row["rank_memory_bytes"][rank]]
        rows.append(tuple(line))
    note = "Units are the embedding, the layers and the head. Seconds: forward and backward of one micro-batch, sends included."
    return Table(title="Seconds and bytes of every rank", columns=tuple(columns), rows=tuple(rows), note=note)


def _plus(numbers: Sequence[int], stages: Sequence[int]) -> str:
    return " + ".join(str(numbers[stage]) for stage in stages)


def _seconds(row: Mapping[str, Any], stages: Sequence[int]) -> float:
    return sum(
        float(row[f"stage_{op}_s"][stage]) for op in ("forward", "input_grad", "weight_grad") for stage in stages
    )


def _bars(told: Sequence[Told], stages_of: Sequence[Sequence[int]]) -> list[Bars]:
    """Both resources of every rank: the first rank on top."""
    found = []
    for each in told[:2] if told[0].split != told[1].split else told[:1]:
        limit = each.row["memory_limit_bytes"]
        seconds = tuple((f"rank {rank}", (_seconds(each.row, stages),)) for rank, stages in enumerate(stages_of))
        held = tuple((f"rank {rank}", (float(held),)) for rank, held in enumerate(each.row["rank_memory_bytes"]))
        found += [
            Bars(
                slug=f"seconds_{each.name}", title=f"Seconds of every rank, {each.name}",
                caption="One micro-batch, forward and backward. The longest bar decides how fast the pipeline goes.",
                x=Axis(title="one micro-batch", kind="seconds"), items=("computing and sending",), bars=seconds,
            ),
            Bars(
                slug=f"bytes_{each.name}", title=f"Memory of every rank, {each.name}",
                caption="At its fullest moment. A bar beyond the dashed line does not fit.",
                x=Axis(title="memory", kind="bytes"), items=("held",), bars=held,
                x_limit=(limit, f"limit {show(limit, 'bytes')}"),
            ),
        ]  # fmt: skip
    return found
