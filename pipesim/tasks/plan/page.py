"""The report of a plan: which layout to run, the best of them, where the config's own stands, and what was searched."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pipesim import headroom
from pipesim.launch.rules import FRAMEWORKS
from pipesim.plan.asked.behind import config_behind
from pipesim.plan.explain.fit import fit
from pipesim.plan.search import question, stability
from pipesim.plan.search.best import COUNTED, own_row
from pipesim.plan.search.refine import ORDER, PARTITION
from pipesim.plan.search.stability import Stability
from pipesim.report import command, fit_tables, provenance
from pipesim.report.document import Column, Document, Listing, Section, Table
from pipesim.report.formats import show
from pipesim.report.memory_words import memory_sure
from pipesim.report.ranking import Row, pace
from pipesim.report.say import english
from pipesim.report.sweep import tables as sweep_tables
from pipesim.report.sweep.charts import trade_offs
from pipesim.report.words import MEMORY_WORDS, VERDICT_WORDS, definitions, layout_name, trust

SHOWN = 12
"""Values of a key that are listed before they are counted."""


def page(rows: Sequence[Row], manifest: Mapping[str, Any]) -> Document:
    """``rows`` are those that the search kept."""
    config, counts = manifest["config"], manifest["searched"]
    same = question.apart(question.ranked(config, rows))[: question.MOST_TOLD]
    ranked = [each[0] for each in same]
    best = ranked[: config["task"]["plan"]["best"]]
    sure = stability.of(ranked, pace=lambda row: 1 / row["tokens_per_s_per_gpu"]) if ranked else None
    own = own_row(config)
    sections = [
        Section(title="Answer", blocks=(*_answer(config, ranked, rows, sure), *_own(config, best, own, counts)))
    ]
    if (way_out := None if best else _way_out(config, rows)) is not None:
        blocks = (fit_tables.way_out(way_out, english), fit_tables.ways_out([way_out], _named, english))
        sections.append(Section(title="What would make the nearest fit", blocks=blocks))
    if best:
        sections += [
            Section(
                title="The best that fit", blocks=(_ranking(config, same[: len(best)], sure), _commands(manifest, best))
            ),
            Section(
                title="Where the step's seconds go", blocks=(sweep_tables.shares(best, _named, english),), aside=True
            ),
            Section(
                title="Against each other",
                blocks=tuple(trade_offs([*ranked], pace(ranked, english), _named, english, "")),
                aside=True,
            ),
        ]
    sections += [
        Section(title="What was searched", blocks=(_counted(config, counts), _values(config, manifest))),
        *provenance.behind(manifest, rows, english),
        Section(
            title="How to read this",
            blocks=(
                *definitions(sorted({row["flop_convention"] for row in best} or {"palm"})),
                provenance.provenance(manifest),
            ),
            aside=True,
        ),
        provenance.details(manifest, english),
    ]
    points = sum(n for name, n in counts.items() if name != COUNTED.FASTER)
    name, cluster = config["model"]["name"], config["cluster"]["name"]
    gpus = " or ".join(f"{count:,}" for count in question.gpu_counts(config))
    return Document(
        title=f"A plan for {name} on {gpus} GPUs of {cluster}: {points:,} layouts", sections=tuple(sections)
    )


def _named(row: Row) -> str:
    more = [name for name, holds in (("zero", row["zero"]), ("sequence_parallel", row["sequence_parallel"])) if holds]
    named = f"{layout_name(row, ('micro_batch', 'schedule', *more))} recompute={row['recompute']}"
    order = re.search(rf"{ORDER}=(\w+)", row["settings"] or "")
    uneven = PARTITION in (row["settings"] or "")
    return " ".join([named, *([f"ranks={order[1]}"] if order else []), *["uneven"] * uneven])


def _answer(
    config: Mapping[str, Any], ranked: Sequence[Row], rows: Sequence[Row], sure: Stability | None
) -> Iterator[str]:
    if not ranked:
        yield _nothing(config, rows)
        return
    first = ranked[0]
    step, mfu, held, limit = (
        show(first["step_time_s"], "seconds"), show(first["mfu"], "percent"),
        show(first["memory_bytes"], "bytes"), show(first["memory_limit_bytes"], "bytes"),
    )  # fmt: skip
    yield (
        f"Run {_named(first)}{_on(config, first)}: {step} a step, MFU {mfu}, {held} of {limit} on its heaviest rank "
        f"({first['heaviest_rank']}); bound by {VERDICT_WORDS[first['verdict']][0]}.{_worth(config, first)}"
    )
    yield trust(first) + memory_sure(first, headroom.of(config), english)
    if sure is not None and len(ranked) > 1:
        yield _how_sure(sure, len(ranked))


def _on(config: Mapping[str, Any], row: Row) -> str:
    return f" on {row['gpus']:,} GPUs" if len(question.gpu_counts(config)) > 1 else ""


def _worth(config: Mapping[str, Any], row: Row) -> str:
    """What the objective is, beyond the step time, and how long the training takes."""
    asked = config["task"]["plan"]
    said = ""
    if asked["objective"] in ("cost", "energy", "tokens_per_s_per_gpu"):
        said += f" {_objective(config, row)}."
    takes = question.days(asked, row["tokens_per_s"])
    if takes is not None:
        said += f" {asked['tokens']:.3g} tokens take {takes:.1f} days."
    return said


def _objective(config: Mapping[str, Any], row: Row) -> str:
    value = question.value(config, row)
    match config["task"]["plan"]["objective"]:
        case "cost":
            return f"{value:.4g} USD for a million tokens"
        case "energy":
            return f"At most {value / 1e3:.4g} kJ for a million tokens, at the boards' limit"
        case "tokens_per_s_per_gpu":
            return f"{-value:,.0f} tokens/s per GPU"
    return show(row["step_time_s"], "seconds")


def _nothing(config: Mapping[str, Any], rows: Sequence[Row]) -> str:
    asked = config["task"]["plan"]
    free = headroom.of(config)
    room = f" with {show(free, 'percent')} of the memory free" if free else ""
    if roomy := [row for row in rows if question.has_room(config, row)]:
        fastest = min(roomy, key=lambda row: -row["tokens_per_s"])
        takes = question.days(asked, fastest["tokens_per_s"])
        return (
            f"No layout of up to {max(question.gpu_counts(config)):,} GPUs trains {asked['tokens']:.3g} tokens in "
            f"{asked['deadline_days']:g} days: the fastest, {_named(fastest)} on {fastest['gpus']:,} GPUs, takes {takes:.1f} days. "
            "For more GPUs give cluster.gpus=, or numbers to try in task.plan.gpus=."
        )
    nearest = _nearest(rows)
    if nearest is None:
        return "No layout could be estimated."
    missing = nearest["memory_bytes"] - (1 - free) * nearest["memory_limit_bytes"]
    return (
        f"No layout fits{room}. The nearest is {_named(nearest)}: it lacks {show(missing, 'bytes')}, for its heaviest rank "
        f"({nearest['heaviest_rank']}) holds {show(nearest['memory_bytes'], 'bytes')} of "
        f"{show(nearest['memory_limit_bytes'], 'bytes')}." + " headroom=0 would allow it." * bool(nearest["fits"])
    )


def _nearest(rows: Sequence[Row]) -> Row | None:
    known = [row for row in rows if row["memory_bytes"] is not None]
    return min(known, key=lambda row: row["memory_bytes"] - row["memory_limit_bytes"], default=None)


def _way_out(config: Mapping[str, Any], rows: Sequence[Row]) -> Mapping[str, Any] | None:
    """What would make the nearest layout fit, all of its memory used; None where it does."""
    nearest = _nearest(rows)
    asked = None if nearest is None else config_behind(nearest, config)
    found = None if asked is None else fit(asked)
    return None if found is None else asdict(found)


def _own(config: Mapping[str, Any], best: Sequence[Row], own: Row, counts: Mapping[str, int]) -> Iterator[str]:
    """Where the layout of the config itself stands."""
    if own["status"] not in ("ok", "infeasible"):
        yield f"The config's own layout cannot run: {own['reason']}"
        return
    step, held = show(own["step_time_s"], "seconds"), show(own["memory_bytes"], "bytes")
    said = f"The config's own layout, {_named(own)}, takes {step} with {held}"
    if not question.has_room(config, own):
        yield f"{said}: it has no place.{memory_sure(own, headroom.of(config), english)}"
        return
    as_many = [row for row in best if row["gpus"] == own["gpus"]]
    place, where = _place(counts, own, as_many), f" of those on {own['gpus']:,} GPUs"
    if not as_many:
        yield f"{said}; {place}{where}." if place else f"{said}."
        return
    fastest = min(row["step_time_s"] for row in as_many)
    behind = show(own["step_time_s"] / fastest - 1, "percent")
    told = f", {place}{where if _on(config, own) else ''}" if place else ""
    yield f"{said}: {behind} behind the best{told}."


def _place(counts: Mapping[str, int], own: Row, others: Sequence[Row]) -> str:
    """Nothing where the faster ones were not counted."""
    faster = counts.get(COUNTED.FASTER, 0)
    known = faster or not any(row["step_time_s"] < own["step_time_s"] and not row["settings"] for row in others)
    return f"place {faster + 1:,}" if known else ""


def _how_sure(sure: Stability, kept: int) -> str:
    best = show(sure.best[sure.order.index(0)], "percent")
    alike = (
        f"{len(sure.alike):,} of the other {kept - 1:,} cannot be told from it" if sure.alike else "none comes near it"
    )
    return f"How sure: the chance that it is truly the fastest per GPU of those kept is {best}; {alike}."


def _ranking(config: Mapping[str, Any], same: Sequence[Sequence[Row]], sure: Stability | None) -> Table:
    objective = config["task"]["plan"]["objective"]
    chances = [] if sure is None else [chance for _, chance in sorted(zip(sure.order, sure.best, strict=True))]
    titles = {"cost": "USD / 1M tokens", "energy": "J / 1M tokens, at most", "tokens_per_s_per_gpu": "tokens/s per GPU"}
    sign = -1 if objective == "tokens_per_s_per_gpu" else 1
    best = [each[0] for each in same]
    first = best[0]["step_time_s"]
    columns = (
        Column(title="#", kind="count"),
        Column(title="layout"),
        *((Column(title="and equal"),) if any(len(each) > 1 for each in same) else ()),
        *((Column(title="GPUs", kind="count"),) if len(question.gpu_counts(config)) > 1 else ()),
        Column(title="step", kind="seconds"),
        Column(title="9 in 10 from", kind="seconds"),
        Column(title="to", kind="seconds"),
        *((Column(title=titles[objective], kind="number"),) if objective in titles else ()),
        Column(title="slower", kind="percent"),
        *((Column(title="truly best", kind="percent"),) if chances else ()),
        Column(title="memory", kind="bytes"),
        Column(title="mostly"),
        Column(title="MFU", kind="percent"),
        Column(title="bound by"),
    )
    rows = tuple(
        (
            place,
            _named(row),
            *((_equals(same[place - 1]),) if any(len(each) > 1 for each in same) else ()),
            *((row["gpus"],) if len(question.gpu_counts(config)) > 1 else ()),
            row["step_time_s"],
            row["step_time_lo_s"],
            row["step_time_hi_s"],
            *((sign * question.value(config, row),) if objective in titles else ()),
            row["step_time_s"] / first - 1,
            *((chances[place - 1],) if chances else ()),
            row["memory_bytes"],
            _mostly(row),
            row["mfu"],
            VERDICT_WORDS[row["verdict"]][0],
        )
        for place, row in enumerate(best, 1)
    )
    free = show(headroom.of(config), "percent")
    note = f"Memory is the heaviest rank's; {free} of a GPU's is kept free (headroom)." + (
        " Truly best: how likely no other is faster per GPU, from how far measured runs differ from what was predicted of them; "
        "layouts that are much alike share a chance."
        if chances
        else ""
    )
    return Table(title="Layouts", columns=columns, rows=rows, emphasis=frozenset({0}), note=note)


def _equals(same: Sequence[Row]) -> str:
    """What tells the others that are as fast and as large."""
    first, names = same[0], ("t", "p", "d", "c", "e", "v", "micro_batch", "zero", "recompute", "schedule")
    told = [[f"{name}={row[name]}" for name in names if row[name] != first[name]] for row in same[1:]]
    return "; ".join(" ".join(each) for each in told[:2]) + ("; …" if len(told) > 2 else "")


def _mostly(row: Row) -> str:
    """What most of the heaviest rank's memory is."""
    item = max(MEMORY_WORDS, key=lambda each: row[f"{each}_bytes"])
    return f"{MEMORY_WORDS[item][0]} {show(row[f'{item}_bytes'], 'bytes')}"


