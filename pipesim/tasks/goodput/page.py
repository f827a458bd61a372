"""The report of a whole training: days and price, where the time goes, and what checkpoints and failures matter."""

from __future__ import annotations

import math

import numpy as np

from pipesim.costs import goodput as costs
from pipesim.report.document import Axis, Cell, Column, Curves, Document, Line, Observations, Section, Table
from pipesim.report.formats import show
from pipesim.report.words import TIME_WORDS, layout_name
from pipesim.tasks.goodput.trained import Machine, Trained

HOUR_S, DAY_S = 3600.0, 86400.0
MOST_PHASES = 10
"""More are told by some of them; the study's table has every batch."""

SPENT = {
    "useful": "steps that count", "checkpoints": "writing checkpoints", "lost": "work lost by failures and done again",
    "restarts": "restarts",
}  # fmt: skip


def page(told: Trained) -> Document:
    row = told.rows[-1]
    warned = Observations(title="Warnings", claims=claims) if (claims := _warnings(told)) else None
    return Document(
        title=f"Training {row['model']} on {row['gpus']} GPUs of {row['cluster']}: {layout_name(row)}",
        sections=(
            Section(title="Answer", blocks=(_answer(told), _spent(told), *filter(None, [warned]))),
            Section(title="Inside the useful steps", blocks=(_items(told),)),
            Section(title="Batches", blocks=(_phases(told), _critical(told))),
            Section(title="Failures and checkpoints", blocks=(_machine(told), _intervals(told), _curves(told))),
            Section(title="What else would change", blocks=(_sensitivity(told),)),
            Section(title="How to read this", blocks=_definitions(told)),
        ),
    )


def lasting(seconds: float) -> str:
    """
    >>> lasting(42), lasting(600), lasting(3e5)
    ('42.00 s', '10.0 min', '3.5 days')
    """
    for size, unit in ((DAY_S, "days"), (HOUR_S, "h"), (60.0, "min")):
        if 2 * size <= seconds < math.inf:
            return f"{seconds / size:,.1f} {unit}"
    return show(float(seconds), "seconds")


def _answer(told: Trained) -> str:
    machine, row = told.machine, told.rows[-1]
    times = machine.times_s(told.useful_s())
    total_s = sum(times.values())
    low_s, high_s = (sum(machine.times_s(told.useful_s(f"step_time_{end}_s")).values()) for end in ("lo", "hi"))
    between = f" ({low_s / DAY_S:,.1f} to {high_s / DAY_S:,.1f})" if math.isfinite(low_s) else ""
    steps = machine.interval() / row["step_time_s"]
    best = "" if told.asked["interval_s"] is None else f"; best are {lasting(_best_s(machine))}"
    fits = "" if row["fits"] else f" It {row['reason']}"
    return (
        f"{show(told.tokens, 'parameters')} tokens take {total_s / DAY_S:,.1f} days{between} on {row['gpus']} GPUs: "
        f"{row['gpus'] * total_s / HOUR_S:,.0f} GPU-hours{_price(told, total_s)}{_energy(told, total_s)}. "
        f"{show(times['useful'] / total_s, 'percent')} of that is useful, with a failure every {lasting(machine.mtbf_s)} and "
        f"a checkpoint of {show(machine.checkpoint_bytes, 'bytes')} in {lasting(machine.checkpoint_s)} after each "
        f"{lasting(machine.interval())} ({steps:,.0f} step{'s' * (round(steps) != 1)}){best}.{fits}"
    )


def _price(told: Trained, seconds: float) -> str:
    usd = told.point.cluster.usd_per_gpu_hour
    return "" if usd is None else f", ${usd * told.rows[-1]['gpus'] * seconds / HOUR_S:,.0f}"


def _energy(told: Trained, seconds: float) -> str:
    watts = told.point.cluster.watts_per_gpu
    return "" if watts is None else f", at most {_mwh(told, watts, seconds):,.0f} MWh"


def _mwh(told: Trained, watts: float, seconds: float) -> float:
    return float(watts * told.rows[-1]["gpus"] * seconds / HOUR_S / 1e6)


def _best_s(machine: Machine) -> float:
    return float(costs.best_interval_s(machine.checkpoint_s, machine.mtbf_s))


