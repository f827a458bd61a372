"""The report of a sweep: the best layout that fits, all of them ranked and compared, and why the others cannot run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pipesim.report.document import Axis, Chart, Column, Document, Mark, Section, Table
from pipesim.report.formats import show
from pipesim.report.words import MEMORY_WORDS, definitions, layout_name, provenance, trust

Row = Mapping[str, Any]
Named = Callable[[Row], str]

_IDENTITY = ("model", "cluster", "stack", "costs", "schedule", "t", "p", "d", "c", "e", "v", "zero", "recompute",
             "sequence_parallel", "precision", "attention", "micro_batch", "global_batch", "seq_length", "settings")  # fmt: skip
HEADROOM = 0.1
"""Share of a GPU's memory by which published runs differ from what is counted, mostly less."""

_ALWAYS = ("t", "p", "d", "micro_batch")


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Layouts that fit by tokens/s, then those that do not, by memory; ties stay in the table's order."""
    priced = [row for row in rows if row["status"] in ("ok", "infeasible")]
    return sorted(
        priced, key=lambda row: (not row["fits"], -row["tokens_per_s"] if row["fits"] else row["memory_bytes"])
    )


def sweep_page(
    rows: Sequence[Row], manifest: Mapping[str, Any], counts: Mapping[str, int] | None = None, kept: str = ""
) -> Document:
    """``counts`` are of all points by status, where ``rows`` are only some of them; ``kept`` says which a grid keeps."""
    order = ranked(rows)
    counts = Counter(row["status"] for row in rows) if counts is None else counts
    points = sum(counts.values())
    varied = tuple(name for name in _IDENTITY if len({row[name] for row in rows}) > 1)
    named = partial(layout_name, varied=varied)
    refused = [row for row in rows if row["status"] not in ("ok", "infeasible")]
    sections = [
        Section(
            title="Answer", blocks=(*filter(None, [kept]), *_answers(rows, order, named), _counts(counts, len(rows)))
        )
    ]
    if order:
        sections += [
            Section(title="Layouts, ranked", blocks=(_ranking(order, varied),)),
            Section(title="Comparison", blocks=_charts(order, named)),
            Section(title="Where the step's seconds go", blocks=(_shares(order, named),)),
        ]
    if shortfalls := [row for row in order if not row["fits"]]:
        sections.append(Section(title="What does not fit", blocks=(_shortfalls(shortfalls, named),)))
    if unwise := [{**row, "reason": row["warning"]} for row in order if row["warning"]]:
        sections.append(Section(title="What runs but is unwise", blocks=(_reasons("Warnings", unwise, named),)))
    if refused:
        sections.append(Section(title="What cannot run", blocks=(_reasons("Broken rules", refused, named),)))
    conventions = sorted({row["flop_convention"] for row in order} or {"palm"})
    sections.append(Section(title="How to read this", blocks=(*definitions(conventions), provenance(manifest))))
    return Document(
        title=f"{points} layout{'s' * (points > 1)} of {_named(rows, 'model')} on {_named(rows, 'cluster')}",
        sections=tuple(sections),
    )


def _named(rows: Sequence[Row], column: str) -> str:
    return ", ".join(sorted({str(row[column]) for row in rows}))


def _answers(rows: Sequence[Row], order: Sequence[Row], named: Named) -> tuple[str, ...]:
    """One answer for each model, cluster and cost model: layouts of different ones are no alternatives."""
    asked = sorted({(str(row["model"]), str(row["cluster"]), str(row["costs"])) for row in rows})
    return tuple(
        (f"{model} on {cluster}, {costs} costs: " if len(asked) > 1 else "")
        + _answer(
            [row for row in order if (row["model"], row["cluster"], row["costs"]) == (model, cluster, costs)], named
        )
        for model, cluster, costs in asked
    )


