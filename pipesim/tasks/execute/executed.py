"""From the keys of ``task.execute`` to a job, its measurement, and the study's report and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid
from pipesim.execute import torch_pipelining
from pipesim.execute.batch import random_batches
from pipesim.execute.calibration import beside, calibrate
from pipesim.execute.job import Job, problems
from pipesim.execute.measure import MODES, Measured, measure
from pipesim.execute.reference import initial_state, reference
from pipesim.report.execute.facts import Execution
from pipesim.report.execute.page import execute_page
from pipesim.report.timeline.trace import chrome_traces
from pipesim.results.schema import Row
from pipesim.schedules import make_schedule
from pipesim.tasks import Done
from pipesim.tasks.execute.facts import execution, peer_agreement, reference_agreement
from pipesim.tasks.execute.spans import spans_parquet
from pipesim.toy.gpt import GptSpec
from pipesim.toy.one_thread import one_thread

Conf = Mapping[str, Any]


def run(conf: Conf) -> Done:
    """Everything that the task writes. Errors as ``tasks.execute.task.execute``."""
    job = job_of(conf)
    state, batches = initial_state(job), random_batches(job)
    order = torch_pipelining.Order(job, state, batches[0])
    _refuse(conf, job, order)
    measured = measure(
        job, state, batches, mode=conf["mode"], timeout_s=conf["timeout_s"],
        repeats=conf["repeats"], warm_up=conf["warm_up"],
    )  # fmt: skip
    with one_thread():
        agreements = [reference_agreement(measured, reference(job, state, batches))]
    if conf["torch_peer"]:
        (peer,) = torch_pipelining.run([order], timeout_s=conf["timeout_s"])
        agreements.append(peer_agreement(measured, peer))
    calibration = calibrate(measured)
    told = execution(measured, calibration, beside(measured, calibration), agreements, conf["mode"])
    return Done(
        document=execute_page(told),
        rows=[_row(measured, told)],
        files={
            "trace.json": chrome_traces({"simulated": told.beside.simulated, "measured": told.beside.typical}),
            "spans.parquet": spans_parquet(told.beside),
            "schedule.csv": job.schedule.to_csv(),
        },
        measured=_measured(measured, told),
    )


def job_of(conf: Conf) -> Job:
    """Raises ``Invalid`` with every rule that the keys break."""
    try:
        schedule = make_schedule(conf["schedule"], p=conf["p"], m=conf["m"], v=conf["v"], **conf["options"])
        model = GptSpec(
            vocab=conf["vocab"], context=conf["length"], width=conf["width"], blocks=conf["blocks"], heads=conf["heads"],
            tied=conf["tied"],
        )  # fmt: skip
    except ValueError as error:
        raise _invalid(str(error).splitlines()) from None
    job = Job(
        schedule=schedule, model=model, micro_batches=(conf["micro_batch"],) * (schedule.m // schedule.segments),
        **{key: conf[key] for key in ("length", "t", "d", "sequence_parallel", "zero", "dtype", "seed", "device")},
    )  # fmt: skip
    if found := problems(job):
        raise _invalid(found)
    return job


def _refuse(conf: Conf, job: Job, order: torch_pipelining.Order) -> None:
    """What a job does not know of."""
    found = [
        f"{key}={conf[key]} must be at least {least}. Nearest: {least}."
        for key, least in (("repeats", 1), ("warm_up", 0), ("timeout_s", 1))
        if conf[key] < least
    ]
    if conf["mode"] not in MODES:
        found.append(f"mode={conf['mode']!r} must be one of {', '.join(MODES)}. Nearest: processes.")
    if conf["torch_peer"]:
        found += [f"torch_peer=true: {each}" for each in torch_pipelining.problems(order)]
    if found:
        raise _invalid(found)


def _invalid(found: list[str]) -> Invalid:
    return Invalid([f"task.execute: {each}" for each in found])


def _measured(measured: Measured, told: Execution) -> dict[str, float | bool]:
    """The columns of ``results.measured``."""
    makespans_s, uncut = told.beside.makespans_s, told.agreements[0]
    return {
        "measured_makespan_s": told.beside.typical.makespan_s,
        "measured_makespan_lo_s": float(makespans_s.min()),
        "measured_makespan_hi_s": float(makespans_s.max()),
        "measured_bubble_fraction": told.beside.typical.bubble_fraction,
        "simulated_makespan_s": told.beside.simulated.makespan_s,
        "simulated_bubble_fraction": told.beside.simulated.bubble_fraction,
        "core_share": told.core_share,
        "gradient_error": uncut.gradient_error,
        "agrees": uncut.equal,
    }


def _row(measured: Measured, told: Execution) -> Row:
    """What was asked and simulated; what was measured stands in the report and in spans.parquet."""
    job, simulated = measured.job, told.beside.simulated
    return {
        "status": "ok",
        "case": "execute",
        "model": "toy",
        "schedule": job.schedule.name,
        "t": job.t,
        "p": job.p,
        "d": job.d,
        "zero": job.zero,
        "sequence_parallel": job.sequence_parallel,
        "precision": job.dtype,
        "micro_batch": job.micro_batches[0],
        "global_batch": job.d * job.sequences,
        "seq_length": job.length,
        "num_microbatches": len(job.micro_batches),
        "makespan_s": simulated.makespan_s,
        "bubble_fraction": simulated.bubble_fraction,
        "bubble_overhead": simulated.bubble_overhead,
        "peak_inflight": list(told.peaks),
        "stage_units": [len(units) for units in job.units],
    }
