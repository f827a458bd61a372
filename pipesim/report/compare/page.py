"""The report that compares studies: each with the first, its winners, what changed and why, and how sure that is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipesim.report.compare.joined import Study, best, join, reads, records, with_rank
from pipesim.report.compare.pair import Pair, pair_sections, verdicts
from pipesim.report.compare.runs import runs_section
from pipesim.report.compare.words import HOW_TO_READ, number, speed_up_words, used
from pipesim.report.document import Cell, Column, Document, Section, Table
from pipesim.report.formats import show
from pipesim.report.provenance import provenance
from pipesim.report.words import layout_name

GROUPS = ("model", "cluster", "costs")
"""Layouts that differ in these are no alternatives of each other."""

_NOT_ASKED = ("study", "engine", "resume", "resume_anyway", "fail_fast", "lang")
"""Keys of a config that decide no number."""

MOST_KEYS = 200
MOST_WINNERS = 4
"""Sentences on winners; their table has all."""


def compare_page(studies: Sequence[Study], columns: Sequence[str]) -> Document:
    """``columns`` are those of the table by which layouts are told apart. Each study is compared with the first."""
    ranked = [
        Study(name=each.name, about=each.about, rows=with_rank(each.rows, GROUPS), points=each.points, notes=each.notes)
        for each in studies
    ]
    first, *others = ranked
    pairs = [Pair(at, first, each, join(first.rows, each.rows, columns)) for at, each in enumerate(others, start=1)]
    configs = _configs(ranked)
    groups = [name for name in GROUPS if not any(name in pair.joined.apart for pair in pairs)]
    cautions = tuple(dict.fromkeys([*_cautions(ranked, configs), *(note for each in ranked for note in each.notes)]))
    answer = [verdict for pair in pairs for verdict in (*verdicts(pair), *_winner_sentences(pair, groups))]
    answer += [f"Take care: {each}" for each in cautions]
    sections = [
        Section(title="Answer", blocks=tuple(answer)),
        Section(title="Winners", blocks=(used(_winners(ranked, columns, groups)),)),
        *(section for pair in pairs for section in pair_sections(pair)),
        *runs_section(ranked),
        Section(title="What was asked", blocks=(_studies(ranked), *_differences(ranked, configs))),
        Section(title="How to read this", blocks=HOW_TO_READ),
    ]
    return Document(
        title=f"{first.name} and {', '.join(each.name for each in others)} compared", sections=tuple(sections)
    )


def _winners(studies: Sequence[Study], columns: Sequence[str], groups: Sequence[str]) -> Table:
    """Every study's best layouts, and their speed-up over the first study's that agrees in ``groups``."""
    varied = [
        name for name in columns if len({str(value) for each in studies for value in each.rows[name].unique()}) > 1
    ]
    found = [(at, row) for at, each in enumerate(studies) for row in records(best(each.rows, GROUPS))]
    found.sort(key=lambda item: ([str(item[1][name]) for name in groups], item[0]))
    rows: list[tuple[Cell, ...]] = []
    firsts: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for at, row in found:
        start = firsts.setdefault(tuple(row[name] for name in groups), row)
        rows.append(
            (
                row["model"], row["cluster"], studies[at].name, layout_name(row, [*varied]), row["step_s"],
                *(_over(start, row) if start is not row else (None, None, None, "")),
                row["memory_bytes"], row["mfu"], row["verdict"],
            )
        )  # fmt: skip
    return Table(
        title="The fastest that fits, of each model and cluster",
        columns=(
            Column(title="model"), Column(title="cluster"), Column(title="study"), Column(title="layout"),
            Column(title="step", kind="seconds"), Column(title="speed-up", kind="number"), Column(title="from", kind="number"),
            Column(title="to", kind="number"), Column(title="reads"), Column(title="memory", kind="bytes"),
            Column(title="MFU", kind="percent"), Column(title="bound by"),
        ),
        rows=tuple(rows),
        note="Speed-up: over the first study that has a winner there, by tokens/s.",
    )  # fmt: skip


def _winner_sentences(pair: Pair, groups: Sequence[str]) -> Iterator[str]:
    """Of the first groups that have a winner in both."""
    one, other = (
        {tuple(row[name] for name in groups): row for row in reversed(records(best(each.rows, GROUPS)))}
        for each in (pair.before, pair.after)
    )
    for group in [group for group in one if group in other][:MOST_WINNERS]:
        names = [layout_name(rows[group], pair.varied()) for rows in (one, other)]
        speed_up, low, high, read = _over(one[group], other[group])
        ends = "" if low is None else f" (from {show(low, 'number')} to {show(high, 'number')})"
        place = f" for {', '.join(map(str, group))}" if len(one) > 1 else ""
        moved = f"stays {names[0]}" if names[0] == names[1] else f"was {names[0]} and is {names[1]}"
        yield (
            f"The fastest that fits{place} {moved}: {show(one[group]['step_s'], 'seconds')} → "
            f"{show(other[group]['step_s'], 'seconds')}, speed-up {show(speed_up, 'number')}{ends}: {read}."
        )


def _over(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float | None, float | None, float | None, str]:
    speed_up, low, high = speed_up_words(one, other)
    return speed_up, low, high, str(reads(number(speed_up), number(low), number(high))[0])


def _studies(studies: Sequence[Study]) -> Table:
    def row(study: Study) -> tuple[Cell, ...]:
        points = study.points
        return (
            study.name, str(study.about["kind"]), sum(points.values()), points.get("ok", 0), points.get("infeasible", 0),
            points.get("invalid", 0) + points.get("failed", 0), provenance(study.about).removeprefix("Made by "),
        )  # fmt: skip

    return Table(
        title="Studies",
        columns=(
            Column(title="study"), Column(title="kind"), Column(title="points", kind="count"), Column(title="fit", kind="count"),
            Column(title="do not fit", kind="count"), Column(title="cannot run", kind="count"), Column(title="made by"),
        ),
        rows=tuple(row(each) for each in studies),
    )  # fmt: skip


def _configs(studies: Sequence[Study]) -> dict[str, list[str]]:
    """Keys of the configs that differ, with every study's value as one types it."""
    flat = [_asked(each.about) for each in studies]
    names = sorted({name for each in flat for name in each if name.split(".")[0] not in _NOT_ASKED})
    values = {name: [each.get(name, "–") for each in flat] for name in names}
    return {name: each for name, each in values.items() if len(set(each)) > 1}