def _commands(manifest: Mapping[str, Any], best: Sequence[Row]) -> Listing:
    """What to type for each of them."""
    asked = [command.words(row, manifest["config"], manifest["overrides"]) for row in best]
    own = manifest.get("own_configs", [])
    lines = [shlex.join(["python", "experiments/run.py", *own, *words]) for words in asked]
    return Listing(
        title="To run one of them", text="".join(f"# {place}\n{line}\n" for place, line in enumerate(lines, 1))
    )


def _counted(config: Mapping[str, Any], counts: Mapping[str, int]) -> Table:
    room = headroom.of(config)
    free = f", with {show(room, 'percent')} of it free" if room else ""
    titles = {
        COUNTED.FITS: "estimated, and fit",
        COUNTED.TOO_LARGE: f"need more memory than there is{free}",
        COUNTED.SLOWER: "surely slower than the best, by bounds that no order of theirs can beat",
        COUNTED.FAILED: "failed",
    }
    rows = tuple((title, counts[name]) for name, title in titles.items() if counts.get(name))
    total = sum(count for _, count in rows)
    return Table(
        title="Layouts searched",
        columns=(Column(title="outcome"), Column(title="layouts", kind="count")),
        rows=(*rows, ("all that keep the rules", total)),
        note=_rules(config),
    )


