"""Which of Megatron-LM's flags say where layers lie: none for even stages, flags for the ends, a layout string for others.

Source: Megatron-LM core_v0.14, megatron/training/arguments.py (validate_args).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipesim.checks import Invalid, nearest_divisors
from pipesim.legality import megatron_layout, megatron_split
from pipesim.legality.megatron_split import EMBEDDING, FIRST, LAST, LAYOUT, LOSS, PER_STAGE, P, V

FLAGS = (LAYOUT, V, PER_STAGE, EMBEDDING, LOSS, FIRST, LAST)


def flags(partition: Sequence[int], p: int, v: int) -> dict[str, str]:
    """The shortest flags that place units (embedding, layers, head) on p * v stages so. Raises ``Invalid`` if none do."""
    layers = sum(partition) - 2
    problems = []
    for candidate in _candidates(partition, p, v):
        try:
            if units(candidate, layers, p) == (tuple(partition), v):
                return candidate
        except Invalid as error:
            problems += error.problems
    raise Invalid(problems or [f"parallel.partition={list(partition)} has no words in Megatron-LM."])


def _candidates(partition: Sequence[int], p: int, v: int) -> Iterator[dict[str, str]]:
    virtual = {V: str(v)} if v > 1 else {}
    for chosen in ((), (EMBEDDING, LOSS), (EMBEDDING,), (LOSS,)):
        yield virtual | dict.fromkeys(chosen, "")
    ranks = [sum(partition[rank::p]) - (rank == 0) - (rank == p - 1) for rank in range(p)]
    for ends in ({FIRST: ranks[0]}, {LAST: ranks[-1]}, {FIRST: ranks[0], LAST: ranks[-1]}):
        yield virtual | {name: str(count) for name, count in ends.items()}
    yield {LAYOUT: megatron_layout.written(partition)}


def units(given: Mapping[str, str], layers: int, p: int) -> tuple[tuple[int, ...], int]:
    """Units on each stage and v, as Megatron-LM would place them. Raises ``Invalid`` where it refuses or loses layers."""
    _refuse(given)
    if LAYOUT in given:
        return _from_layout(given[LAYOUT], layers, p)
    first, last = (int(given[name]) if name in given else None for name in (FIRST, LAST))
    counted = EMBEDDING in given, LOSS in given
    v = int(given.get(V, 1))
    if PER_STAGE in given:
        v = megatron_split.stages_per_rank(layers, p, int(given[PER_STAGE]), *counted)
    if first is None and last is None:
        return megatron_split.even(layers, p, v, *counted), v
    return megatron_split.first_last(layers, p, first, last, v), v


def _from_layout(text: str, layers: int, p: int) -> tuple[tuple[int, ...], int]:
    found = megatron_layout.partition(text, layers, key=LAYOUT)
    if len(found) % p:
        raise Invalid(
            [
                f"{LAYOUT}={text!r} has {len(found)} stages, which {P}={p} does not divide. "
                f"Nearest: {P}={nearest_divisors(len(found), p)}."
            ]
        )
    return found, len(found) // p


def _refuse(given: Mapping[str, str]) -> None:
    problems = [
        f"{name}={given[name]} must be a whole number of at least 1. Nearest: 1."
        for name in (V, PER_STAGE, FIRST, LAST)
        if name in given and not (given[name].isascii() and given[name].isdigit() and 0 < int(given[name][:8]) < 10**7)
    ]
    chosen = [name for name in (PER_STAGE, V, LAYOUT) if name in given]
    ends = [name for name in (FIRST, LAST) if name in given]
    if len(chosen) > 1:
        problems.append(f"{' and '.join(chosen)} cannot be given together. Nearest: {chosen[-1]} alone.")
    if ends and PER_STAGE in given:
        problems.append(f"{PER_STAGE} cannot go with {FIRST} or {LAST}. Nearest: {V}.")
    if ends and (EMBEDDING in given or LOSS in given):
        problems.append(f"{' and '.join(ends)} cannot go with {EMBEDDING} or {LOSS}. Nearest: one of the two kinds.")
    if problems:
        raise Invalid(problems)
