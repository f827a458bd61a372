"""The tables of ``execute.page`` that compare rank by rank, link by link, stage by stage."""

from __future__ import annotations

from itertools import groupby

from pipesim.report.document import Cell, Column, Table
from pipesim.report.execute.facts import Execution
from pipesim.report.formats import show


def asked(execution: Execution) -> Table:
    return Table(
        title="What ran",
        columns=(Column(title="what"), Column(title="value")),
        rows=tuple((fact.title, show(fact.value, fact.kind)) for fact in execution.asked),
    )


def idle(execution: Execution) -> Table:
    """Each rank's causes, then all of them."""
    rows: list[tuple[Cell, ...]] = []
    totals = set()
    for rank, lines in groupby(execution.beside.idle(), key=lambda line: line.rank):
        parts = list(lines)
        rows += [(rank, str(line.cause), line.simulated_s, line.measured_s) for line in parts]
        totals.add(len(rows))
        rows.append((rank, "all", sum(line.simulated_s for line in parts), sum(line.measured_s for line in parts)))
    return Table(
        title="Idle time of every rank by cause",
        columns=(
            Column(title="rank", kind="count"), Column(title="cause"), Column(title="predicted", kind="seconds"),
            Column(title="measured", kind="seconds"),
        ),
        rows=tuple(rows),
        emphasis=frozenset(totals),
        note=(
            "Measured in the run of the median makespan. There the way of a message is not seen: it is part of delay, as "
            "is what a rank does between two actions. Imbalance: what a rank waits because it had less to do."
        ),
    )  # fmt: skip


def peaks(execution: Execution) -> Table:
    return Table(
        title="Most activations held at once",
        columns=(
            Column(title="rank", kind="count"), Column(title="simulated", kind="count"),
            Column(title="counted", kind="count"), Column(title="equal", kind="flag"),
        ),
        rows=tuple(
            (rank, simulated, counted, simulated == counted)
            for rank, (simulated, counted) in enumerate(zip(execution.simulated_peaks, execution.peaks, strict=True))
        ),
        note="Counted: activations that were in memory, until the last tensor that autograd had saved for them was freed.",
    )  # fmt: skip


def traffic(execution: Execution) -> tuple[Table, ...]:
    """Nothing where no rank sends."""
    if not execution.traffic:
        return ()
    table = Table(
        title="Bytes of one step on every link",
        columns=(
            Column(title="from rank", kind="count"), Column(title="to rank", kind="count"),
            Column(title="by formula", kind="count"), Column(title="counted", kind="count"), Column(title="equal", kind="flag"),
        ),
        rows=tuple(
            (each.source, each.target, each.expected_bytes, each.counted_bytes, each.expected_bytes == each.counted_bytes)
            for each in execution.traffic
        ),
        note="By formula: results that the next action needs from another rank x sequences x tokens x width x bytes a number.",
    )  # fmt: skip
    return (table,)


def agreements(execution: Execution) -> Table:
    return Table(
        title="Largest relative differences",
        columns=(
            Column(title="compared with"), Column(title="gradients", kind="number"), Column(title="most in"),
            Column(title="weights after the step", kind="number"), Column(title="loss", kind="number"),
            Column(title="allowed", kind="number"), Column(title="equal", kind="flag"),
        ),
        rows=tuple((*each, each.equal) for each in execution.agreements),
        note="Relative to the largest element of each tensor; 0 means every bit is the same.",
    )  # fmt: skip


def costs(execution: Execution) -> Table:
    return Table(
        title="Seconds of one micro-batch in every stage",
        columns=(
            Column(title="stage", kind="count"), Column(title="rank", kind="count"), Column(title="units"),
            Column(title="F", kind="seconds"), Column(title="B", kind="seconds"), Column(title="I", kind="seconds"),
            Column(title="W", kind="seconds"), Column(title="overlapped pair", kind="seconds"),
        ),
        rows=tuple(tuple(each) for each in execution.stage_costs),
        note="Medians over repeats and micro-batches; an overlapped pair counts for the stage of its first action.",
    )  # fmt: skip


def links(execution: Execution) -> tuple[Table, ...]:
    """Nothing where no rank sends."""
    if not execution.link_costs:
        return ()
    table = Table(
        title="Seconds of one message, one way",
        columns=(
            Column(title="ranks"), Column(title="one number", kind="seconds"), Column(title="largest message", kind="seconds"),
            Column(title="its bytes", kind="bytes"),
        ),
        rows=tuple(tuple(each) for each in execution.link_costs),
        note="Half of the median round trip, while nobody computes.",
    )  # fmt: skip
    return (table,)
