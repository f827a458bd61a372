"""The report of a schedule that really ran: measured beside simulated, what it held and sent, whether it computed right."""

from __future__ import annotations

import numpy as np

from pipesim.report.document import Column, Document, Observations, Section, Table, TimelineView
from pipesim.report.execute.claims import claims
from pipesim.report.execute.facts import Execution
from pipesim.report.execute.tables import agreements, asked, costs, idle, links, peaks, traffic
from pipesim.report.formats import show

DEFINITIONS = (
    "Predicted: the schedule simulated with the medians of what its own processes measured. For each repeat every rank "
    "first worked through its actions with made-up messages, so that it waited for nobody, and then the whole step ran. "
    "Error = predicted / measured - 1, of each repeat; below 0 the prediction is too short.",
    "Bubble fraction = idle / (p x makespan); bubble overhead = idle / useful. Time is read on one monotonic clock; 0 is "
    "the earliest start.",
)


def execute_page(execution: Execution) -> Document:
    """Claims are printed only where this run bears them out."""
    said = tuple(claims(execution))
    observed = (Observations(title="Observations", claims=said),) if said else ()
    return Document(
        title=f"{execution.schedule.name}, really run on {execution.processes} {execution.mode} and simulated",
        figure_folder="",
        sections=(
            Section(title="Answer", blocks=(answer(execution), *warnings(execution), asked(execution), *observed)),
            Section(title="Time", blocks=(_makespans(execution), _bubbles(execution), *_views(execution))),
            Section(title="Why ranks are idle", blocks=(idle(execution),)),
            Section(title="What ranks hold and send", blocks=(peaks(execution), *traffic(execution))),
            Section(title="What it computed", blocks=(agreements(execution),)),
            Section(title="What the simulation was given", blocks=(costs(execution), *links(execution))),
            Section(title="How to read this", blocks=DEFINITIONS),
        ),
    )


def answer(execution: Execution) -> str:
    """The whole result in two sentences."""
    beside = execution.beside
    predicted, errors = show(beside.simulated.makespan_s, "seconds"), beside.errors
    runs = len(beside.measured)
    middle, low, high = (show(float(each), "seconds") for each in _spread(beside.makespans_s))
    error, least, most = (signed(float(each)) for each in _spread(errors))
    return (
        f"Predicted makespan {predicted}; measured {middle} in the median of {runs} run{'s' * (runs > 1)} ({low} to "
        f"{high}). The prediction's error is {error} in the median ({least} to {most})."
    )


def warnings(execution: Execution) -> tuple[str, ...]:
    """What to know before the numbers are believed."""
    found = []
    if execution.processes > execution.cores:
        found.append(
            f"Warning: {execution.processes} ranks share {execution.cores} core{'s' * (execution.cores > 1)}. A rank that "
            "computes then slows others down, which the simulation does not know; do not judge it by these times."
        )
    elif execution.disturbed:
        found.append(
            f"Warning: while they computed, ranks had a core for only {show(execution.core_share, 'percent')} of the time: "
            "other programs ran on this machine, and the measured times are theirs too."
        )
    if execution.mode == "threads" and execution.processes > 1:
        found.append("Warning: threads of one process share Python's lock, so ranks slow each other down.")
    if execution.unlike_copies:
        found.append(f"Warning: copies of these parameters differ: {', '.join(execution.unlike_copies)}.")
    return tuple(found)


def signed(share: float) -> str:
    """
    >>> signed(0.0312), signed(-0.2)
    ('+3.1 %', '-20.0 %')
    """
    return ("+" if share >= 0 else "") + show(share, "percent")


def _spread(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float, float]:
    return float(np.median(values)), float(values.min()), float(values.max())


def _makespans(execution: Execution) -> Table:
    beside = execution.beside
    predicted_s = beside.simulated.makespan_s
    lines = [
        (str(k), predicted_s, float(s), float(e))
        for k, (s, e) in enumerate(zip(beside.makespans_s, beside.errors, strict=True))
    ]
    total = ("median", predicted_s, float(np.median(beside.makespans_s)), float(np.median(beside.errors)))
    return Table(
        title="Makespan, predicted and measured",
        columns=(
            Column(title="repeat"), Column(title="predicted", kind="seconds"), Column(title="measured", kind="seconds"),
            Column(title="error", kind="percent"),
        ),
        rows=(*lines, total),
        emphasis=frozenset({len(lines)}),
    )  # fmt: skip


def _bubbles(execution: Execution) -> Table:
    beside = execution.beside
    rows = []
    for title, name in (
        ("bubble fraction (idle/total)", "bubble_fraction"),
        ("bubble overhead (idle/useful)", "bubble_overhead"),
    ):
        measured = np.array([getattr(each, name) for each in beside.measured])
        rows.append((title, getattr(beside.simulated, name), *_spread(measured)))
    return Table(
        title="Bubble, predicted and measured",
        columns=(
            Column(title="measure"), *(Column(title=t, kind="percent") for t in ("predicted", "measured, median", "least", "most")),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _views(execution: Execution) -> tuple[TimelineView, TimelineView]:
    """Both on one time axis."""
    simulated, measured = execution.beside.simulated, execution.beside.typical
    until_s = max(simulated.makespan_s, measured.makespan_s)
    return (
        TimelineView(slug="simulated", title="Simulated", timeline=simulated, until_s=until_s),
        TimelineView(
            slug="measured", title="Measured (run of the median makespan)", timeline=measured, until_s=until_s
        ),
    )
