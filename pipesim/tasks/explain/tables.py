"""The tables and pictures of ``explain``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pipesim.plan.asked.restage import NOTE, PARTITION
from pipesim.plan.explain import Difference, Explained
from pipesim.plan.explain.micro_batches import Enough
from pipesim.plan.explain.sensitivity import Neighbour, of_keys, pace
from pipesim.report.document import Axis, Bars, Cell, Column, Curves, Line, Table
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS, layout_name
from pipesim.results.schema import Row
from pipesim.tasks.explain.words import COST_WORDS, rest, typed

FREEDOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "order_s": ("any order of the same stages", ("schedule.name", "parallel.v")),
    "equal_s": ("stages that all take as long", ("parallel.partition",)),
    "busy_s": ("no rank ever idle", ("schedule.name", "parallel.v", "parallel.partition", "training.micro_batch")),
    "recompute_s": ("no recomputation", ("training.recompute",)),
    "overlap_s": ("communication behind computing", ("parallel.t", "parallel.sequence_parallel", "parallel.zero")),
    "host_s": ("a host that takes no time", ("training.micro_batch", "parallel.t")),
    "talk_s": ("communication for nothing", ("parallel.t", "parallel.p", "parallel.c", "parallel.e", "parallel.zero")),
}
"""Of each of ``plan.explain.Limits``: what it would be, and the keys that a user has for it."""

LAYOUT = ("p", "m", "v")

AS_IT_IS = "as it is"
MOST_SLOWER = 0.5
"""What takes more than so much longer has no bar."""


def costs(found: Explained) -> Table:
    step_s = found.row["step_time_s"]

    def saved(left_s: float | None) -> float | None:
        return None if left_s is None else 1 - left_s / step_s

    return Table(
        title="What each cost is worth: the step simulated with half of it, and without",
        columns=(
            Column(title="cost"), Column(title="now", kind="seconds"), Column(title="half saves", kind="percent"),
            Column(title="with its bubble", kind="percent"), Column(title="all saves", kind="percent"),
            Column(title="what eases it most"), Column(title="step then", kind="percent"),
        ),
        rows=tuple(
            (
                COST_WORDS[each.name], each.now_s, each.own_s / step_s, saved(each.halved_s), saved(each.gone_s),
                *_named(each.easing),
            )
            for each in found.costs
        ),
        emphasis=frozenset({0}),
        note="Half of computing: GPUs and memories twice as fast. With its bubble: and with what shorter stages save in idle "
        "time. What eases a cost most is a neighbouring layout that fits (with headroom), has much less of it and is faster; "
        "step then: all that it changes, for the same tokens, below 0 is faster.",
    )  # fmt: skip


def limits(found: Explained) -> Table:
    step_s = found.row["step_time_s"]
    lines = []
    for name, (text, keys) in FREEDOMS.items():
        left_s = getattr(found.limits, name)
        lines.append((text, 1 - left_s / step_s, left_s, *_named(of_keys(found.neighbours, keys))))
    return Table(
        title="The most that could be gained, and what of it can be had",
        columns=(
            Column(title="if there were"), Column(title="at most", kind="percent"), Column(title="step", kind="seconds"),
            Column(title="nearest to it that fits"), Column(title="step then", kind="percent"),
        ),
        rows=tuple(line for line in lines if line[1] > 0),
        note="Any order: a lower bound of the pipeline with backwards split in two, stages where they are. The last columns are "
        "the best single change of the keys that a user has for it, all that it changes counted, where that is faster.",
    )  # fmt: skip


def _named(neighbour: Neighbour | None) -> tuple[str, float | None]:
    if neighbour is None:
        return "nothing near", None
    other = " (another framework)" if neighbour.framework else ""
    return f"{neighbour.change.name}{other}", neighbour.per_token


def runs(found: Explained) -> Table:
    """What runs and fits, the fastest first, the layout itself among it if it does."""
    fits = [each for each in found.neighbours if each.runs]
    lines: list[tuple[float, tuple[Cell, ...]]] = [(pace(each), _line(each, found.row)) for each in fits]
    if found.row["fits"]:
        lines.append((0.0, (AS_IT_IS, 0.0, *_figures(found.row), "", "")))
    lines.sort(key=lambda line: (line[0], line[1][0] != AS_IT_IS))
    return Table(
        title="One thing changed: what fits",
        columns=(
            Column(title="change"), Column(title="step then", kind="percent"), Column(title="step", kind="seconds"),
            Column(title="memory", kind="bytes"), *(Column(title=name, kind="count") for name in LAYOUT),
            Column(title="bubble (idle/total)", kind="percent"), Column(title="framework has it"), Column(title="to type"),
        ),
        rows=tuple(line for _, line in lines),
        emphasis=frozenset(k for k, (_, line) in enumerate(lines) if line[0] == AS_IT_IS),
        note="Step then: for the same tokens, below 0 is faster."
        + _tight(found)
        + (f" {NOTE}" if _restaged(found) else ""),
    )  # fmt: skip


def _tight(found: Explained) -> str:
    tight = sum(each.runs and not each.roomy for each in found.neighbours)
    if not tight:
        return ""
    leave = "leaves" if tight == 1 else "leave"
    return (
        f" {tight} of them {leave} less memory free than headroom={found.room:g} asks for: nothing that is recommended."
    )


def _restaged(found: Explained) -> bool:
    return any(each.change.values.get(PARTITION) == "balanced" for each in found.neighbours)


def _figures(row: Row) -> tuple[Cell, ...]:
    return (
        row["step_time_s"], row["memory_bytes"], row["p"], row["num_microbatches"], row["v"], row["bubble_fraction"]
    )  # fmt: skip


def _line(neighbour: Neighbour, before: Row) -> tuple[Cell, ...]:
    has = "no" if neighbour.framework else "yes"
    return (neighbour.change.name, neighbour.per_token, *_figures(neighbour.row), has, typed(neighbour))


def refused(found: Explained) -> Iterator[Table]:
    """What does not fit, and what breaks a rule."""
    large = [each for each in found.neighbours if not each.runs and each.per_token is not None]
    if large:
        yield Table(
            title="What does not fit",
            columns=(
                Column(title="change"), Column(title="step then", kind="percent"), Column(title="memory", kind="bytes"),
                Column(title="too much", kind="bytes"), *(Column(title=name, kind="count") for name in LAYOUT),
                Column(title="framework has it"), Column(title="to type"),
            ),
            rows=tuple(_too_large(each) for each in large),
        )  # fmt: skip
    wrong = [each for each in found.neighbours if each.per_token is None]
    if wrong:
        columns = (Column(title="change"), Column(title="why"))
        yield Table(
            title="What breaks a rule",
            columns=columns,
            rows=tuple((each.change.name, each.row["reason"]) for each in wrong),
        )


def _too_large(neighbour: Neighbour) -> tuple[Cell, ...]:
    row = neighbour.row
    return (
        neighbour.change.name, neighbour.per_token, row["memory_bytes"], row["memory_bytes"] - row["memory_limit_bytes"],
        row["p"], row["num_microbatches"], row["v"], "no" if neighbour.framework else "yes", typed(neighbour),
    )  # fmt: skip


def bars(found: Explained) -> Iterator[Bars]:
    moved = [each for each in found.neighbours if each.runs and each.per_token and pace(each) <= MOST_SLOWER]
    if moved:
        yield Bars(
            slug="what-if",
            title="One thing changed: how much faster, how much slower",
            caption="Time of a token less or more than now, of what fits and is at most a half slower.",
            x=Axis(title="change of the time for a token", kind="percent"),
            items=("faster", "slower"),
            bars=tuple((each.change.name, _sides(pace(each))) for each in moved),
        )


def _sides(change: float) -> tuple[float, float]:
    return max(0.0, -change), max(0.0, change)


def fewest(row: Row, found: Mapping[str, Enough], share: float) -> Table:
    one = row["micro_batch"] * row["d"]

    def batch(m: int | None) -> int | None:
        return None if m is None else m * one

    return Table(
        title=f"Fewest micro-batches with a bubble below {100 * share:g} %: p={row['p']}, v={row['v']}, {row['schedule']}",
        columns=(
            Column(title="stages"), Column(title="m (idle/total)", kind="count"), Column(title="global batch", kind="count"),
            Column(title="m (idle/useful)", kind="count"), Column(title="global batch", kind="count"),
        ),
        rows=tuple(
            (name, each.fraction, batch(each.fraction), each.overhead, batch(each.overhead)) for name, each in found.items()
        ),
        note=f"Simulated. A global batch of so many times micro-batch {row['micro_batch']} and d={row['d']}.",
    )  # fmt: skip


def sizes(row: Row, found: Sequence[Row]) -> Table:
    return Table(
        title=f"The same global batch of {row['global_batch']:,} in other micro-batches",
        columns=(
            Column(title="micro-batch", kind="count"), Column(title="m", kind="count"), Column(title="step", kind="seconds"),
            Column(title="bubble", kind="seconds"), Column(title="all else", kind="seconds"),
            Column(title="idle/total", kind="percent"), Column(title="memory", kind="bytes"), Column(title="fits", kind="flag"),
            Column(title="p", kind="count"), Column(title="v", kind="count"),
        ),
        rows=tuple(
            (
                each["micro_batch"], each["num_microbatches"], each["step_time_s"], each["bubble_s"], rest(each),
                each["bubble_fraction"], each["memory_bytes"], each["fits"], each["p"], each["v"],
            )
            for each in found
        ),
        emphasis=frozenset(k for k, each in enumerate(found) if each["micro_batch"] == row["micro_batch"]),
    )  # fmt: skip


def curves(found: Sequence[Row]) -> Curves:
    """The two opposed terms, and their sum, of what takes at most twice as long as the best."""
    least = min(each["step_time_s"] for each in found)
    shown = [each for each in found if each["step_time_s"] <= 2 * least]
    x = [each["micro_batch"] for each in shown]
    labels = tuple(layout_name(each, ("micro_batch",)) for each in shown)
    terms = {
        "step": [each["step_time_s"] for each in shown],
        "bubble": [each["bubble_s"] for each in shown],
        "everything else": [rest(each) for each in shown],
    }
    hollow = frozenset(k for k, each in enumerate(shown) if not each["fits"])
    return Curves(
        slug="micro-batch",
        title="Micro-batch: larger ones compute faster and idle longer",
        caption="Two opposed terms and their sum, the step. Hollow marks do not fit.",
        x=Axis(title="micro-batch", kind="count", log=True),
        y=Axis(title="seconds of a step", kind="seconds"),
        lines=tuple(
            Line(name=name, points=tuple(zip(x, terms[name], strict=True)), labels=labels, hollow=hollow)
            for name in terms
        ),
    )


def compared(row: Row, other: Row) -> Table:
    return Table(
        title="The two layouts",
        columns=(
            Column(title="layout"), Column(title="step", kind="seconds"), Column(title="memory", kind="bytes"),
            *(Column(title=name, kind="count") for name in LAYOUT), Column(title="idle/total", kind="percent"),
            Column(title="MFU", kind="percent"), Column(title="recompute"),
        ),
        rows=tuple((layout_name(each), *_figures(each), each["mfu"], each["recompute"]) for each in (row, other)),
    )  # fmt: skip


def apart(of: Literal["seconds", "bytes"], difference: Difference, names: tuple[str, str]) -> Table:
    """Item by item; the differences sum to that of the totals."""
    lines, words = (difference.seconds, TIME_WORDS) if of == "seconds" else (difference.bytes, MEMORY_WORDS)
    totals = math.fsum(line[1] for line in lines), math.fsum(line[2] for line in lines)
    rows = [(words[item][0], one, other, _change(one, other, totals[0])) for item, one, other in lines]
    scaled = of == "seconds" and difference.tokens != 1
    return Table(
        title="Where the seconds differ" if of == "seconds" else "Where the bytes of the heaviest rank differ",
        columns=(Column(title="item"), *(Column(title=name, kind=of) for name in (*names, "difference"))),
        rows=(*rows, ("step" if of == "seconds" else "total", *totals, totals[1] - totals[0])),
        emphasis=frozenset({len(rows)}),
        note=f"Seconds of {names[1]} are for the tokens of one step of {names[0]}." if scaled else "",
    )


def _change(one: float, other: float, total: float) -> float:
    """Without what rounding leaves of equal items."""
    return 0.0 if abs(other - one) < 1e-12 * total else other - one
