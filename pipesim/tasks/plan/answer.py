"""The sentences of a plan: what to run, how sure that is, where the config's own layout stands, and what lies nearest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim import headroom
from pipesim.plan.search import question
from pipesim.plan.search.best import COUNTED
from pipesim.plan.search.refine import ORDER, PARTITION
from pipesim.plan.search.stability import Stability
from pipesim.report.formats import show
from pipesim.report.memory_words import memory_sure, with_room
from pipesim.report.ranking import Row
from pipesim.report.say import english
from pipesim.report.words import bound_by, layout_name, trust


def named(row: Row) -> str:
    more = [name for name, holds in (("zero", row["zero"]), ("sequence_parallel", row["sequence_parallel"])) if holds]
    named = f"{layout_name(row, ('micro_batch', 'schedule', *more))} recompute={row['recompute']}"
    order = re.search(rf"{ORDER}=(\w+)", row["settings"] or "")
    uneven = PARTITION in (row["settings"] or "")
    return " ".join([named, *([f"ranks={order[1]}"] if order else []), *["uneven"] * uneven])


def answer(
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
        f"Run {named(first)}{_on(config, first)}: {step} a step, MFU {mfu}, {held} of {limit} on its heaviest rank "
        f"({first['heaviest_rank']}); bound by {bound_by(first)}.{_worth(config, first)}"
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
    if roomy := [row for row in rows if question.has_room(config, row)]:
        fastest = min(roomy, key=lambda row: -row["tokens_per_s"])
        takes = question.days(asked, fastest["tokens_per_s"])
        return (
            f"No layout of up to {max(question.gpu_counts(config)):,} GPUs trains {asked['tokens']:.3g} tokens in "
            f"{asked['deadline_days']:g} days: the fastest, {named(fastest)} on {fastest['gpus']:,} GPUs, takes {takes:.1f} days. "
            "For more GPUs give cluster.gpus=, or numbers to try in task.plan.gpus=."
        )
    nearest = nearest_of(rows)
    if nearest is None:
        return "No layout could be estimated."
    missing = nearest["memory_bytes"] - (1 - free) * nearest["memory_limit_bytes"]
    return (
        f"No layout fits{with_room(free)}. The nearest is {named(nearest)}: it lacks {show(missing, 'bytes')}, for its "
        f"heaviest rank ({nearest['heaviest_rank']}) holds {show(nearest['memory_bytes'], 'bytes')} of "
        f"{show(nearest['memory_limit_bytes'], 'bytes')}." + " headroom=0 would allow it." * bool(nearest["fits"])
    )


def nearest_of(rows: Sequence[Row]) -> Row | None:
    known = [row for row in rows if row["memory_bytes"] is not None]
    return min(known, key=lambda row: row["memory_bytes"] - row["memory_limit_bytes"], default=None)


def own_layout(config: Mapping[str, Any], best: Sequence[Row], own: Row, counts: Mapping[str, int]) -> Iterator[str]:
    """Where the layout of the config itself stands."""
    if own["status"] not in ("ok", "infeasible"):
        yield f"The config's own layout cannot run: {own['reason']}"
        return
    step, held = show(own["step_time_s"], "seconds"), show(own["memory_bytes"], "bytes")
    said = f"The config's own layout, {named(own)}, takes {step} with {held}"
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
    return f"place {faster + 1:,} by step time" if known else ""


def _how_sure(sure: Stability, kept: int) -> str:
    best = show(sure.best[sure.order.index(0)], "percent")
    alike = (
        f"{len(sure.alike):,} of the other {kept - 1:,} are too near to be told from it"
        if sure.alike
        else "none comes near it"
    )
    return f"How sure: the chance that it is truly the fastest per GPU of the {kept:,} layouts that were kept is {best}; {alike}."
