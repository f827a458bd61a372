"""Megatron's words for which layers lie on which stage: flags for even and end-weighted cuts, a layout string for others.

Source: Megatron-LM core_v0.14, megatron/training/arguments.py (validate_args) and
core/transformer/pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from pipesim.checks import Invalid, nearest_divisors

LAYOUT = "--pipeline-model-parallel-layout"
STAGES = "--num-virtual-stages-per-pipeline-rank"
PER_STAGE = "--num-layers-per-virtual-pipeline-stage"
EMBEDDING = "--account-for-embedding-in-pipeline-split"
LOSS = "--account-for-loss-in-pipeline-split"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
FLAGS = (LAYOUT, STAGES, PER_STAGE, EMBEDDING, LOSS, FIRST, LAST)

MOST_SIGNS = 1_000_000
"""Of a layout string with its multiplications written out."""


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
    virtual = {STAGES: str(v)} if v > 1 else {}
    for chosen in ((), (EMBEDDING, LOSS), (EMBEDDING,), (LOSS,)):
        yield virtual | dict.fromkeys(chosen, "")
    ranks = [sum(partition[rank::p]) - (rank == 0) - (rank == p - 1) for rank in range(p)]
    for ends in ({FIRST: ranks[0]}, {LAST: ranks[-1]}, {FIRST: ranks[0], LAST: ranks[-1]}):
        yield virtual | {name: str(count) for name, count in ends.items()}
    yield {LAYOUT: text(partition)}


def units(given: Mapping[str, str], layers: int, p: int) -> tuple[tuple[int, ...], int]:
    """Units on each stage and v, as Megatron-LM would place them. Raises ``Invalid`` where it refuses or loses layers."""
    _refuse_both(given)
    if LAYOUT in given:
        return _from_layout(given[LAYOUT], layers, p)
    ranks = _ranks(given, layers, p)
    v = _virtual(given, ranks)
    if bad := [each for each in ranks if each % v]:
        raise Invalid(
            [
                f"{STAGES}={v} does not divide the {bad[0]} layers of a rank. Nearest: {nearest_divisors(bad[0] or 1, v)}."
            ]
        )
    stages = [each // v for _ in range(v) for each in ranks]
    stages[0] += 1 - (EMBEDDING in given)
    stages[-1] += 1 - (LOSS in given)
    lost = [k for k, each in enumerate(stages) if each < (k == 0) + (k == len(stages) - 1)]
    if lost or sum(stages) != layers + 2:
        raise Invalid([f"stage {lost[0] if lost else 0} would hold no layers, or some would be lost: {stages}."])
    return tuple(stages), v


def _ranks(given: Mapping[str, str], layers: int, p: int) -> list[int]:
    """What each rank holds; embedding and loss count where the flags say so."""
    ends = {name: int(given[name]) for name in (FIRST, LAST) if name in given}
    if ends and (EMBEDDING in given or LOSS in given):
        raise Invalid([f"{' and '.join(ends)} cannot go with {EMBEDDING} or {LOSS}. Nearest: one of the two kinds."])
    inner, left = p - len(ends), layers - sum(ends.values())
    counted = left + (EMBEDDING in given) + (LOSS in given)
    if ends and (inner < 1 or left < 0):
        said = " and ".join(f"{name}={value}" for name, value in ends.items())
        raise Invalid(
            [
                f"{said} leaves {left} of model.layers={layers} for parallel.p={p} less {len(ends)} ranks. Nearest: leave it out."
            ]
        )
    if counted % inner:
        raise Invalid(
            [
                f"parallel.p={p} leaves {counted} layers{' (embedding and loss counted)' * (counted != left)} for {inner} ranks, "
                f"which do not divide them. Nearest: parallel.p={nearest_divisors(max(counted, 1), p)}, or {LAYOUT}."
            ]
        )
    middle = [counted // inner] * inner
    return ([ends[FIRST]] if FIRST in ends else []) + middle + ([ends[LAST]] if LAST in ends else [])


def _virtual(given: Mapping[str, str], ranks: Sequence[int]) -> int:
    if PER_STAGE not in given:
        return max(1, int(given.get(STAGES, 1)))
    per_stage = int(given[PER_STAGE])
    if per_stage < 1 or ranks[0] % per_stage:
        raise Invalid(
            [
                f"{PER_STAGE}={per_stage} does not divide the {ranks[0]} layers of a rank. "
                f"Nearest: {nearest_divisors(max(ranks[0], 1), per_stage)}."
            ]
        )
    return max(1, ranks[0] // per_stage)


def _refuse_both(given: Mapping[str, str]) -> None:
    problems = [
        f"{name}={given[name]} must be a whole number of at least 1."
        for name in (STAGES, PER_STAGE, FIRST, LAST)
        if name in given and not (given[name].isascii() and given[name].isdigit() and len(given[name]) < 8)
    ]
    chosen = [name for name in (PER_STAGE, STAGES, LAYOUT) if name in given]
    if len(chosen) > 1:
        problems.append(f"{' and '.join(chosen)} cannot be given together. Nearest: {chosen[-1]} alone.")
    if PER_STAGE in given and (FIRST in given or LAST in given):
        problems.append(f"{PER_STAGE} cannot go with {FIRST} or {LAST}. Nearest: {STAGES}.")
    if problems:
        raise Invalid(problems)


def text(partition: Sequence[int]) -> str:
    """The layout string of units per stage.

    >>> text((3, 2, 2, 2, 1))
    'Ett|(tt|)*3L'
    """
    last = len(partition) - 1
    counts = [each - (k == 0) - (k == last) for k, each in enumerate(partition)]
    signs = ["t" * each if each < 4 else f"t*{each}" for each in counts]
    signs[0] = "E" + signs[0]
    middle = "".join(
        f"({sign}|)*{len(same)}" if len(same) > 1 and sign else f"{sign}|" * len(same)
        for sign, same in ((sign, list(group)) for sign, group in itertools.groupby(signs[:last]))
    )
    return f"{middle}{signs[last]}L"


def _from_layout(layout: str, layers: int, p: int) -> tuple[tuple[int, ...], int]:
    stages = _unrolled(layout).split("|")
    whole, problems = "".join(stages), []
    wrong = sorted(set(whole) - set("ELtm"))
    if wrong:
        problems.append(f"{LAYOUT}={layout!r} holds {''.join(wrong)!r}; there are E, t, m, L, |, parentheses and *N.")
    if not re.fullmatch("E[tm]*L", whole):
        problems.append(f"{LAYOUT}={layout!r} must begin with the one E and end with the one L.")
    if whole.count("t") != layers:
        problems.append(f"{LAYOUT}={layout!r} places {whole.count('t')} layers, and model.layers={layers}.")
    if len(stages) % p:
        problems.append(f"{LAYOUT}={layout!r} has {len(stages)} stages, which parallel.p={p} does not divide.")
    if "m" in whole:
        problems.append(f"{LAYOUT}={layout!r} places multi-token prediction (m), which is not priced. Leave it out.")
    if problems:
        raise Invalid(problems)
    return tuple(map(len, stages)), len(stages) // p


def _unrolled(layout: str) -> str:
    signs = layout.replace(",", "").replace(" ", "")
    for pattern in (r"\(([^()]+)\)\*(\d{1,7})", r"([^*)(])\*(\d{1,7})"):
        size = sum(len(found[1]) * int(found[2]) for found in re.finditer(pattern, signs))
        if size > MOST_SIGNS:
            raise Invalid([f"{LAYOUT} stands for {size:,} layers; at most {MOST_SIGNS:,} are read."])
        signs = re.sub(pattern, lambda found: found[1] * int(found[2]), signs)
    return signs