def _answer(order: Sequence[Row], named: Named) -> str:
    best = [row for row in order if row["fits"]]
    if not best:
        if not order:
            return "No layout can run: every one breaks a rule."
        return f"No layout fits. The nearest is {named(order[0])}: {order[0]['reason']}"
    first = best[0]
    text = (
        f"The fastest layout that fits is {named(first)}: {show(first['step_time_s'], 'seconds')} a step, "
        f"MFU {show(first['mfu'], 'percent')}, {show(first['memory_bytes'], 'bytes')} of "
        f"{show(first['memory_limit_bytes'], 'bytes')}; bound by {first['verdict']}."
    )
    if len(best) > 1:
        slower = first["tokens_per_s"] / best[1]["tokens_per_s"] - 1
        text += f" The runner-up, {named(best[1])}, is {show(slower, 'percent')} slower."
    roomy = [row for row in best if row["memory_bytes"] <= (1 - HEADROOM) * row["memory_limit_bytes"]]
    if first["costs"] == "full" and roomy[:1] != [first]:
        text += f" With {show(HEADROOM, 'percent')} of the memory left free, the fastest is " + (
            f"{named(roomy[0])}: {show(roomy[0]['step_time_s'], 'seconds')}, {show(roomy[0]['memory_bytes'], 'bytes')}."
            if roomy
            else "none of these."
        )
    text += f" {trust(first)}"
    if first["costs"] == "full":
        text += " Take layouts within 10 % of each other as equally fast."
    return text


def _counts(counts: Mapping[str, int], shown: int) -> Table:
    points = sum(counts.values())
    words = {"ok": "fit", "infeasible": "do not fit", "invalid": "break rules", "failed": "failed"}
    return Table(
        title="Asked points",
        columns=(Column(title="outcome"), Column(title="points", kind="count")),
        rows=(*((words[status], counts[status]) for status in words if counts.get(status)), ("all", points)),
        note=""
        if shown == points
        else f"This report is made from {shown:,} of them: the fastest, and some that cannot run.",
    )


def _ranking(order: Sequence[Row], varied: Sequence[str]) -> Table:
    measures: tuple[tuple[str, str, Any], ...] = (
        ("m", "num_microbatches", "count"), ("step", "step_time_s", "seconds"), ("memory", "memory_bytes", "bytes"),
        ("fits", "fits", "flag"), ("MFU", "mfu", "percent"), ("bubble (idle/total)", "bubble_fraction", "percent"),
        ("tokens/s/GPU", "tokens_per_s_per_gpu", "number"), ("params/GPU", "params_per_gpu", "parameters"),
        ("states", "model_state_bytes", "bytes"), ("DP sent", "dp_bytes_per_gpu", "bytes"),
        ("TP sent", "tp_bytes_per_gpu", "bytes"), ("best possible", "efficiency_bound", "percent"), ("bound by", "verdict", "text"),
    )  # fmt: skip
    shown = [name for name in _IDENTITY if name in varied or name in _ALWAYS]
    identity = [
        Column(title=name.replace("_", "-"), kind="text" if isinstance(order[0][name], str) else "count")
        for name in shown
    ]
    return Table(
        title="Fastest first, by tokens/s; what does not fit stands last",
        columns=(
            Column(title="rank", kind="count"),
            *identity,
            *(Column(title=title, kind=kind) for title, _, kind in measures),
        ),
        rows=tuple(
            (index if row["fits"] else None, *(row[name] for name in shown), *(row[name] for _, name, _ in measures))
            for index, row in enumerate(order, start=1)
        ),
        emphasis=frozenset({0}) if order[0]["fits"] else frozenset(),
        note="best possible: what this partition lets the pipeline reach, mean work over the slowest rank's.",
    )