def _rules(config: Mapping[str, Any]) -> str:
    asked, framework = config["task"]["plan"], config["stack"]["framework"]
    same = "Layouts that are the same under two names are counted once. Stages are as even as units allow."
    tried = ["other orders of ranks over nodes"] * asked["rank_orders"] + ["uneven stages"] * asked["partitions"]
    if tried:
        same += f" Then {2 * asked['best']} of the best were tried with {' and '.join(tried)}; what is faster is kept."
    if not asked["framework_rules"]:
        return f"{same} No framework's rules were kept: task.plan.framework_rules=false."
    if framework not in FRAMEWORKS:
        return f"{same} stack.name={config['stack']['name']} names no framework whose rules could be kept."
    return f"{same} Only what {framework} can run: {FRAMEWORKS[framework].source}."


def _values(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> Table:
    asked = config["task"]["plan"]
    return Table(
        title="Values tried",
        columns=(Column(title="key"), Column(title="values"), Column(title="given by")),
        rows=tuple(
            (key, _short(values), "task.plan" if asked[key] is not None else "all that are legal")
            for key, values in manifest["values"].items()
        ),
    )


def _short(values: Sequence[Any]) -> str:
    shown = [str(value) for value in values]
    if len(shown) <= SHOWN:
        return ", ".join(shown)
    return f"{', '.join(shown[:3])} … {shown[-1]} ({len(shown)} values)"