def _spent(told: Trained) -> Table:
    times, cluster, gpus = told.machine.times_s(told.useful_s()), told.point.cluster, told.rows[-1]["gpus"]
    total_s = sum(times.values())
    columns = [Column(title="where the time goes"), Column(title="days", kind="number"), Column(title="share", kind="percent"),
               Column(title="GPU-hours", kind="number")]  # fmt: skip
    columns += [Column(title="USD", kind="number")] if cluster.usd_per_gpu_hour else []
    columns += [Column(title="MWh at most", kind="number")] if cluster.watts_per_gpu else []

    def cells(name: str, seconds: float) -> tuple[Cell, ...]:
        hours = gpus * seconds / HOUR_S
        worth = [hours * cluster.usd_per_gpu_hour] if cluster.usd_per_gpu_hour else []
        worth += [_mwh(told, cluster.watts_per_gpu, seconds)] if cluster.watts_per_gpu else []
        return name, seconds / DAY_S, seconds / total_s, hours, *worth

    rows = [cells(SPENT[name], seconds) for name, seconds in times.items()]
    note = "Steps are as long as estimated; what chance and slow machines add, experiment=jitter tells."
    if not cluster.usd_per_gpu_hour:
        note += " For a price give cluster.usd_per_gpu_hour."
    return Table(
        title="Where the time goes", columns=tuple(columns), rows=(*rows, cells("all", total_s)),
        emphasis=frozenset({len(rows)}), note=note,
    )  # fmt: skip


def _warnings(told: Trained) -> tuple[str, ...]:
    found = []
    beyond = [
        (phase, at) for phase, at in zip(told.phases, told.critical, strict=True) if phase.batch * told.seq_length > at
    ]
    if beyond:
        phase, at = max(beyond, key=lambda each: each[0].batch * told.seq_length / each[1])
        found.append(
            f"{len(beyond)} of {len(told.phases)} phases have a batch beyond the critical one: batch {phase.batch} is "
            f"{phase.batch * told.seq_length / 1e6:,.3g}M tokens, at that time about {at / 1e6:,.3g}M are critical. Beyond it a "
            "batch costs tokens: more must be trained on for the same loss."
        )
    if sum(told.machine.times_s(1.0).values()) > 2:
        found.append("More than half of the time is lost: failures come too often for these checkpoints and restarts.")
    return tuple(found)


def _items(told: Trained) -> Table:
    items = {item: seconds for item, seconds in told.items_s().items() if seconds > 0}
    total_s = told.useful_s()
    rows = [(TIME_WORDS[item][0], seconds / DAY_S, seconds / total_s) for item, seconds in items.items()]
    columns = (
        Column(title="item"),
        Column(title="days", kind="number"),
        Column(title="share of useful", kind="percent"),
    )
    return Table(
        title="Useful time by item", columns=columns, rows=(*rows, ("all steps", total_s / DAY_S, 1.0)),
        emphasis=frozenset({len(rows)}),
    )  # fmt: skip


def _phases(told: Trained) -> Table:
    columns = (
        Column(title="batch", kind="count"), Column(title="steps", kind="count"), Column(title="until token", kind="parameters"),
        Column(title="step", kind="seconds"), Column(title="MFU", kind="percent"), Column(title="days", kind="number"),
        Column(title="batch in tokens", kind="parameters"), Column(title="critical then", kind="parameters"),
    )  # fmt: skip
    rows = [
        (phase.batch, phase.steps, phase.end * told.seq_length, row["step_time_s"], row["mfu"],
         phase.steps * row["step_time_s"] / DAY_S, phase.batch * told.seq_length, float(at))
        for phase, row, at in zip(told.phases, told.rows, told.critical, strict=True)
    ]  # fmt: skip
    shown = sorted({*np.linspace(0, len(rows) - 1, MOST_PHASES).round().astype(int).tolist()})
    left = len(rows) - len(shown)
    return Table(
        title="Phases of the batch", columns=columns, rows=tuple(rows[i] for i in shown),
        note=f"{left} phases in between are left out here; they count, and the table of the study has each batch." if left else "",
    )  # fmt: skip


def _critical(told: Trained) -> str:
    share = told.phases[-1].batch * told.seq_length / float(told.critical[-1])
    return (
        f"At the end a batch is {show(share, 'percent')} of the critical one. That is where training takes twice the fewest "
        "steps and twice the fewest tokens: 2e8 tokens x L^(-1/0.21), with the loss L that Kaplan et al. 2020 expect of so many "
        "parameters and tokens (equations 1.4 and 1.5; McCandlish et al. 2018). A rough guide: fitted below 1.5B parameters on "
        'one data set; Zhang et al., "How Does Critical Batch Size Scale in Pre-training?", 2024, find that it grows with the '
        "tokens and hardly with the model."
    )