def _charts(order: Sequence[Row], named: Named) -> tuple[Chart, ...]:
    limit = order[0]["memory_limit_bytes"]
    one_limit = len({row["memory_limit_bytes"] for row in order}) == 1
    bubble = Axis(title="bubble fraction (idle/total)", kind="percent")
    return (
        Chart(
            slug="bubble-against-memory",
            title="Bubble against memory",
            caption="Every layout: memory of its heaviest rank and its share of idle time. Down and left is better.",
            x=Axis(title="memory of the heaviest rank", kind="bytes"),
            y=bubble,
            marks=_marks(order, "memory_bytes", "bubble_fraction", named),
            x_limit=(limit, f"{show(limit, 'bytes')} a GPU") if one_limit else None,
        ),
        Chart(
            slug="communication-against-bubble",
            title="Communication against bubble",
            caption="What each GPU sends in a step (tensor, data, pipeline) and its share of idle time. Down and left is better.",
            x=bubble,
            y=Axis(title="sent per GPU and step", kind="bytes", log=True),
            marks=_marks(order, "bubble_fraction", "sent_bytes", named),
        ),
        Chart(
            slug="time-against-memory",
            title="Step time against memory",
            caption="The choice itself: faster is down, roomier is left.",
            x=Axis(title="memory of the heaviest rank", kind="bytes"),
            y=Axis(title="step time", kind="seconds", log=True),
            marks=_marks(order, "memory_bytes", "step_time_s", named),
            x_limit=(limit, f"{show(limit, 'bytes')} a GPU") if one_limit else None,
        ),
    )


def _marks(order: Sequence[Row], x: str, y: str, named: Named) -> tuple[Mark, ...]:
    def value(row: Row, name: str) -> float:
        sent = ("tp_bytes_per_gpu", "dp_bytes_per_gpu", "pp_bytes_per_gpu")
        return float(sum(row[each] for each in sent) if name == "sent_bytes" else row[name])

    return tuple(
        Mark(x=value(row, x), y=value(row, y), label=named(row), group="fits" if row["fits"] else "does not fit")
        for row in order
    )


def _shares(order: Sequence[Row], named: Named) -> Table:
    """Every layout's step by what it is spent on."""
    groups: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("computing", ("matmul_s", "attention_s", "elementwise_s", "launch_s")),
        ("recomputing", ("recompute_s",)),
        ("tensor", ("tp_s",)),
        ("context, expert", ("cp_s", "ep_s")),
        ("imbalance", ("imbalance_s",)),
        ("bubble", ("bubble_s",)),
        ("pipeline sends", ("pp_exposed_s",)),
        ("data", ("dp_exposed_s",)),
        ("optimizer, fixed", ("optimizer_s", "fixed_s")),
    )
    used = [(title, items) for title, items in groups if any(row[item] for row in order for item in items)]
    return Table(
        title="Seconds by item",
        columns=(
            Column(title="layout"),
            *(Column(title=title, kind="seconds") for title, _ in used),
            Column(title="step", kind="seconds"),
        ),
        rows=tuple(
            (named(row), *(sum(row[item] for item in items) for _, items in used), row["step_time_s"]) for row in order
        ),
    )


def _shortfalls(rows: Sequence[Row], named: Named) -> Table:
    """What the heaviest rank of each holds, against the limit."""
    return Table(
        title="Shortfalls",
        columns=(
            Column(title="layout"),
            Column(title="missing", kind="bytes"),
            *(Column(title=words, kind="bytes") for words in MEMORY_WORDS.values()),
            Column(title="total", kind="bytes"),
        ),
        rows=tuple(
            (
                named(row),
                row["memory_bytes"] - row["memory_limit_bytes"],
                *(row[f"{item}_bytes"] for item in MEMORY_WORDS),
                row["memory_bytes"],
            )
            for row in rows
        ),
        note="Bytes of the heaviest rank. Asked alone, a layout shows every rank.",
    )


def _reasons(title: str, rows: Sequence[Row], named: Named) -> Table:
    return Table(
        title=title,
        columns=(Column(title="layout"), Column(title="reason")),
        rows=tuple((named(row), row["reason"]) for row in rows),
    )
