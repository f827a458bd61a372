"""Which layouts keep the rules. Every broken rule is named with its config key, its value and the nearest that works."""

from __future__ import annotations

import dataclasses

from pipesim import schedules
from pipesim.costs.stage import balanced_partition
from pipesim.specs import Invalid, ParallelLayout, Point, divisors, nearest_divisors

LECTURE_EXPLAINS = "costs.kind=lecture cuts the model into equal blocks"


def resolve(point: Point) -> Point:
    """The point with ``d`` derived and the partition spelt out; raises ``Invalid`` with every broken rule."""
    layout, problems = _with_d(point)
    problems += _tensor(point) + _experts(point, layout) + _partition(point, layout) + _training(point)
    if layout.d is not None:
        problems += _batch(point, layout)
    if problems:
        raise Invalid(problems)
    partition = layout.partition
    if isinstance(partition, str):
        partition = balanced_partition(point.model.units, layout.p * layout.v)
    return dataclasses.replace(point, layout=dataclasses.replace(layout, partition=partition))


def micro_batches(point: Point) -> int:
    """m of a resolved point: micro-batches per replica and step."""
    assert point.layout.d is not None
    return point.training.global_batch // (point.training.micro_batch * point.layout.d)


def _with_d(point: Point) -> tuple[ParallelLayout, list[str]]:
    layout, gpus = point.layout, point.cluster.gpus
    cut = layout.t * layout.p * layout.c
    named = f"parallel.t={layout.t} x parallel.p={layout.p}" + (f" x parallel.c={layout.c}" if layout.c > 1 else "")
    if layout.d is not None:
        if cut * layout.d > gpus:
            most = max(1, gpus // cut)
            return layout, [
                f"{named} x parallel.d={layout.d} = {cut * layout.d} needs more than cluster.gpus={gpus}. "
                + (f"Nearest: parallel.d={most}." if cut <= gpus else _nearest_cut(point))
            ]
        return layout, []
    if gpus % cut:
        return layout, [
            f"{named} = {cut} does not divide cluster.gpus={gpus}, so no whole parallel.d is left. {_nearest_cut(point)}"
        ]
    return dataclasses.replace(layout, d=gpus // cut), []


def _nearest_cut(point: Point) -> str:
    """The nearest p at this t, and the nearest t at this p, that leave a whole d."""
    layout, gpus = point.layout, point.cluster.gpus
    found = []
    for key, value, fixed in (
        ("p", layout.p, layout.t * layout.c),
        ("t", layout.t, layout.p * layout.c),
        ("c", layout.c, layout.t * layout.p),
    ):
        if gpus % fixed == 0 and (key != "c" or layout.c > 1):
            found.append(f"parallel.{key}={nearest_divisors(gpus // fixed, value)}")
    return f"Nearest: {', or '.join(found)}." if found else f"Nearest: parallel.t={nearest_divisors(gpus, layout.t)}."


def _tensor(point: Point) -> list[str]:
    model, t = point.model, point.layout.t
    problems = []
    for key, size in (("heads", model.heads), ("ffn", model.ffn), ("vocab", model.vocab)):
        if size % t:
            nearest = nearest_divisors(size, t)
            problems.append(f"parallel.t={t} does not divide model.{key}={size}. Nearest: parallel.t={nearest}.")
    if point.layout.sequence_parallel and _seq_length(point) % (t * point.layout.c):
        problems.append(
            f"parallel.sequence_parallel=true needs parallel.t={t} x parallel.c={point.layout.c} to divide "
            f"training.seq_length={_seq_length(point)}. Nearest: parallel.t={nearest_divisors(_seq_length(point), t)}."
        )
    elif _seq_length(point) % point.layout.c:
        problems.append(
            f"parallel.c={point.layout.c} does not divide training.seq_length={_seq_length(point)}. "
            f"Nearest: parallel.c={nearest_divisors(_seq_length(point), point.layout.c)}."
        )
    return problems


def _experts(point: Point, layout: ParallelLayout) -> list[str]:
    e, moe = layout.e, point.model.moe
    if e == 1:
        return []
    if moe is None:
        return [
            f"parallel.e={e} needs a mixture of experts, and model.name={point.model.name} has none. Nearest: parallel.e=1."
        ]
    problems = []
    if moe.experts % e:
        nearest = nearest_divisors(moe.experts, e)
        problems.append(
            f"parallel.e={e} does not divide model.moe.experts={moe.experts}. Nearest: parallel.e={nearest}."
        )
    if layout.d is not None and (layout.d * layout.c) % e:
        nearest = nearest_divisors(layout.d * layout.c, e)
        problems.append(
            f"parallel.e={e} does not divide parallel.d={layout.d} x parallel.c={layout.c}, whose ranks share the experts. "
            f"Nearest: parallel.e={nearest}."
        )
    return problems


def _partition(point: Point, layout: ParallelLayout) -> list[str]:
    units, stages, partition = point.model.units, layout.p * layout.v, layout.partition
    named = f"parallel.p={layout.p} x parallel.v={layout.v}"
    whole = f"{units} units (embedding, {point.model.layers} layers, head)"
    if stages > units:
        return [f"{named} makes {stages} stages, but model.name={point.model.name} has {whole}. "
                f"Nearest: parallel.p={max(1, units // layout.v)}."]  # fmt: skip
    if not isinstance(partition, str):
        problems = []
        if len(partition) != stages:
            problems.append(
                f"parallel.partition={list(partition)} has {len(partition)} entries, but {named} makes {stages} stages."
            )
        if sum(partition) != units:
            problems.append(
                f"parallel.partition={list(partition)} places {sum(partition)} units, but the model has {whole}. "
                f"Nearest: {list(balanced_partition(units, stages))}."
            )
        return problems
    if units % stages and (partition == "even" or point.costs.kind == "lecture"):
        why = LECTURE_EXPLAINS if point.costs.kind == "lecture" else "parallel.partition=even"
        works = [f"parallel.p={p}" for p in divisors(units) if units % (p * layout.v) == 0]
        near = sorted(works, key=lambda text: abs(int(text.split("=")[1]) - layout.p))[:2]
        return [
            f"{named} does not divide {whole}; {why} and needs that. Nearest: {' or '.join(near) or 'parallel.v=1'}."
        ]
    return []


def _batch(point: Point, layout: ParallelLayout) -> list[str]:
    assert layout.d is not None
    batch, micro = point.training.global_batch, point.training.micro_batch
    per_step = micro * layout.d
    if batch % per_step:
        below, above = batch // per_step * per_step, -(-batch // per_step) * per_step
        nearest = " or ".join(str(b) for b in (below, above) if b)
        return [
            f"training.micro_batch={micro} x parallel.d={layout.d} does not divide training.global_batch={batch}. "
            f"Nearest: training.global_batch={nearest}."
        ]
    return schedules.problems(point.schedule, layout.p, batch // per_step, layout.v)


def _training(point: Point) -> list[str]:
    problems = []
    precision, peaks = point.training.precision, point.cluster.peak_flops_per_s
    if precision not in peaks:
        problems.append(
            f"training.precision={precision} has no cluster.peak_tflops on cluster.name={point.cluster.name}. "
            f"Nearest: {' or '.join(peaks)}."
        )
    if point.model.positions == "learned" and _seq_length(point) > point.model.context:
        problems.append(
            f"training.seq_length={_seq_length(point)} exceeds the learned positions, model.context={point.model.context}. "
            f"Nearest: {point.model.context}."
        )
    return problems


def _seq_length(point: Point) -> int:
    return point.training.seq_length or point.model.context
