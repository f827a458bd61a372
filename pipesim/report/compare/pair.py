"""One study against another: how many layouts changed, which, by how much and why; ranks; what is new and gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pipesim.report.compare.joined import Joined, Study, changes, records
from pipesim.report.compare.words import counted, used
from pipesim.report.document import Axis, Block, Cell, Chart, Column, Mark, Section, Table
from pipesim.report.formats import show
from pipesim.report.say import english
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS, layout_name

MOST_ROWS = 1_000
"""Changes that a report lists, and marks of its chart."""
MOST_APART = 50
"""New and gone layouts that it lists."""
TOP = 10


class Pair(NamedTuple):
    """``number`` tells the pairs of one report apart."""

    number: int
    before: Study
    after: Study
    joined: Joined

    def varied(self) -> list[str]:
        """Keys by which the rows of the two studies differ."""
        both = pd.concat([self.before.rows[list(self.joined.keys)], self.after.rows[list(self.joined.keys)]])
        return [name for name in self.joined.keys if len(both[name].unique()) > 1]


def verdicts(pair: Pair) -> Iterator[str]:
    """The answer in sentences."""
    joined, moved = pair.joined, changes(pair.joined)
    same = int((~moved["changed"]).sum())
    text = f"{pair.after.name} against {pair.before.name}: {counted(len(moved), 'layout is', 'layouts are')} in both"
    if len(moved):
        text += f", {same:,} the same and {len(moved) - same:,} changed"
    text += f"; {len(joined.new):,} new, {len(joined.gone):,} gone."
    if joined.apart:
        told = "; ".join(f"{name} {_told(one)} → {_told(other)}" for name, (one, other) in joined.apart.items())
        text += f" They differ in {told}."
    yield text
    timed = moved[moved["changed"] & moved["speed_up"].notna()]
    if len(timed):
        reads = timed["reads"].value_counts()
        told = ", ".join(f"{reads[word]:,} {word}" for word in _READS if word in reads)
        cause = timed["time_item"][timed["time_item"] != ""].value_counts(sort=False)
        text = f"Of the changed: {told}. Median speed-up {show(float(timed['speed_up'].median()), 'number')}"
        text += f", from {show(float(timed['speed_up'].min()), 'number')} to {show(float(timed['speed_up'].max()), 'number')}."
        if len(cause):
            most = max(sorted(cause.index), key=lambda item: int(cause[item]))
            text += f" What moved most: {english(*TIME_WORDS[most])}, in {cause[most]:,} of {len(timed):,}."
        yield text
    fits = [(joined.before["status"] == "ok").to_numpy(bool), (joined.after["status"] == "ok").to_numpy(bool)]
    gained, lost = int((~fits[0] & fits[1]).sum()), int((fits[0] & ~fits[1]).sum())
    if gained or lost:
        yield f"Memory and rules: {gained:,} that could not run can now; {lost:,} that could no longer can."


_READS = ("faster", "slower", "not distinguishable", "no interval", "same")


def pair_sections(pair: Pair) -> Iterator[Section]:
    joined, moved = pair.joined, changes(pair.joined)
    blocks: list[Block] = []
    if moved["changed"].any():
        blocks += [used(_changes(pair, moved)), *_items(joined), *_chart(pair, moved)]
    elif len(moved):
        blocks.append("Every layout that is in both is the same in both.")
    else:
        blocks.append("No layout is in both.")
    yield Section(title=f"{pair.after.name} against {pair.before.name}", blocks=tuple(blocks))
    if len(ranking := _ranking(pair)):
        yield Section(title=f"Ranks: {pair.after.name} against {pair.before.name}", blocks=tuple(ranking))
    apart = [
        used(_apart(pair, rows, title))
        for rows, title in (
            (joined.new, f"Only in {pair.after.name}"), (joined.gone, f"Only in {pair.before.name}"),
        )
        if len(rows)
    ]  # fmt: skip
    if apart:
        yield Section(title=f"New and gone: {pair.after.name} against {pair.before.name}", blocks=tuple(apart))


def _changes(pair: Pair, moved: pd.DataFrame) -> Table:
    at = _largest(moved)
    before, after = records(pair.joined.before.iloc[at]), records(pair.joined.after.iloc[at])
    varied = pair.varied()
    rows: list[tuple[Cell, ...]] = []
    for one, other, change in zip(before, after, records(moved.iloc[at]), strict=True):
        status = (
            "" if one["status"] == other["status"] else f"{_OUTCOMES[one['status']]} → {_OUTCOMES[other['status']]}"
        )
        rows.append(
            (
                layout_name(other, varied), one["step_s"], other["step_s"], change["speed_up"], change["reads"],
                change["lo"], change["hi"], _item(TIME_WORDS, change["time_item"]), change["time_item_s"], one["memory_bytes"],
                other["memory_bytes"], _item(MEMORY_WORDS, change["memory_item"]), change["memory_item_bytes"], status,
            )
        )  # fmt: skip
    left_out = int(moved["changed"].sum()) - len(at)
    return Table(
        title=f"Changes from {pair.before.name} to {pair.after.name}, the largest first",
        columns=(
            Column(title="layout"), Column(title="before", kind="seconds"), Column(title="after", kind="seconds"),
            Column(title="speed-up", kind="number"), Column(title="reads"), Column(title="from", kind="number"),
            Column(title="to", kind="number"), Column(title="moved most"), Column(title="by", kind="seconds"),
            Column(title="memory before", kind="bytes"), Column(title="memory after", kind="bytes"),
            Column(title="of it moved most"), Column(title="by", kind="bytes"), Column(title="outcome"),
        ),
        rows=tuple(rows),
        note=f"{left_out:,} smaller changes are not listed." if left_out else "",
    )  # fmt: skip


def _item(words: Mapping[str, tuple[str, str]], item: str) -> str:
    return english(*words[item]) if item else ""


_OUTCOMES = {"ok": "fits", "infeasible": "does not fit", "invalid": "breaks rules", "failed": "failed"}


def _largest(moved: pd.DataFrame) -> Any:
    """Places of what changed, by how much its time did, then in the table's order; without a time last."""
    size = np.abs(np.log(moved["speed_up"].to_numpy(float)))
    order = np.lexsort((np.arange(len(moved)), -np.nan_to_num(size, nan=-1.0)))
    return order[moved["changed"].to_numpy()[order]][:MOST_ROWS]