def _asked(about: Mapping[str, Any]) -> dict[str, str]:
    """Of a sweep: what its first point has, and of an axis all values, as they were typed."""
    flat = dict(_leaves(about.get("config") or about.get("first_point") or {}))
    typed = [word.partition("=") for word in about["overrides"]]
    axes = {key if key in flat else f"{key}.name": value for key, _, value in typed if "," in value}
    return flat | {key: value for key, value in axes.items() if key in flat}


def _leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _differences(studies: Sequence[Study], configs: Mapping[str, list[str]]) -> tuple[Table | str, ...]:
    shown = {name: values for name, values in configs.items() if name.rsplit(".", 1)[-1] not in ("source", "based_on")}
    if not shown:
        return ("The configs are the same.",)
    more = f" {len(shown) - MOST_KEYS:,} more differ." if len(shown) > MOST_KEYS else ""
    return (
        Table(
            title="Config keys that differ",
            columns=(Column(title="key"), *(Column(title=each.name) for each in studies)),
            rows=tuple((name, *values) for name, values in list(shown.items())[:MOST_KEYS]),
            note=f"Of a sweep: the values of its axes, and else those of its first point.{more}",
        ),
    )


def _cautions(studies: Sequence[Study], configs: Mapping[str, list[str]]) -> Iterator[str]:
    """What makes numbers of these studies unlike, beyond the layouts."""
    versions = [str(each.about["versions"]["pipesim"]) for each in studies]
    codes = [tuple(map(str, each.about.get("code") or ())) for each in studies]
    if len(set(versions)) > 1:
        yield f"pipesim {', '.join(dict.fromkeys(versions))} made them: costs and definitions may have changed in between."
    elif len({code for code in codes if code}) > 1:
        yield "different states of pipesim's code made them, under one version: costs may have changed in between."
    conventions = [sorted(set(each.rows["flop_convention"].dropna())) for each in studies]
    if len({tuple(each) for each in conventions if each}) > 1:
        told = "; ".join(
            f"{each.name}: {', '.join(c) or 'unknown'}" for each, c in zip(studies, conventions, strict=True)
        )
        yield f"they count FLOPs by different conventions ({told}), so MFU, HFU and TFLOP/s are not comparable; times are."
    if kinds := configs.get("costs.kind"):
        yield f"the cost models differ ({', '.join(dict.fromkeys(kinds))}): seconds of idealised costs leave much out."
    for group in ("model", "cluster", "stack", "costs"):
        keys = [key for key in configs if key.startswith(f"{group}.") and not key.endswith((".source", ".flops"))]
        if keys and f"{group}.name" not in configs and "costs.kind" not in keys:
            more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
            yield f"{group} has one name and different values: {', '.join(keys[:3])}{more}."
    batch = [key for key in ("training.global_batch", "training.seq_length") if key in configs]
    if "model.name" in configs and "," not in "".join(configs["model.name"]):
        yield "the models differ: a token of one is other work than a token of the other."
    if batch:
        yield f"{' and '.join(batch)} differ: speed-ups are of tokens/s, and seconds a step are of different work."