def _machine(told: Trained) -> Table:
    machine, shared = told.machine, told.asked["checkpoint_gb_per_s"] is None
    rows = (
        ("a failure of the job every", lasting(machine.mtbf_s), "task.goodput.gpu_mtbf_hours over the GPUs"),
        (
            "a checkpoint holds",
            show(machine.checkpoint_bytes, "bytes"),
            "14 bytes a parameter: weights and Adam's state",
        ),
        (
            "storage takes",
            f"{machine.bytes_per_s / 1e9:,.4g} GB/s",
            "0.122 GB/s a GPU, as Llama 3's storage had" if shared else "task.goodput.checkpoint_gb_per_s",
        ),
        ("so work stands still for", lasting(machine.checkpoint_s), "once an interval; none of it is hidden"),
        ("a restart takes", lasting(machine.restart_s), "task.goodput.restart_s"),
    )
    columns = (Column(title="what"), Column(title="value"), Column(title="where from"))
    return Table(title="What interrupts the work", columns=columns, rows=rows)


def _intervals(told: Trained) -> Table:
    machine = told.machine
    delta_s, mtbf_s = machine.checkpoint_s, machine.mtbf_s
    named = (
        ("Young 1974", float(costs.young_interval_s(delta_s, mtbf_s))),
        ("Daly 2006", float(costs.daly_interval_s(delta_s, mtbf_s))),
        ("exact", _best_s(machine)),
        ("used" if told.asked["interval_s"] is None else "asked", machine.interval()),
    )
    step_s = told.rows[-1]["step_time_s"]
    rows = tuple((name, lasting(at), at / step_s, _share(machine, at)) for name, at in named)
    columns = (Column(title="work between two checkpoints"), Column(title="interval"), Column(title="steps", kind="number"),
               Column(title="useful share", kind="percent"))  # fmt: skip
    return Table(title="Intervals", columns=columns, rows=rows, emphasis=frozenset({3}))


def _share(machine: Machine, interval_s: float) -> float:
    return float(costs.useful_share(interval_s, machine.checkpoint_s, machine.mtbf_s, machine.restart_s))


def _curves(told: Trained) -> Curves:
    lines = []
    for name, machine in (each for each in told.changed if each[0].startswith(("as asked", "time between"))):
        best_s = _best_s(machine)
        at = best_s * np.geomspace(0.1, 10, 21)
        lines.append(
            Line(
                name=name, points=tuple((float(x), _share(machine, float(x))) for x in at), labels=("",) * len(at),
                best=len(at) // 2,
            )
        )  # fmt: skip
    return Curves(
        slug="interval", title="Useful share by the interval between checkpoints",
        caption="Stars are the best intervals; around them the curve is flat, so a rough choice does.",
        x=Axis(title="work between two checkpoints", kind="seconds", log=True), y=Axis(title="useful share", kind="percent"),
        lines=tuple(lines),
    )  # fmt: skip


def _sensitivity(told: Trained) -> Table:
    columns = (Column(title="change"), Column(title="interval"), Column(title="useful share", kind="percent"),
               Column(title="days", kind="number"), Column(title="days more", kind="number"))  # fmt: skip
    useful_s = told.useful_s()
    days = [sum(machine.times_s(useful_s).values()) / DAY_S for _, machine in told.changed]
    rows = tuple(
        (name, lasting(machine.interval()), _share(machine, machine.interval()), each, each - days[0])
        for (name, machine), each in zip(told.changed, days, strict=True)
    )
    return Table(title="Each with its own best interval", columns=columns, rows=rows, emphasis=frozenset({0}))


def _definitions(told: Trained) -> tuple[str, ...]:
    return (
        "Useful share = useful / all seconds, expected under failures that are exponential and independent, each of which loses "
        "all work since the last checkpoint: Daly's exact model (2006, equation 20). Left out: planned stops, checkpoints that are "
        "written beside the work, evaluation, steps skipped for bad data.",
        "The days between brackets follow from the 90 % interval of the step time alone; how often GPUs fail is not in them. "
        "Energy is the boards' limit (cluster.watts_per_gpu) for all hours: GPUs alone, no hosts, network or cooling.",
        f"Steps take what a plain run says of their batch (sequences of {told.seq_length:,} tokens); a phase ends with the "
        "first step at or behind its token.",
    )