def _items(joined: Joined) -> Iterator[Table]:
    """Every item's mean over the layouts that have times in both."""
    timed = (joined.before["matmul_s"].notna() & joined.after["matmul_s"].notna()).to_numpy(bool)
    if not timed.any():
        return
    before, after = joined.before[timed], joined.after[timed]
    for title, words, unit, kind in (
        ("seconds", TIME_WORDS, "s", "seconds"), ("bytes of the heaviest rank", MEMORY_WORDS, "bytes", "bytes"),
    ):  # fmt: skip
        means = [
            (
                english(*word),
                float(before[f"{item}_{unit}"].fillna(0.0).mean()),
                float(after[f"{item}_{unit}"].fillna(0.0).mean()),
            )
            for item, word in words.items()
        ]
        total = ("all", sum(row[1] for row in means), sum(row[2] for row in means))
        used = [row for row in (*means, total) if row[1] or row[2]]
        yield Table(
            title=f"Where the {title} went, mean over {counted(int(timed.sum()), 'layout')} in both",
            columns=(
                Column(title="item"), Column(title="before", kind=kind), Column(title="after", kind=kind),  # type: ignore[arg-type]
                Column(title="change", kind=kind), Column(title="of before's whole", kind="percent"),  # type: ignore[arg-type]
            ),
            rows=tuple((name, one, two, two - one, (two - one) / total[1] if total[1] else None) for name, one, two in used),
            emphasis=frozenset({len(used) - 1}),
        )  # fmt: skip


