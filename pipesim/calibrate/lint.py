"""Whether the cells of one run can be true together: numbers, t x p x c x d against GPUs, the batch, swapped columns.

Cells are text by the names of ``own_runs.COLUMNS``; empty ones are left out. Hand-kept tables go wrong in these ways:
BigScience's list of runs has rows of micro-batch 4, 256 micro-batches, d 1 and batch 1536 (it is 1024), and one of
t 8, p 10, d 8 on 320 GPUs (d is 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from pipesim.checks import MAX_INT

WHOLE = (
    "gpus", "t", "p", "d", "c", "e", "v", "zero", "m", "micro_batch", "global_batch", "seq_length", "recompute_layers",
    "layers", "hidden", "heads", "kv_heads", "ffn", "vocab",
)  # fmt: skip
FROM_ZERO = ("zero", "recompute_layers")
LEAST, MOST = 1e-6, 1e7
"""No step takes less or more seconds, no GPU holds less or more GB nor computes less or more TFLOP/s."""

REAL = ("step_time_s", "memory_gb", "tflops_per_gpu")
FLAGS = ("sequence_parallel", "gated")

SWAPS = (
    ("t", "p"), ("t", "d"), ("p", "d"), ("p", "v"), ("d", "m"), ("micro_batch", "global_batch"), ("micro_batch", "m"),
    ("gpus", "d"), ("gpus", "global_batch"),
)  # fmt: skip
"""Columns that are taken for each other, the likeliest first."""

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")

Cells = Mapping[str, str]


class Finding(NamedTuple):
    """What is wrong with a cell."""

    column: str
    value: str
    rule: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f" Nearest: {self.nearest}." if self.nearest else ""
        return f"{self.column}={self.value} {self.rule}.{hint}"


def lint(cells: Cells, needed: tuple[str, ...]) -> list[Finding]:
    """Everything that is wrong with the row by itself, whatever its model and machine."""
    found = [Finding(name, "", "is empty and must be given") for name in needed if name not in cells]
    found += [finding for name in cells for finding in _typed(name, cells[name])]
    if found:
        return found
    numbers = {name: int(float(cells[name])) for name in WHOLE if name in cells}
    return [*_gpus(numbers), *_batch(cells, numbers)]


def is_true(text: str) -> bool:
    """A flag that ``lint`` let pass."""
    return text.lower() in _TRUE


def swapped(cells: Cells, works: Callable[[Cells], bool]) -> str | None:
    """If the row works only with two columns exchanged: which, as a sentence."""
    for one, other in SWAPS:
        if one in cells and other in cells and cells[one] != cells[other]:
            tried = {**cells, one: cells[other], other: cells[one]}
            if works(tried):
                return (
                    f"With {one}={cells[other]} and {other}={cells[one]} it would work: are these two columns swapped?"
                )
    return None


def _typed(name: str, text: str) -> Iterator[Finding]:
    if name in WHOLE:
        yield from whole(name, text)
    elif name in REAL:
        yield from real(name, text)
    elif name in FLAGS and text.lower() not in (*_TRUE, *_FALSE):
        yield Finding(name, repr(text), "must be true or false")


def real(name: str, text: str) -> Iterator[Finding]:
    """What is wrong with something measured."""
    if not LEAST <= _float(text) <= MOST:
        yield Finding(name, repr(text), f"must be a number from {LEAST:g} to {MOST:g}")


def whole(name: str, text: str) -> Iterator[Finding]:
    """What is wrong with a whole number above 0; of ``FROM_ZERO`` of at least 0."""
    value, low = _float(text), int(name not in FROM_ZERO)
    if not math.isfinite(value):
        yield Finding(name, repr(text), "must be a whole number")
    elif not low <= value <= MAX_INT or value != round(value):
        nearest = round(min(max(value, low), MAX_INT))
        yield Finding(name, text, f"must be a whole number of at least {low}", f"{name}={nearest}")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _gpus(numbers: Mapping[str, int]) -> Iterator[Finding]:
    """t x p x c x d are all GPUs; without d, t x p x c divides them."""
    gpus, degrees = numbers.get("gpus"), {name: numbers[name] for name in ("t", "p", "c", "d") if name in numbers}
    if gpus is None:
        return
    cut = math.prod(size for name, size in degrees.items() if name != "d")
    used = math.prod(degrees.values())
    words = " x ".join(f"{name}={size}" for name, size in degrees.items())
    if "d" in numbers and used != gpus:
        works = [f"d={gpus // cut}"] if gpus % cut == 0 and gpus >= cut else []
        yield Finding("gpus", str(gpus), f"is not {words} = {used}", ", or ".join([*works, f"gpus={used}"]))
    elif gpus % cut:
        nearest = max(1, round(gpus / cut)) * cut
        yield Finding("gpus", str(gpus), f"is no multiple of {words} = {cut}", f"gpus={nearest}")


def _batch(cells: Cells, numbers: Mapping[str, int]) -> Iterator[Finding]:
    """micro_batch x m x d is the global batch; without m, micro_batch x d divides it."""
    if not {"micro_batch", "global_batch"} <= numbers.keys():
        return
    cut = math.prod(numbers.get(name, 1) for name in ("t", "p", "c"))
    d = numbers.get("d") or (numbers["gpus"] // cut if numbers.get("gpus", 1) % cut == 0 else None)
    if not d:
        return
    asked, share = numbers["global_batch"], numbers["micro_batch"] * d
    words = f"micro_batch={numbers['micro_batch']} x d={d}"
    if "m" in numbers and asked != share * numbers["m"]:
        right = share * numbers["m"]
        works = [f"global_batch={right}"] + ([f"m={asked // share}"] if asked % share == 0 and asked >= share else [])
        rule = f"is not {words} x m={numbers['m']} = {right}{_other_flops(cells, right / asked)}"
        yield Finding("global_batch", str(asked), rule, ", or ".join(works))
    elif asked % share:
        around = sorted({asked // share * share, -(-asked // share) * share} - {0})
        nearest = f"global_batch={' or '.join(map(str, around))}"
        yield Finding("global_batch", str(asked), f"is no multiple of {words} = {share}", nearest)


def _other_flops(cells: Cells, factor: float) -> str:
    if "tflops_per_gpu" not in cells:
        return ""
    tflops = float(cells["tflops_per_gpu"])
    return f" (its {tflops:g} TFLOP/s, if reckoned with that batch, are {tflops * factor:.3g})"
