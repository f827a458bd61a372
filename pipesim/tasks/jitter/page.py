"""The report of drawn steps: how long they take beside one without chance, and who suffers most."""

from __future__ import annotations

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.report.document import Axis, Chart, Column, Curves, Document, Line, Mark, Observations, Section, Table
from pipesim.report.formats import show
from pipesim.report.words import layout_name
from pipesim.tasks.jitter.drawn import Compared, Jittered

QUANTILES = (0.5, 0.9, 0.99)
CURVE = tuple(np.linspace(0.01, 0.99, 29).tolist())
"""Shares of steps at which a curve has a point."""

FIGURES = (
    Column(title="without chance", kind="seconds"), Column(title="mean", kind="seconds"), Column(title="longer", kind="percent"),
    *(Column(title=f"p{100 * q:.0f}", kind="seconds") for q in QUANTILES),
)  # fmt: skip


def page(told: Jittered, of_schedules: str) -> Document:
    """``of_schedules`` is a note to their table."""
    row = told.layout.row
    return Document(
        title=f"Jitter: {row['model']} on {row['gpus']} GPUs of {row['cluster']}: {layout_name(row)}",
        sections=(
            Section(title="Answer", blocks=(_answer(told), _step(told), Observations(title="Observations", claims=_claims(told)))),
            Section(title="Schedules", blocks=(_schedules(told, of_schedules), *_cannot(told), _curves(told))),
            Section(title="One slow rank", blocks=(_ranks(told), _ranks_chart(told))),
            Section(title="Data-parallel replicas", blocks=(_replicas(told),)),
            *((Section(title="If the spread is another", blocks=(_spreads(told),)),) if told.spreads else ()),
            Section(title="How to read this", blocks=_definitions(told)),
        ),
    )  # fmt: skip


def _figures(alone_s: float, steps_s: FloatArray) -> tuple[float, ...]:
    return alone_s, float(steps_s.mean()), _longer(alone_s, steps_s), *map(float, np.quantile(steps_s, QUANTILES))


def _longer(alone_s: float, steps_s: FloatArray) -> float:
    return float(steps_s.mean()) / alone_s - 1


def _answer(told: Jittered) -> str:
    alone_s = told.layout.row["step_time_s"]
    _, mean_s, longer, _, p90_s, p99_s = _figures(alone_s, told.steps_s)
    slow = f" and {told.slow}" if told.slow else ""
    return (
        f"With {_chance(told)}{slow}, a step takes {show(mean_s, 'seconds')} on average, {show(longer, 'percent')} longer "
        f"than the {show(alone_s, 'seconds')} without chance; one in ten takes more than {show(p90_s, 'seconds')}, one in a "
        f"hundred more than {show(p99_s, 'seconds')}.{'' if told.layout.row['fits'] else ' It ' + told.layout.row['reason']}"
    )


def _chance(told: Jittered) -> str:
    chance = told.chance
    said = f"actions that vary by {show(chance.spread, 'percent')}"
    if chance.stall_probability and chance.stall_s:
        said += (
            f" and in {show(chance.stall_probability, 'percent')} of cases stall for {show(chance.stall_s, 'seconds')}"
        )
    return said


def _step(told: Jittered) -> Table:
    alone_s, d = told.layout.row["step_time_s"], told.layout.row["d"]
    rows: list[tuple[str | float, ...]] = [("one pipeline alone", *_figures(alone_s, told.replicas[0][1]))]
    rows.append((f"the step: the last of {d}", *_figures(alone_s, told.even_s)))
    if told.slow:
        rows.append((f"with {told.slow}", *_figures(alone_s, told.steps_s)))
    error_s = float(told.steps_s.std() / np.sqrt(len(told.steps_s)))
    return Table(
        title="Step time", columns=(Column(title="what"), *FIGURES), rows=tuple(rows), emphasis=frozenset({len(rows) - 1}),
        note=f"{len(told.steps_s):,} steps are drawn; their mean is sure to {show(error_s, 'seconds')} (one standard error).",
    )  # fmt: skip


def _runnable(told: Jittered) -> list[tuple[Compared, FloatArray]]:
    """The fastest on average first; of equals the one named first."""
    runs = [(each, each.steps_s) for each in told.schedules if each.steps_s is not None]
    return sorted(runs, key=lambda run: float(run[1].mean()))


def _claims(told: Jittered) -> tuple[str, ...]:
    runs = _runnable(told)
    claims = []
    if len(runs) > 1:
        lost = {each.name: _longer(each.row["step_time_s"], steps_s) for each, steps_s in runs}
        least, most = (pick(lost, key=lambda name: lost[name]) for pick in (min, max))
        claims.append(
            f"Of {len(runs)} schedules {least} suffers least ({show(lost[least], 'percent')} longer) and {most} most "
            f"({show(lost[most], 'percent')})."
        )
        fitting = [run for run in runs if run[0].row["fits"]] or runs
        alone = min(fitting, key=lambda run: run[0].row["step_time_s"])[0].name
        fits = "that fits" if fitting[0][0].row["fits"] else "(none fits)"
        claims.append(f"The fastest {fits} is {fitting[0][0].name} on average, and without chance {alone}.")
    worst, mildest = (pick(told.ranks, key=lambda each: each.alone) for pick in (max, min))
    least = f"{show(mildest.alone, 'percent')} (rank {mildest.rank}) to " if len(told.ranks) > 1 else ""
    claims.append(
        f"One rank {told.slow_factor:g} times as slow makes a step {least}{show(worst.alone, 'percent')} (rank {worst.rank}) "
        f"longer where nothing else varies; with chance, which is what a straggler costs, rank {worst.rank} makes it "
        f"{show(worst.drawn, 'percent')} longer on average."
    )
    (fewest, first_s), (largest, last_s) = told.replicas[0], told.replicas[-1]
    if largest > fewest:
        more = show(float(last_s.mean() / first_s.mean() - 1), "percent")
        claims.append(
            f"A step waits for its slowest replica: the last of {largest} takes {more} longer than {fewest} alone, at the same "
            "work for each."
        )
    return tuple(claims)