def _chart(pair: Pair, moved: pd.DataFrame) -> Iterator[Chart]:
    """Step times before and after; of many the largest changes."""
    timed = moved["speed_up"].notna().to_numpy()
    at = np.array([place for place in _largest(moved) if timed[place]], int)
    if not len(at):
        return
    varied = pair.varied()
    before, after = records(pair.joined.before.iloc[at]), records(pair.joined.after.iloc[at])
    some = "" if len(at) == timed.sum() else f" The {len(at):,} largest changes of {int(timed.sum()):,} layouts."
    yield Chart(
        slug=f"before-and-after-{pair.number}",
        title=f"Step time in {pair.before.name} and {pair.after.name}",
        caption=f"Each layout in both studies: on the diagonal nothing changed, below it {pair.after.name} is faster.{some}",
        x=Axis(title=f"step time in {pair.before.name}", kind="seconds", log=True),
        y=Axis(title=f"step time in {pair.after.name}", kind="seconds", log=True),
        marks=tuple(
            Mark(x=one["step_s"], y=other["step_s"], label=layout_name(other, varied), group=str(read))
            for one, other, read in zip(before, after, moved["reads"].iloc[at], strict=True)
        ),
    )


def _ranking(pair: Pair) -> list[Block]:
    """Ranks within each model, cluster and cost model; those of the first ``TOP`` of either study."""
    ranks = [side["rank"].to_numpy(int) for side in (pair.joined.before, pair.joined.after)]
    both = (ranks[0] > 0) & (ranks[1] > 0)
    if both.sum() < 2:
        return []
    shown = np.flatnonzero(both & ((ranks[0] <= TOP) | (ranks[1] <= TOP)))[:MOST_ROWS]
    shown = shown[np.lexsort((shown, ranks[0][shown], ranks[1][shown]))]
    kept = int((both & (ranks[0] <= TOP) & (ranks[1] <= TOP)).sum())
    first = int((both & (ranks[0] <= TOP)).sum())
    text = (
        f"Of the {counted(first, 'layout')} of {pair.before.name}'s first {TOP} that run in both, {kept:,} stay there."
    )
    if np.ptp(ranks[0][both]) and np.ptp(ranks[1][both]):
        order = _correlation(ranks[0][both], ranks[1][both])
        text += f" Rank correlation of all {int(both.sum()):,}: {order:.2f} (1 is the same order)."
    varied = pair.varied()
    rows = [
        (
            layout_name(row, varied),
            int(ranks[0][at]),
            int(ranks[1][at]),
            int(ranks[0][at] - ranks[1][at]),
            row["step_s"],
        )
        for at, row in zip(shown, records(pair.joined.after.iloc[shown]), strict=True)
    ]
    return [
        text,
        Table(
            title=f"Ranks of what runs in both and is among the first {TOP} in either",
            columns=(
                Column(title="layout"), Column(title=f"rank in {pair.before.name}", kind="count"),
                Column(title=f"rank in {pair.after.name}", kind="count"), Column(title="places gained", kind="count"),
                Column(title="step after", kind="seconds"),
            ),
            rows=tuple(rows),
        ),
    ]  # fmt: skip


def _correlation(one: Any, other: Any) -> float:
    """Spearman's: of the ranks' own ranks, since each counts others between."""
    places = [np.argsort(np.argsort(each, kind="stable"), kind="stable").astype(float) for each in (one, other)]
    return float(np.corrcoef(places)[0, 1])


def _apart(pair: Pair, rows: pd.DataFrame, title: str) -> Table:
    """The best of them, then what does not run."""
    order = np.lexsort((np.arange(len(rows)), np.where(rows["rank"] > 0, rows["rank"], len(rows) + 1)))
    shown = records(rows.iloc[order[:MOST_APART]])
    varied = pair.varied()
    return Table(
        title=f"{title}: {counted(len(rows), 'layout')}",
        columns=(
            Column(title="layout"), Column(title="outcome"), Column(title="rank", kind="count"),
            Column(title="step", kind="seconds"), Column(title="memory", kind="bytes"), Column(title="MFU", kind="percent"),
        ),
        rows=tuple(
            (layout_name(row, varied), _OUTCOMES.get(row["status"], row["status"]), row["rank"] or None, row["step_s"],
             row["memory_bytes"], row["mfu"])
            for row in shown
        ),
        note=f"{len(rows) - len(shown):,} more are not listed." if len(rows) > len(shown) else "",
    )  # fmt: skip


def _told(value: Any) -> str:
    return "–" if value is None else str(value)
