"""The sentences of ``explain``: what bounds the step and what shows it, what helps, and why another layout differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipesim import headroom
from pipesim.legality.megatron_layout import written
from pipesim.plan.explain import Cost, Difference, Explained, seconds_of
from pipesim.plan.explain.counterfactual import COSTS
from pipesim.plan.explain.micro_batches import Enough
from pipesim.plan.explain.sensitivity import Neighbour, pace
from pipesim.report.document import Kind
from pipesim.report.formats import show
from pipesim.report.layout.page import answer
from pipesim.report.memory_words import memory_sure, with_room
from pipesim.report.say import english
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS, layout_name, trust
from pipesim.results.schema import Row

COST_WORDS = {
    "compute": "computing", "recompute": "recomputation", "host": "waiting for the host", "tp": "tensor-parallel communication",
    "cp": "context-parallel communication", "ep": "expert-parallel communication",
    "vocab": "communication of a spread vocabulary", "pp": "pipeline sends",
    "dp": "gradient exchange", "imbalance": "imbalance of stages", "bubble": "bubble", "fixed": "the fixed cost of a step",
}  # fmt: skip

LEAST = 0.01
"""Share of a step below which nothing is said of a cost in the answer."""
FAINT = 0.05
"""Share of the largest change of an item below which a sentence leaves others out."""
TOLD = 3
"""Costs, or items of a difference in each direction, that a sentence names."""


LONGEST_LIST = 16
"""Of a partition; one of more stages is typed as a layout string, which is shorter."""


def percent(value: float) -> str:
    return show(value, "percent")


def seconds(value: float) -> str:
    return show(value, "seconds")


def of_memory(row: Row) -> str:
    return f"{show(row['memory_bytes'], 'bytes')} of {show(row['memory_limit_bytes'], 'bytes')}"


def typed(neighbour: Neighbour) -> str:
    """What to add to the command line."""
    values = neighbour.change.values.items()
    return " ".join(f"{'schedule' if key == 'schedule.name' else key}={_typed(value)}" for key, value in values)


def _typed(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]" if len(value) <= LONGEST_LIST else f"'\"{written(value)}\"'"
    if isinstance(value, Mapping):
        return f"'{{{','.join(f'{key}: {_typed(each)}' for key, each in value.items())}}}'"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def verdict(found: Explained) -> Iterator[str]:
    row, first = found.row, found.costs[0]
    told = answer(row, english, found.room).split(" What bounds it")[0]
    yield f"{told} {trust(row)}{memory_sure(row, found.room, english)}"
    if found.framework:
        yield (
            f"As asked, its framework does not run it: {' '.join(found.framework)} Changes below are judged by what they break "
            "beyond that."
        )
    if found.bound == "memory":
        yield "What bounds it: memory. What follows is of the step that it would make if it fitted."
    others = [cost for cost in found.costs[1:] if cost.own_s >= LEAST * row["step_time_s"]][:TOLD]
    more = "; ".join(f"{COST_WORDS[cost.name]} {_of_step(row, cost.own_s)}" for cost in others)
    yield (
        f"What bounds {'the step' if found.bound == 'memory' else 'it'}: {COST_WORDS[first.name]}. {_halved(row, first)} "
        + (f"Half of another cost saves less by itself: {more}." if more else "Half of any other saves less than 1 %.")
    )
    if (bubble := found.cost("bubble")) is not None:
        yield _bubble(found, bubble)


def _halved(row: Row, cost: Cost) -> str:
    less = "GPUs and memories twice as fast" if cost.name == "compute" else "half of it"
    saved_s = row["step_time_s"] - cost.halved_s
    alone = (
        f", {_of_step(row, cost.own_s)} by itself and the rest in bubble"
        if saved_s - cost.own_s > 1e-3 * saved_s
        else ""
    )
    return (
        f"With {less} the step of {seconds(row['step_time_s'])} takes {seconds(cost.halved_s)}, {_of_step(row, saved_s)} less"
        f"{alone}."
    )


def _of_step(row: Row, value_s: float) -> str:
    return percent(value_s / row["step_time_s"])


def _bubble(found: Explained, bubble: Cost) -> str:
    """Whether the bubble bounds it, with what a really shorter bubble promises and gives."""
    row = found.row
    bound = "It is bubble-bound" if found.costs[0] == bubble else "It is not bubble-bound"
    said = f"{bound}: half the bubble saves {_of_step(row, bubble.own_s)}, {seconds(bubble.halved_s)} a step."
    shorter = _more_micro_batches(found) or bubble.easing
    if shorter is None:
        return f"{said} No neighbouring layout that fits has a bubble a tenth smaller and a shorter step."
    other, name = shorter.row, shorter.change.name
    before, after = row["bubble_fraction"], other["bubble_fraction"]
    alone, gained = (1 - after) / (1 - before), other["tokens_per_s"] / row["tokens_per_s"]
    way = f"{percent(before)} to {percent(after)} (idle/total), by {name}, m={other['num_microbatches']}"
    return (
        f"{said} Really shortened from {way}: {alone:.2f}x the tokens/s by the bubble alone, {gained:.2f}x with all that comes "
        f"with it{_because(row, other)}."
    )


def _more_micro_batches(found: Explained) -> Neighbour | None:
    """The same batch in smaller ones, which is the first thing that people try."""
    sizes = [
        each for each in found.neighbours if each.change.values.keys() == {"training.micro_batch"} and each.per_token
    ]
    return next((each for each in sizes if each.row["num_microbatches"] > found.row["num_microbatches"]), None)


def _because(row: Row, other: Row) -> str:
    """Which cost grew most, if it ate a tenth or more of what the bubble saved."""
    changes = {name: _of_token(other, name) - _of_token(row, name) for name in COSTS}
    most = max(changes, key=lambda name: changes[name])
    return f", for {COST_WORDS[most]} grows" if changes[most] > 0.1 * abs(changes["bubble"]) else ""


def _of_token(row: Row, name: str) -> float:
    return seconds_of(row, name) / float(row["step_time_s"] * row["tokens_per_s"])


def advice(found: Explained) -> Iterator[str]:
    able = [each for each in found.neighbours if each.change.real and each.roomy]
    here = [each for each in able if not each.framework]
    if not found.row["fits"]:
        yield (
            f"What fits{with_room(found.room)} and costs least: {_told(here[0])}."
            if here
            else f"No single change of what can be chosen makes it fit{with_room(found.room)}."
        )
    elif here and pace(here[0]) < 0:
        yield f"What helps most of what can be chosen: {_told(here[0])}."
    else:
        yield (
            f"No single change that fits{with_room(found.room)} and that the framework can run makes it faster on these GPUs "
            "with this batch."
        )
    if able and able[0].framework and pace(able[0]) < 0:
        yield f"Faster still, in another framework: {_told(able[0])}. {able[0].framework}"


def _told(neighbour: Neighbour) -> str:
    row = neighbour.row
    return (
        f"{neighbour.change.name} ({typed(neighbour)}), {seconds(row['step_time_s'])} a step, {percent(pace(neighbour))} for a "
        f"token, {of_memory(row)}"
    )


def enough(row: Row, fewest: Mapping[str, Enough], share: float) -> Iterator[str]:
    if row["p"] == 1:
        yield "One rank is no pipeline: there is no bubble with any number of micro-batches."
        return
    own, asked = fewest["this layout"], f"{percent(share)} of the pipeline's time (idle/total)"
    shape = f"p={row['p']}, v={row['v']}, {row['schedule']}"
    if own.fraction is not None:
        batch = own.fraction * row["micro_batch"] * row["d"]
        said = f"The bubble is below {asked} from m={own.fraction:,} on ({shape}), a global batch of {batch:,}."
    elif own.least is not None:
        left = f"{percent(own.least)} are left, for its stages are not alike or wait for results"
        said = f"No number of micro-batches up to {own.most:,} brings the bubble below {asked}: {left} ({shape})."
    else:
        said = f"{row['schedule']} cannot run other numbers of micro-batches that were tried, up to {own.most:,}."
    if own.unruled != own.fraction:
        said += f" Of the schedule alone m={own.unruled:,} would do, which the stack's framework does not run."
    idle, useful = percent(row["bubble_fraction"]), percent(row["bubble_overhead"])
    yield f"{said} Now m={row['num_microbatches']} leaves {idle} (idle/total), {useful} (idle/useful)."


def best_size(sizes: Sequence[Row], room: float) -> str:
    fits = [each for each in sizes if headroom.left(each, room)]
    if not fits:
        return f"No size of a micro-batch fits{with_room(room)}."
    best = min(fits, key=lambda each: each["step_time_s"])
    at = sizes.index(best)
    beside = [(sizes[at - 1], "smaller")] * (at > 0) + [(each, "larger") for each in sizes[at + 1 : at + 2]]
    return " ".join(
        (
            f"The fastest micro-batch that fits{with_room(room)} is {best['micro_batch']}: {seconds(best['step_time_s'])} a step.",
            *(_opposed(other, best, word) for other, word in beside),
        )
    )


def _opposed(other: Row, best: Row, word: str) -> str:
    """What another size gives and takes."""
    bubble, others = other["bubble_s"] - best["bubble_s"], rest(other) - rest(best)
    fit = "" if other["fits"] else ", and does not fit"
    return f"{other['micro_batch']}, {word}, has {_more(bubble)} bubble and takes {_more(others)} for all else{fit}."


def rest(row: Row) -> float:
    """Seconds of a step that are not bubble."""
    return float(row["step_time_s"] - row["bubble_s"])


def _more(change_s: float) -> str:
    return f"{seconds(abs(change_s))} {'more' if change_s > 0 else 'less'}"


def against(row: Row, other: Row, difference: Difference) -> str:
    change = other["step_time_s"] / difference.tokens / row["step_time_s"] - 1
    alike = "" if difference.tokens == 1 else " for the same tokens"
    slower = "as long" if change == 0 else f"{percent(abs(change))} {'longer' if change > 0 else 'less'}"
    return (
        f"{layout_name(other)} takes {seconds(other['step_time_s'])} a step, {slower}{alike}: "
        f"{_moved(difference.seconds, TIME_WORDS, 'seconds')}. It {'fits' if other['fits'] else 'does not fit'} with "
        f"{of_memory(other)} instead of {show(row['memory_bytes'], 'bytes')}: {_moved(difference.bytes, MEMORY_WORDS, 'bytes')}."
    )


def _moved(lines: Sequence[tuple[str, float, float]], words: Mapping[str, tuple[str, str]], kind: Kind) -> str:
    """What grew and what shrank, first the way in which the total went, the most of each first."""
    changes = sorted(((other - one, item) for item, one, other in lines), key=lambda each: -abs(each[0]))
    grows = sum(change for change, _ in changes) > 0
    parts = []
    for sign in (1, -1) if grows else (-1, 1):
        told = [
            f"{show(abs(change), kind)} {'more' if sign > 0 else 'less'} {words[item][0]}"
            for change, item in changes
            if sign * change > FAINT * abs(changes[0][0])
        ]
        parts += [", ".join(told[:TOLD])] if told else []
    return " against ".join(parts) or "nothing changes"
