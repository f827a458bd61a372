"""The rows that are predicted worst, with what their predictions consist of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pipesim.calibrate import classes
from pipesim.calibrate.validate import Validation
from pipesim.report.document import Cell, Column, Table
from pipesim.report.formats import show
from pipesim.report.words import TIME_WORDS
from pipesim.specs import Point

LARGEST = 3
"""Items that a row shows."""


def worst(validation: Validation, role: str, rows: int) -> Table | None:
    """Of the scored and kept rows of one table, at most a third of them from one source."""
    mine = validation.timed & validation.of_role(role) & validation.which(classes.kept)
    index: list[int] = np.flatnonzero(mine).tolist()
    off = dict(
        zip(index, np.abs(np.log(validation.predicted.step_time_s[mine] / validation.measured_s[mine])), strict=True)
    )
    index.sort(key=lambda i: (-off[i], validation.measurements[i].id))
    chosen = _mixed(validation, index, rows)
    if not chosen:
        return None
    columns = (
        Column(title="row"), Column(title="layout"), Column(title="measured", kind="seconds"),
        Column(title="predicted", kind="seconds"), Column(title="error", kind="percent"), Column(title="largest items"),
        Column(title="most unlike its source"), Column(title="the source says"),
    )  # fmt: skip
    return Table(
        title=f"The worst predicted rows: {role}",
        columns=columns,
        rows=tuple(_row(validation, i) for i in chosen),
        note="Shares are of the predicted step. An item that is much larger than usual for its source is the first suspect.",
    )


def _mixed(validation: Validation, index: Sequence[int], rows: int) -> list[int]:
    most, taken = -(-rows // 3), Counter[str]()
    chosen: list[int] = []
    for i in index:
        source = validation.measurements[i].source
        if taken[source] < most and len(chosen) < rows:
            taken[source] += 1
            chosen.append(i)
    return chosen


def _row(validation: Validation, i: int) -> tuple[Cell, ...]:
    each, predicted = validation.measurements[i], validation.predicted
    assert each.point is not None
    shares = {item: values / predicted.step_time_s for item, values in predicted.seconds.items()}
    mine = {item: float(values[i]) for item, values in shares.items()}
    alike = validation.timed & validation.of_source(each.source, validation.roles[i])
    usual = {item: float(np.median(values[alike])) for item, values in shares.items()}
    largest = sorted(mine, key=lambda item: -mine[item])[:LARGEST]
    odd = max(mine, key=lambda item: mine[item] - usual[item])
    return (
        each.id,
        _layout(each.point),
        float(validation.measured_s[i]),
        float(predicted.step_time_s[i]),
        float(predicted.step_time_s[i] / validation.measured_s[i] - 1),
        ", ".join(f"{TIME_WORDS[item][0]} {show(mine[item], 'percent')}" for item in largest),
        f"{TIME_WORDS[odd][0]} {show(mine[odd], 'percent')}, usually {show(usual[odd], 'percent')}",
        each.cells["notes"][:160],
    )


def _layout(point: Point) -> str:
    layout, training = point.layout, point.training
    cut = f"t{layout.t} p{layout.p} d{layout.d} b{training.micro_batch}"
    return f"{point.model.name} {cut} {point.schedule} {training.recompute}"
