"""How Megatron-LM says which layers lie on which stage: its layout strings, and its flags for the ends of a pipeline.

Source: Megatron-LM core_v0.13, ``core/transformer/pipeline_parallel_layer_layout.py`` (strings) and ``transformer_block.py``:
``get_num_layers_to_build`` (flags).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from pipesim.checks import Invalid
from pipesim.costs.stage import balanced_partition

KEY = "parallel.partition"

LETTERS = {"E": "embedding", "t": "layer", "m": "multi-token prediction", "L": "head"}

MOST_LETTERS = 300_000
"""Longer layouts are refused before they are written out: ``t*999999999`` is short."""

_GROUP, _LETTER = re.compile(r"\(([^()]+)\)\*(\d+)"), re.compile(r"([EtmL|])\*(\d+)")


def is_meant(text: str) -> bool:
    """Whether a text holds nothing but what layouts hold."""
    return re.fullmatch(r"[EtmL|*()\d,\s]+", text) is not None


def stages(text: str, key: str = KEY) -> list[str]:
    """The letters of each stage, repeats written out: E embedding, t layer, m multi-token prediction, L head.

    Stages are in the order of the model: all ranks' first ones, then all their second ones. Commas and spaces count
    nothing, a group in parentheses is repeated before a letter is. Raises ``Invalid`` naming ``key`` with everything that
    cannot be read, or is missing, doubled or in the wrong place.

    >>> stages("Et*2|(tt|)*2,L")
    ['Ett', 'tt', 'tt', 'L']
    """
    plain = re.sub(r"[,\s]", "", text)
    for pattern in (_GROUP, _LETTER):
        plain = _repeated(pattern, plain, text, key)
    if unknown := sorted(set(re.sub(r"[EtmL|]", "", plain))):
        raise Invalid(
            [
                f"{key}={text!r} has {' '.join(unknown)} where only {', '.join(LETTERS)}, |, (…)*n and *n are read, without "
                "parentheses in others. Nearest: Ett|tt|ttL."
            ]
        )
    if problems := list(_misplaced(plain)):
        raise Invalid([f"{key}={text!r}: {each}" for each in problems])
    return plain.split("|")


def partition(text: str, layers: int, key: str = KEY) -> tuple[int, ...]:
    """Units of each stage of a layout of so many layers, without multi-token prediction, which nothing here prices.

    >>> partition("Et*2|(tt|)*2,L", layers=6)
    (3, 2, 2, 1)
    """
    found = stages(text, key)
    if any("m" in stage for stage in found):
        without = "|".join(stage for each in found if (stage := each.replace("m", "")) or not each)
        raise Invalid(
            [
                f"{key}={text!r}: m, multi-token prediction, is no unit of a model here. Nearest: {_short(without.split('|'))}."
            ]
        )
    units = tuple(map(len, found))
    if (more := sum(units) - 2 - layers) != 0:
        nearest = written(balanced_partition(layers + 2, len(found)))
        raise Invalid(
            [
                f"{key}={text!r} holds {layers + more} layers, t, {abs(more)} {'more' if more > 0 else 'fewer'} than "
                f"model.layers={layers}. Nearest: {nearest}."
            ]
        )
    return units


def written(parts: Sequence[int]) -> str:
    """The layout string of the units of each stage, as short as Megatron-LM reads it.

    >>> written([3, 2, 2, 2, 1])
    'Ett|(tt|)*3L'
    """
    letters = "E" + "t" * (sum(parts) - 2) + "L"
    ends = [0, *itertools.accumulate(parts)]
    return _short([letters[first:last] for first, last in itertools.pairwise(ends)])


def _short(stages: Sequence[str]) -> str:
    """Equal neighbours as one group; what follows a group is parted from it by its own border."""
    found = []
    *others, last = stages
    for stage, equal in itertools.groupby(others):
        count, said = len(list(equal)), _said(stage)
        found.append(f"({said}|)*{count}" if count > 1 else f"{said}|")
    return "".join(found) + _said(last)


def _said(stage: str) -> str:
    return re.sub(r"t{4,}", lambda found: f"t*{len(found[0])}", stage)


def _repeated(pattern: re.Pattern[str], plain: str, text: str, key: str) -> str:
    """The text with every match repeated. Raises ``Invalid`` before it gets too long."""
    letters = sum(len(found[1]) * int(found[2].lstrip("0")[:9] or 0) for found in pattern.finditer(plain))
    if len(plain) + letters > MOST_LETTERS:
        shown = text if len(text) <= 60 else f"{text[:60]}…"
        raise Invalid([f"{key}={shown!r} writes out to more than {MOST_LETTERS:,} letters. Nearest: Ett|tt|ttL."])
    return pattern.sub(lambda found: found[1] * int(found[2].lstrip("0")[:9] or 0), plain)


def _misplaced(plain: str) -> Iterator[str]:
    letters = plain.replace("|", "")
    for letter, place, wanted in (("E", letters[:1], "first"), ("L", letters[-1:], "last")):
        count = letters.count(letter)
        if count == 0:
            yield f"{letter}, the {LETTERS[letter]}, is missing. Nearest: put it {wanted}."
        elif count > 1:
            yield f"{letter}, the {LETTERS[letter]}, is there {count} times. Nearest: once, {wanted}."
        elif place != letter:
            yield f"{letter}, the {LETTERS[letter]}, must be {wanted}. Nearest: move it there."
    if "t" not in letters:
        yield "t, a layer, is missing. Nearest: Et|tL."
    elif "m" in letters and letters.rindex("t") > letters.index("m"):
        yield "m, multi-token prediction, must come after every t. Nearest: move it behind the last t."