def _schedules(told: Jittered, note: str) -> Table:
    columns = (Column(title="schedule"), Column(title="v", kind="count"), *FIGURES, Column(title="fits", kind="flag"))
    runs = _runnable(told)
    rows = tuple(
        (each.name, each.row["v"], *_figures(each.row["step_time_s"], steps_s), each.row["fits"])
        for each, steps_s in runs
    )
    asked = frozenset(i for i, (each, _) in enumerate(runs) if each.row is told.layout.row)
    return Table(
        title="Schedules under chance, fastest on average first", columns=columns, rows=rows, emphasis=asked, note=note
    )


def _cannot(told: Jittered) -> list[str]:
    return [f"{each.name} cannot run here: {each.problem}" for each in told.schedules if each.problem]


def _curves(told: Jittered) -> Curves:
    lines = tuple(
        Line(
            name=each.name, labels=("",) * len(CURVE),
            points=tuple(zip(map(float, np.quantile(steps_s, CURVE)), CURVE, strict=True)),
        )
        for each, steps_s in _runnable(told)
    )  # fmt: skip
    return Curves(
        slug="steps", title="How many steps take at most so long",
        caption="Steep and far left is good: short steps that hardly vary.",
        x=Axis(title="step time", kind="seconds"), y=Axis(title="share of steps", kind="percent"), lines=lines,
    )  # fmt: skip


def _ranks(told: Jittered) -> Table:
    columns = (
        Column(title="slow rank", kind="count"), Column(title="step longer, without chance", kind="percent"),
        Column(title="step longer on average, with chance", kind="percent"),
    )  # fmt: skip
    return Table(
        title=f"What one rank costs that is {told.slow_factor:g} times as slow, in one replica", columns=columns,
        rows=tuple((each.rank, each.alone, each.drawn) for each in told.ranks),
        note="A rank is one of the pipeline's: its t x c GPUs, which wait for the slowest among them. The last column is what a "
        "straggler really costs: part of its slowness hides behind other replicas that chance has made late.",
    )  # fmt: skip


def _ranks_chart(told: Jittered) -> Chart:
    marks = [
        Mark(x=float(each.rank), y=value, label="", group=group)
        for group, key in (("without chance", "alone"), ("with chance", "drawn"))
        for each in told.ranks
        for value in (getattr(each, key),)
    ]
    return Chart(
        slug="slow-rank", title=f"One rank {told.slow_factor:g} times as slow",
        caption="A rank with less to do than others hides its slowness; so do the ranks behind it while they fill and drain.",
        x=Axis(title="slow rank", kind="number"), y=Axis(title="step longer", kind="percent"), marks=tuple(marks),
    )  # fmt: skip


def _replicas(told: Jittered) -> Table:
    columns = (
        Column(title="replicas", kind="count"), Column(title="mean", kind="seconds"),
        Column(title="longer than without chance", kind="percent"), Column(title="p99", kind="seconds"),
        Column(title="steps", kind="count"),
    )  # fmt: skip
    alone_s = told.layout.row["step_time_s"]
    rows = tuple(
        (replicas, float(steps_s.mean()), _longer(alone_s, steps_s), float(np.quantile(steps_s, 0.99)), len(steps_s))
        for replicas, steps_s in told.replicas
    )
    d = [replicas for replicas, _ in told.replicas].index(told.layout.row["d"])
    return Table(
        title="The slowest of so many replicas", columns=columns, rows=rows, emphasis=frozenset({d}),
        note="Each with the asked layout's micro-batches; what data-parallel communication takes stays the asked layout's.",
    )  # fmt: skip


def _spreads(told: Jittered) -> Table:
    alone_s = told.layout.row["step_time_s"]
    rows = tuple((spread, *_figures(alone_s, steps_s)) for spread, steps_s in told.spreads)
    asked = frozenset(i for i, (spread, _) in enumerate(told.spreads) if spread == told.chance.spread)
    return Table(title="Spreads", columns=(Column(title="spread", kind="percent"), *FIGURES), rows=rows, emphasis=asked)


def _definitions(told: Jittered) -> tuple[str, ...]:
    chance = told.chance
    return (
        f"Assumed: a rank's forward, input gradient and weight gradient of a micro-batch each take their estimated seconds times a "
        f"lognormal factor with mean 1 and a standard deviation of {chance.spread:g} (task.jitter.spread), messages one with "
        f"{chance.hop_spread:g} (task.jitter.hop_spread), independent of each other; where a schedule cuts a rank's work into k "
        "stages, each varies sqrt(k) times as much. Factors pass through the schedule's own dependencies, so what is told is more "
        "than mean times factor.",
        "How much one action varies is not published. Known is what lasts: GPUs of one model differ by 8 % on average and up "
        'to 22 % (Sinha et al., "Not All GPUs Are Created Equal", SC 2022), which is a slow rank here; slowdowns last from tens '
        'of seconds to hours (Wu et al., "Falcon", 2024). Lin et al., "Understanding Stragglers in Large Model Training Using '
        'What-if Analysis", OSDI 2025, compare steps with what they would be without stragglers, as is done here.',
        "Without chance is the estimate of a plain run. p90: nine of ten steps take at most so long. Schedules with equally many "
        "stages are drawn under the same factors for the same work. Collectives' own variation is left out: only pipelines vary. "
        "Where a stack's sends block, standing still counts with the stage and varies with it.",
    )
