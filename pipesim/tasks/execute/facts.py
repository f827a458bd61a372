"""What a measured job has to tell: its facts as the plain data of ``report.execute.facts``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipesim.execute import layout
from pipesim.execute.calibration import Calibration
from pipesim.execute.equality import TOLERANCE, relative_error
from pipesim.execute.job import Job
from pipesim.execute.measure import Measured
from pipesim.execute.reference import Reference
from pipesim.execute.torch_pipelining import PeerRun
from pipesim.report.execute.facts import Agreement, Execution, Fact, LinkCost, StageCost, Traffic
from pipesim.schedules.action import Op
from pipesim.simulate import Beside

UNCUT, PEER = "the uncut model", "PyTorch's own pipeline runtime"


def execution(
    measured: Measured, calibration: Calibration, beside: Beside, agreements: Sequence[Agreement], mode: str
) -> Execution:
    job, executed = measured.job, measured.executed
    return Execution(
        beside=beside,
        asked=tuple(_asked(measured)),
        mode=mode,
        processes=job.world,
        cores=len(os.sched_getaffinity(0)),
        core_share=float(np.median(measured.core_share)),
        peaks=executed.peak_live,
        traffic=tuple(_traffic(job, executed.link_bytes)),
        agreements=tuple(agreements),
        stage_costs=tuple(stage_costs(job, calibration)),
        link_costs=tuple(LinkCost(f"{low} – {high}", *hop) for (low, high), hop in sorted(measured.hops.items())),
        unlike_copies=executed.unlike_copies,
    )


def reference_agreement(measured: Measured, wanted: Reference) -> Agreement:
    """Beside plain autograd in one process."""
    return _agreement(measured, UNCUT, wanted.gradients, wanted.weights, wanted.losses[0])


def peer_agreement(measured: Measured, peer: PeerRun) -> Agreement:
    """Beside PyTorch's runtime, which takes no optimizer step here."""
    return _agreement(measured, PEER, peer.gradients, None, peer.loss)


def stage_costs(job: Job, calibration: Calibration) -> Iterator[StageCost]:
    """A line for each stage of each rank that has it."""
    for rank, stages in enumerate(layout.stages_of_ranks(job)):
        for stage in stages:
            forward_s, backward_s, input_grad_s, weight_grad_s, pair_s = (
                _median(calibration, rank, stage, op) for op in (Op.F, Op.B, Op.I, Op.W, None)
            )
            yield StageCost(
                stage, rank, " + ".join(job.units[stage]), forward_s, backward_s, input_grad_s, weight_grad_s, pair_s
            )


def _median(calibration: Calibration, rank: int, stage: int, op: Op | None) -> float | None:
    """Over all sizes of micro-batches, of actions that run alone; or, with no ``op``, of overlapped pairs."""
    found = [
        seconds
        for kind, seconds in calibration.slot_s.items()
        if (kind.rank, kind.works[0][0]) == (rank, stage)
        and (len(kind.works) == 2 if op is None else len(kind.works) == 1 and kind.works[0][1] == op)
    ]
    return float(np.median(found)) if found else None


def _agreement(
    measured: Measured, whom: str, gradients: Mapping[str, Any], weights: Mapping[str, Any] | None, loss: float
) -> Agreement:
    executed = measured.executed
    errors = {name: relative_error(found, gradients[name]) for name, found in executed.gradients.items()}
    where = max(errors, key=lambda name: (errors[name] != errors[name], errors[name]))  # a NaN is the worst of all
    return Agreement(
        with_whom=whom,
        gradient_error=errors[where],
        where=where if errors[where] != 0 else "–",
        weight_error=None
        if weights is None
        else max(relative_error(found, weights[name]) for name, found in executed.weights.items()),
        loss_error=max(abs(found - loss) / abs(loss) for found in executed.losses),
        tolerance=TOLERANCE[measured.job.dtype],
    )


def _traffic(job: Job, counted: Mapping[tuple[int, int], int]) -> Iterator[Traffic]:
    expected = layout.link_bytes(job)
    for link in sorted(expected.keys() | counted.keys()):
        yield Traffic(*link, counted.get(link, 0), expected.get(link, 0))


def _asked(measured: Measured) -> Iterator[Fact]:
    job, model = measured.job, measured.job.model
    schedule = job.schedule
    parts = f" of {schedule.segments} segments" if schedule.segments > 1 else ""
    yield Fact("schedule", "text", f"{schedule.name}, {schedule.stages} stages on p={job.p} ranks")
    yield Fact(
        "micro-batches", "text", f"{len(job.micro_batches)}{parts} of {job.micro_batches[0]} sequences, a replica"
    )
    yield Fact("tokens of a sequence", "count", job.length)
    yield Fact("tensor t, data d", "text", f"{job.t}, {job.d}")
    yield Fact("ZeRO", "count", job.zero)
    yield Fact("sequence parallel", "flag", job.sequence_parallel)
    yield Fact(
        "model", "text", f"{model.blocks} blocks, width {model.width}, {model.heads} heads, vocabulary {model.vocab}"
    )
    yield Fact("parameters", "parameters", sum(weight.numel() for weight in measured.executed.weights.values()))
    yield Fact("precision", "text", job.dtype)
    yield Fact("repeats", "count", len(measured.executed.timelines))
    yield Fact("seed", "count", job.seed)
