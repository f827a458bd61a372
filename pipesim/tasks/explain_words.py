"""The sentences of ``explain``: what bounds the step and what shows it, what helps, and why another layout differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipesim.plan.counterfactual import COSTS
from pipesim.plan.explain import Cost, Difference, Explained
from pipesim.plan.micro_batches import Enough
from pipesim.plan.sensitivity import Neighbour
from pipesim.report.formats import show
from pipesim.report.layout_page import answer
from pipesim.report.say import english
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS, layout_name
from pipesim.results.schema import Row

COST_WORDS = {
    "compute": "computing", "recompute": "recomputation", "host": "waiting for the host", "tp": "tensor-parallel communication",
    "cp": "context-parallel communication", "ep": "expert-parallel communication", "pp": "pipeline sends",
    "dp": "gradient exchange", "imbalance": "imbalance of stages", "bubble": "bubble", "fixed": "the fixed cost of a step",
}  # fmt: skip

LEAST = 0.01
"""Share of a step below which nothing is said of a cost in the answer."""
TOLD = 3
"""Items of a difference that its sentence names in each direction."""


def percent(value: float) -> str:
    return show(value, "percent")


def typed(neighbour: Neighbour) -> str:
    """What to add to the command line."""
    return " ".join(f"{key}={_typed(value)}" for key, value in neighbour.change.values.items())


def _typed(value: object) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}: {_typed(each)}' for key, each in value.items())}}}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def verdict(found: Explained) -> Iterator[str]:
    row, first = found.row, found.costs[0]
    yield answer(row, english).split(" What bounds it")[0]
    if found.bound == "memory":
        yield f"What bounds it: memory. {row['reason'].capitalize()} Below is what bounds its step if it did fit."
    others = [cost for cost in found.costs[1:] if _saves(row, cost) >= LEAST][:3]
    more = "; ".join(f"{COST_WORDS[cost.name]} {percent(_saves(row, cost))}" for cost in others)
    yield (
        f"What bounds {'the step' if found.bound == 'memory' else 'it'}: {COST_WORDS[first.name]}. {_halved(first.name)}, the step of "
        f"{show(row['step_time_s'], 'seconds')} takes {show(first.halved_s, 'seconds')}, {percent(_saves(row, first))} less. "
        + (f"Half of the other costs saves less: {more}." if more else "No other cost is worth 1 % of a step.")
    )
    bubble = found.cost("bubble")
    if bubble is not None:
        yield _bubble(found, bubble)


def _halved(cost: str) -> str:
    return {"compute": "With GPUs and memories twice as fast"}.get(cost, "With half of it")


def _saves(row: Row, cost: Cost) -> float:
    return float(1 - cost.halved_s / row["step_time_s"])


def _bubble(found: Explained, bubble: Cost) -> str:
    row = found.row
    half = f"{show(row['step_time_s'], 'seconds')} would be {show(bubble.halved_s, 'seconds')}, {percent(_saves(row, bubble))} less"
    name = "It is bubble-bound" if found.bound == "bubble" else "It is not bubble-bound"
    said = f"{name}: with half the bubble, {half}."
    if bubble.easing is None:
        return f"{said} No neighbouring layout that fits has a bubble a tenth smaller."
    other = bubble.easing.row
    promised = (1 - other["bubble_fraction"]) / (1 - row["bubble_fraction"])
    gained = other["tokens_per_s"] / row["tokens_per_s"]
    return (
        f"{said} {bubble.easing.change.name.capitalize()} brings the bubble fraction (idle/total) from {show(row['bubble_fraction'], 'percent')} to "
        f"{show(other['bubble_fraction'], 'percent')}: by the bubble alone {promised:.2f}x the tokens/s, with all that it "
        f"changes {gained:.2f}x{_instead(row, other)}."
    )


def _instead(row: Row, other: Row) -> str:
    """The cost that grew most on the way, if any ate a tenth of what the bubble gave."""
    saved = _per_token(row, "bubble") - _per_token(other, "bubble")
    grown = {name: _cost_per_token(other, name) - _cost_per_token(row, name) for name in COST_WORDS if name != "bubble"}
    most = max(grown, key=lambda name: grown[name])
    return f", because {COST_WORDS[most]} grows" if grown[most] > 0.1 * saved > 0 else ""


def _cost_per_token(row: Row, name: str) -> float:
    return sum(_per_token(row, item) for item in COSTS[name])


def _per_token(row: Row, item: str) -> float:
    return float(row[f"{item}_s"] / (row["step_time_s"] * row["tokens_per_s"]))


def advice(found: Explained) -> Iterator[str]:
    able = [each for each in found.neighbours if each.change.real and each.runs]
    here, anywhere = [each for each in able if not each.framework], able
    if here and (here[0].per_token or 0.0) < 0:
        yield f"What helps most of what can be chosen: {_told(here[0])}."
    else:
        yield "No single change that fits, and that the framework can run, makes it faster on these GPUs with this batch."
    if anywhere and anywhere[0].framework and anywhere[0] not in here[:1]:
        yield f"In a framework that can: {_told(anywhere[0])}. {anywhere[0].framework}"


def _told(neighbour: Neighbour) -> str:
    row = neighbour.row
    return (
        f"{neighbour.change.name} ({typed(neighbour)}), {show(row['step_time_s'], 'seconds')} a step, {percent(neighbour.per_token or 0.0)} for a "
        f"token, {show(row['memory_bytes'], 'bytes')} of {show(row['memory_limit_bytes'], 'bytes')}"
    )


def enough(row: Row, fewest: Mapping[str, Enough], share: float) -> Iterator[str]:
    own, one = fewest["this layout"], row["micro_batch"] * row["d"]
    shape = f"p={row['p']}, v={row['v']}, {row['schedule']}"
    now = f"Now m={row['num_microbatches']} leaves {show(row['bubble_fraction'], 'percent')} (idle/total), {show(row['bubble_overhead'], 'percent')} (idle/useful)."
    if own.fraction is None:
        least = "" if own.least is None else f": {show(own.least, 'percent')} is left, for its stages are not alike or wait for results"
        yield f"No number of micro-batches up to {own.most:,} brings the bubble below {percent(share)} of the step ({shape}){least}. {now}"
    else:
        yield (
            f"The bubble is below {percent(share)} of the pipeline's time (idle/total) from m={own.fraction:,} on ({shape}), a global batch of "
            f"{own.fraction * one:,}. {now}"
        )


def best_size(row: Row, sizes: tuple[Row, ...]) -> str:
    fits = [each for each in sizes if each["fits"]]
    if not fits:
        return "No micro-batch fits."
    best = min(fits, key=lambda each: each["step_time_s"])
    at = sizes.index(best)
    said = f"Of these micro-batches {best['micro_batch']} is the fastest that fits: {show(best['step_time_s'], 'seconds')} a step."
    if at:
        less = sizes[at - 1]
        said += f" {_opposed(less, best, 'smaller')}"
    if at + 1 < len(sizes):
        said += f" {_opposed(sizes[at + 1], best, 'larger')}"
    return said


def _opposed(other: Row, best: Row, word: str) -> str:
    """What another size gives and takes."""
    bubble, others = other["bubble_s"] - best["bubble_s"], rest(other) - rest(best)
    fit = "" if other["fits"] else ", and does not fit"
    return (
        f"{other['micro_batch']}, {word}, has {_more(bubble)} bubble and takes {_more(others)} for everything else{fit}."
    )


def rest(row: Row) -> float:
    return float(row["step_time_s"] - row["bubble_s"])


def _more(seconds: float) -> str:
    return f"{show(abs(seconds), 'seconds')} {'more' if seconds > 0 else 'less'}"


def against(row: Row, other: Row, difference: Difference) -> str:
    change = other["step_time_s"] / difference.tokens / row["step_time_s"] - 1
    held = [show(each["memory_bytes"], "bytes") for each in (row, other)]
    fits = "fits" if other["fits"] else "does not fit"
    alike = "" if difference.tokens == 1 else " for the same tokens"
    return (
        f"{layout_name(other)} takes {show(other['step_time_s'], 'seconds')} a step, {_slower(change)}{alike}: "
        f"{_moved(difference.seconds, TIME_WORDS, 'seconds')}. It {fits}; its heaviest rank holds {held[1]} instead of {held[0]}: "
        f"{_moved(difference.bytes, MEMORY_WORDS, 'bytes')}."
    )


def _slower(change: float) -> str:
    return "as long" if change == 0 else f"{percent(abs(change))} {'longer' if change > 0 else 'less'}"


def _moved(lines: Sequence[tuple[str, float, float]], words: Mapping[str, tuple[str, str]], kind: str) -> str:
    """What grew and what shrank, the most of each first."""
    changes = sorted(((other - one, item) for item, one, other in lines), key=lambda each: -abs(each[0]))
    total = sum(change for change, _ in changes)
    parts = []
    for sign, word in ((1, "more"), (-1, "less")) if total > 0 else ((-1, "less"), (1, "more")):
        told = [f"{show(abs(change), kind)} {word} {words[item][0]}" for change, item in changes if sign * change > 0]  # type: ignore[arg-type]
        parts += [", ".join(told[:TOLD])] if told else []
    return " against ".join(parts) or "nothing changes"
