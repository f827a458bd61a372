"""Every schedule by name. ``make_schedule("1f1b", p=4, m=8)`` is the one way in."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from pipesim.schedules import action, rules
from pipesim.schedules.action import Schedule
from pipesim.schedules.gpipe import gpipe
from pipesim.schedules.naive import naive
from pipesim.schedules.one_f_one_b import one_f_one_b

_FAMILIES: dict[str, Callable[[int, int], Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
}

MAX_ACTIONS = 20_000_000
"""Longer schedules are refused: their arrays would not fit into an ordinary machine's memory."""


def schedule_names() -> tuple[str, ...]:
    return tuple(_FAMILIES)


def problems(name: str, p: int, m: int, v: int = 1) -> list[str]:
    """Every rule that this choice breaks, with the config keys, their values and the nearest that work."""
    if name not in _FAMILIES:
        near = difflib.get_close_matches(name, _FAMILIES, n=3, cutoff=0.4)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        return [f"schedule.name={name!r} is unknown; it must be one of {', '.join(_FAMILIES)}.{hint}"]
    broken = []
    if v != 1:
        broken.append(f"parallel.v={v}: schedule.name={name} has one stage per rank. Nearest: v=1.")
    if 2 * p * m * v > MAX_ACTIONS:
        nearest = max(1, MAX_ACTIONS // (2 * p * v))
        broken.append(
            f"parallel.p={p} with {m} micro-batches makes {2 * p * m * v} actions; "
            f"at most {MAX_ACTIONS} are simulated. Nearest: {nearest} micro-batches."
        )
    return broken


def make_schedule(name: str, *, p: int, m: int, v: int = 1) -> Schedule:
    """The schedule of p ranks, m micro-batches and v virtual stages per rank; ``ValueError`` names every broken rule."""
    sizes = {"p": p, "m": m, "v": v}
    wrong = [
        f"{key}={size!r} must be a whole number of at least 1." for key, size in sizes.items() if not _counts(size)
    ]
    if found := wrong or problems(name, p, m, v):
        raise ValueError("\n".join(found))
    return _FAMILIES[name](p, m)


def read_schedule(path_or_text: str | Path) -> Schedule:
    """Reads PyTorch's compute-only CSV from a file, or from the text itself, and validates it.

    Raises ``FileNotFoundError`` for a missing file and ``ValueError`` with the bad line, cell or step.
    """
    is_text = isinstance(path_or_text, str) and ("," in path_or_text or "\n" in path_or_text)
    text = str(path_or_text) if is_text else Path(path_or_text).read_text(encoding="utf-8")
    name = "custom" if is_text else Path(path_or_text).stem
    schedule = action.parse(text, name)
    rules.validate(schedule)
    return schedule


def _counts(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1
