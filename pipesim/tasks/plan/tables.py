"""The tables of a plan: the best layouts, what was searched, and the values that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesim import headroom
from pipesim.launch.rules import FRAMEWORKS
from pipesim.plan.search import layouts, question
from pipesim.plan.search.best import COUNTED
from pipesim.plan.search.stability import Stability
from pipesim.report.document import Column, Table
from pipesim.report.formats import show
from pipesim.report.ranking import Row
from pipesim.report.words import MEMORY_WORDS, VERDICT_WORDS
from pipesim.tasks.plan.answer import named

REFINED_WORDS = "ranks=: parallel.rank_order, the innermost dimension first; uneven: a parallel.partition of its own"
"""What the last words of a layout's name mean."""

SHOWN = 12
"""Values of a key that are listed before they are counted."""


def ranking(config: Mapping[str, Any], same: Sequence[Sequence[Row]], sure: Stability | None) -> Table:
    objective = config["task"]["plan"]["objective"]
    chances = [] if sure is None else [chance for _, chance in sorted(zip(sure.order, sure.best, strict=True))]
    titles = {"cost": "USD / 1M tokens", "energy": "J / 1M tokens, at most", "tokens_per_s_per_gpu": "tokens/s per GPU"}
    sign = -1 if objective == "tokens_per_s_per_gpu" else 1
    best = [each[0] for each in same]
    first = best[0]["step_time_s"]
    doubtful = not all(map(_is_sure, best))
    columns = (
        Column(title="#", kind="count"),
        Column(title="layout"),
        *((Column(title="and as fast"),) if any(len(each) > 1 for each in same) else ()),
        *((Column(title="GPUs", kind="count"),) if len(question.gpu_counts(config)) > 1 else ()),
        Column(title="step", kind="seconds"),
        Column(title="9 in 10 from", kind="seconds"),
        Column(title="to", kind="seconds"),
        *((Column(title=titles[objective], kind="number"),) if objective in titles else ()),
        Column(title="slower", kind="percent"),
        *((Column(title="truly best", kind="percent"),) if chances else ()),
        Column(title="memory", kind="bytes"),
        *((Column(title="fits"),) if doubtful else ()),
        Column(title="largest part of it"),
        Column(title="MFU", kind="percent"),
        Column(title="bound by"),
    )
    rows = tuple(
        (
            place,
            named(row),
            *((_equals(same[place - 1]),) if any(len(each) > 1 for each in same) else ()),
            *((row["gpus"],) if len(question.gpu_counts(config)) > 1 else ()),
            row["step_time_s"],
            row["step_time_lo_s"],
            row["step_time_hi_s"],
            *((sign * question.value(config, row),) if objective in titles else ()),
            row["step_time_s"] / first - 1,
            *((chances[place - 1],) if chances else ()),
            row["memory_bytes"],
            *(("surely" if _is_sure(row) else "may not fit",) if doubtful else ()),
            _mostly(row),
            row["mfu"],
            VERDICT_WORDS[row["verdict"]][0],
        )
        for place, row in enumerate(best, 1)
    )
    free = show(headroom.of(config), "percent")
    note = f"SP: sequence parallelism; {REFINED_WORDS}. Memory is the heaviest rank's; {free} of a GPU's is kept free (headroom)."
    if doubtful:
        note += " May not fit: memory's 9 in 10 interval passes a GPU's."
    if any(len(each) > 1 for each in same):
        note += (
            " And as fast: the same time and memory, or another v alone and at most "
            f"{show(question.SAME_PACE, 'percent')} slower."
        )
    if chances:
        note += (
            " Truly best: how likely no other is faster per GPU, from how far measured runs differ from what was predicted of "
            "them; layouts that are much alike share a chance."
        )
    return Table(title="Layouts", columns=columns, rows=rows, emphasis=frozenset({0}), note=note)


def _equals(same: Sequence[Row]) -> str:
    """What tells the others that are as fast: every v, then the rest."""
    first, names = same[0], ("t", "p", "d", "c", "e", "v", "micro_batch", "zero", "recompute", "schedule")
    told = [{name: row[name] for name in names if row[name] != first[name]} for row in same[1:]]
    stages = sorted(each["v"] for each in told if each.keys() == {"v"})
    rest = [" ".join(f"{name}={value}" for name, value in each.items()) for each in told if each.keys() != {"v"}]
    shown = [f"v={', '.join(map(str, stages))}"] * bool(stages) + rest[:2]
    return "; ".join(filter(None, shown)) + ("; …" if len(rest) > 2 else "")


def _is_sure(row: Row) -> bool:
    """Whether all of the memory's interval fits."""
    return bool(row["memory_hi_bytes"] <= row["memory_limit_bytes"])


def _mostly(row: Row) -> str:
    """What most of the heaviest rank's memory is."""
    item = max(MEMORY_WORDS, key=lambda each: row[f"{each}_bytes"])
    return f"{MEMORY_WORDS[item][0]} {show(row[f'{item}_bytes'], 'bytes')}"


def counted(config: Mapping[str, Any], counts: Mapping[str, int]) -> Table:
    room = headroom.of(config)
    free = f", with {show(room, 'percent')} of it free" if room else ""
    titles = {
        COUNTED.FITS: "estimated, and fit",
        COUNTED.TOO_LARGE: f"need more memory than there is{free}",
        COUNTED.SLOWER: "surely slower than the best: even the least that they can take is more",
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
    if asked["recompute"] is None and layouts.saves_nothing(config):
        same += (
            f" recompute=selective is left out: with training.attention={config['training']['attention']} it holds as much as none "
            "and takes longer. task.plan.recompute lists what shall be tried all the same."
        )
    if not asked["framework_rules"]:
        return f"{same} No framework's rules were kept: task.plan.framework_rules=false."
    if framework not in FRAMEWORKS:
        return f"{same} stack.name={config['stack']['name']} names no framework whose rules could be kept."
    return f"{same} Only what {framework} can run: {FRAMEWORKS[framework].source}."


def values_tried(config: Mapping[str, Any], manifest: Mapping[str, Any]) -> Table:
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
