"""The rows that are predicted worst, with what their predictions consist of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipesim.calibrate import classes
from pipesim.calibrate.validate import Validation
from pipesim.report.document import Cell, Column, Table
from pipesim.report.formats import show
from pipesim.report.words import TIME_WORDS

LARGEST = 3
"""Items that a row shows."""


def worst(validation: Validation, role: str, rows: int) -> Table | None:
    """Of the scored and kept rows of one table, at most a third of them from one source."""
    timed = np.flatnonzero(validation.timed).tolist()
    index = [i for i in timed if validation.roles[i] == role and classes.kept(validation.measurements[i])]
    off = np.zeros(len(validation.timed))
    off[timed] = np.abs(np.log(validation.predicted.step_time_s[timed] / validation.measured_s[timed]))
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
    most, chosen, taken = max(1, -(-rows // 3)), list[int](), dict[str, int]()
    for i in index:
        source = validation.measurements[i].source
        if taken.get(source, 0) < most and len(chosen) < rows:
            taken[source] = taken.get(source, 0) + 1
            chosen.append(i)
    return chosen


def _row(validation: Validation, i: int) -> tuple[Cell, ...]:
    each, predicted = validation.measurements[i], validation.predicted
    assert each.point is not None
    layout, training = each.point.layout, each.point.training
    shares = {item: values / predicted.step_time_s for item, values in predicted.seconds.items()}
    mine = {item: float(values[i]) for item, values in shares.items()}
    alike = validation.timed & validation.of_source(each.source, validation.roles[i])
    usual = {item: float(np.median(values[alike])) for item, values in shares.items()}
    largest = sorted(mine, key=lambda item: -mine[item])[:LARGEST]
    odd = max(mine, key=lambda item: mine[item] - usual[item])
    return (
        each.id,
        f"{each.point.model.name} t{layout.t} p{layout.p} d{layout.d} b{training.micro_batch} {each.point.schedule} "
        f"{training.recompute}",
        validation.measured_s[i],
        float(predicted.step_time_s[i]),
        float(predicted.step_time_s[i] / validation.measured_s[i] - 1),
        ", ".join(f"{TIME_WORDS[item]} {show(mine[item], 'percent')}" for item in largest),
        f"{TIME_WORDS[odd]} {show(mine[odd], 'percent')}, usually {show(usual[odd], 'percent')}",
        each.cells["notes"][:160],
    )
