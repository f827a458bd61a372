"""The report of a calibration: what was fitted, how sure it is, what it leaves of every run's error, and how to use it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesim.calibrate import constants
from pipesim.calibrate.fit import Fit
from pipesim.calibrate.predict import predict
from pipesim.calibrate.runs import Run, Runs
from pipesim.costs.columns import FloatArray
from pipesim.report.document import Block, Cell, Column, Document, Observations, Section, Table
from pipesim.report.formats import show
from pipesim.tasks.calibrate.files import DOUBTFUL, left


def page(name: str, read: Runs, fitted: Fit, warnings: Sequence[str], widths: str, counted: str | None) -> Document:
    """``widths`` says how far off estimates are now, ``counted`` what the printed TFLOP/s of the runs count, if any are."""
    runs = read.runs
    said: tuple[Block, ...] = (
        _use(name, runs, fitted),
        widths,
        _constants(fitted),
        _errors(fitted),
        *_claims("What these runs cannot tell apart", _alike(fitted)),
        *_claims("What these runs touch and the fit left at 0", _absent(runs, fitted)),
    )
    each: tuple[Block, ...] = (_seconds(runs, fitted), *_memory(runs), *((counted,) if counted else ()))
    sections = (
        *([Section(title="Look at these", blocks=_claims("Warnings", warnings))] if warnings else []),
        Section(title="What the runs say", blocks=said),
        Section(
            title="Each run", blocks=(*each, *_claims("What no column says is as the config has it", read.assumed))
        ),
    )
    many = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    return Document(title=f"Calibration of {runs[0].point.stack.name} to {many}", sections=sections)


def _claims(title: str, claims: Sequence[str]) -> tuple[Observations, ...]:
    return (Observations(title=title, claims=tuple(claims)),) if claims else ()


def _use(name: str, runs: Sequence[Run], fitted: Fit) -> str:
    off = left(runs, fitted)
    doubt = (
        f"The runs stay {show(off, 'percent')} apart from the fit or from each other (root mean square), which is no fit, so that "
        "no interval is narrower for it: runs of one recipe come within a few percent. "
        "Before using it, look at what is assumed below: model, cluster, parallel= and training= must be what really ran. "
        if off > DOUBTFUL
        else ""
    )
    groups = ["stack", *(["cluster"] if "cluster.network" in fitted.values else [])]
    files, choices = (pattern.join(groups) for pattern in (f"/{name}.yaml and conf/", f"={name} "))
    return (
        f"{doubt}What was fitted lies in conf/{files}/{name}.yaml of this study. Use it with "
        f"--config-dir STUDY/conf {choices}={name} behind experiments/run.py, STUDY being this folder."
    )


def _constants(fitted: Fit) -> Table:
    columns = (
        Column(title="constant"), Column(title="unit"), Column(title="before", kind="number"),
        Column(title="after", kind="number"), Column(title="at least", kind="number"),
        Column(title="at most", kind="number"), Column(title="known from the runs", kind="flag"),
    )  # fmt: skip
    rows = tuple(
        (each.name, each.unit, each.before, each.after, each.low, each.high, each.is_known) for each in fitted.constants
    )
    note = (
        "From at least to at most are two standard deviations. Where the runs say nothing of a constant alone, it is as it "
        "was believed to be before, or went with others that they cannot tell it from. Runs move a constant as far as their "
        "number and scatter deserve: one run of a stack that was measured on this chip only part of the way."
    )
    return Table(title="Constants", columns=columns, rows=rows, note=note)


def _errors(fitted: Fit) -> Table:
    def figures(error: FloatArray) -> tuple[float, ...]:
        size = np.abs(np.expm1(error))
        return float(size.mean()), float(np.median(size)), float(size.max()), float(np.expm1(np.mean(error)))

    titles = ("mean", "median", "largest", "bias")
    columns = (Column(title="step time's error"), *(Column(title=title, kind="percent") for title in titles))
    rows: tuple[tuple[Cell, ...], ...] = (
        ("before", *figures(fitted.error_before)),
        ("after", *figures(fitted.error_after)),
    )
    return Table(title="Predicted over measured, less one", columns=columns, rows=rows)


def _alike(fitted: Fit) -> list[str]:
    return [f"{one} and {other} (correlation {each:+.2f})" for one, other, each in fitted.alike]


def _absent(runs: Sequence[Run], fitted: Fit) -> list[str]:
    names = [each.name for each in fitted.constants]
    if len(names) < 2:  # too few runs to say more than how fast
        return []
    return [
        f"{name} is 0 in the config: whatever it does in these runs, the other constants have taken. Fit it too with "
        f"task.calibrate.constants=[{','.join([*names, name])}]"
        for name in constants.absent([run.point for run in runs])
        if name not in names
    ]


def _seconds(runs: Sequence[Run], fitted: Fit) -> Table:
    columns = (
        Column(title="run"), Column(title="t", kind="count"), Column(title="p", kind="count"),
        Column(title="d", kind="count"), Column(title="micro-batch", kind="count"), Column(title="measured", kind="seconds"),
        Column(title="before", kind="percent"), Column(title="after", kind="percent"),
    )  # fmt: skip
    rows = tuple(
        (run.id, run.point.layout.t, run.point.layout.p, run.point.layout.d, run.point.training.micro_batch,
         run.step_time_s, float(np.expm1(before)), float(np.expm1(after)))
        for run, before, after in zip(runs, fitted.error_before, fitted.error_after, strict=True)
    )  # fmt: skip
    return Table(title="Step time, predicted over measured, less one", columns=columns, rows=rows)


def _memory(runs: Sequence[Run]) -> list[Table]:
    """Memory is not fitted: it is compared."""
    told = [(run, run.memory_bytes) for run in runs if run.memory_bytes is not None]
    if not told:
        return []
    predicted = predict([run.point for run, _ in told]).memory_bytes.tolist()
    columns = (
        Column(title="run"), Column(title="measured", kind="bytes"), Column(title="predicted", kind="bytes"),
        Column(title="predicted over measured, less one", kind="percent"),
    )  # fmt: skip
    rows = tuple(
        (run.id, measured, each, each / measured - 1) for (run, measured), each in zip(told, predicted, strict=True)
    )
    return [Table(title="Memory of the heaviest GPU, which is not fitted", columns=columns, rows=rows)]
