"""Every schedule by name. ``make_schedule("1f1b", p=4, m=8)`` is the one way in."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np

from pipesim.schedules import custom
from pipesim.schedules.action import IntArray, Schedule
from pipesim.schedules.comms import Lowered, lower, read_comms
from pipesim.schedules.custom import read_schedule
from pipesim.schedules.families import FAMILIES, READ, WAVES, Family

__all__ = [
    "MAX_ACTIONS",
    "Lowered",
    "Schedule",
    "canonical_name",
    "lower",
    "make_schedule",
    "peak_inflight",
    "problems",
    "ranks_of_stages",
    "read_comms",
    "read_schedule",
    "schedule_names",
    "stages_per_rank",
    "warnings",
]  # fmt: skip

MAX_ACTIONS = 20_000_000
"""Longer schedules are refused: their arrays would not fit into an ordinary machine's memory."""


def schedule_names() -> tuple[str, ...]:
    """The name of every schedule; ``canonical_name`` knows the aliases."""
    return tuple(FAMILIES)


def canonical_name(name: str) -> str | None:
    """The schedule meant by a name or an alias, whatever its case, dashes and spaces; None if there is none.

    >>> canonical_name("Interleaved1F1B"), canonical_name("ZB-H1"), canonical_name("1f2b")
    ('interleaved_1f1b', 'zb_h1', None)
    """
    return _SPELLINGS.get(_bare(name)) if isinstance(name, str) else None


def stages_per_rank(name: str) -> int:
    """v, where none is asked for; 1 for a schedule that is unknown."""
    known = canonical_name(name)
    return 1 if known is None else _KNOWN[known].v


def ranks_of_stages(name: str, p: int, v: int, **options: Any) -> list[int]:
    """The rank of each of the p * v stages: in turns, down and up again where the schedule runs in waves, or as a file says."""
    if canonical_name(name) == "custom":
        return custom.ranks_of_stages(options["path"])
    turns = [stage % (2 * p) for stage in range(p * v)]
    if canonical_name(name) in WAVES:
        return [at if at < p else 2 * p - 1 - at for at in turns]
    return [at % p for at in turns]


def make_schedule(name: str, *, p: int, m: int, v: int | None = None, **options: Any) -> Schedule:
    """The schedule of p ranks, m micro-batches and v stages per rank (None: as many as the schedule is made for).

    ``options`` are the schedule's own, such as ``group`` of interleaved_1f1b. ``ValueError`` names every broken rule.
    """
    if found := problems(name, p, m, v, **options):
        raise ValueError("\n".join(found))
    family = _family(name)
    return family.make(*family.sizes(p, m, v or family.v), **options)


def problems(name: str, p: int, m: int, v: int | None = None, **options: Any) -> list[str]:
    """Every rule that this choice breaks, with the config keys, their values and the nearest that work."""
    if canonical_name(name) is None:
        return [_unknown(name)]
    name, family = str(canonical_name(name)), _family(name)
    sizes = {"parallel.p": p, "num_microbatches": m, "parallel.v": family.v if v is None else v}
    wrong = [(key, size) for key, size in sizes.items() if not _counts(size)]
    broken = [f"{key}={size!r} must be a whole number of at least 1. Nearest: 1." for key, size in wrong]
    for option in options:
        if option not in family.options:
            known = ", ".join(family.options) or "none"
            broken.append(f"schedule.{option}: schedule.name={name} has no such option; it has {known}.")
    if broken:
        return broken
    stages = sizes["parallel.v"]
    if stages != family.v and not family.free_v:
        has = "one stage" if family.v == 1 else f"{family.v} stages"
        broken.append(f"parallel.v={stages}: schedule.name={name} has {has} per rank. Nearest: v={family.v}.")
        stages = family.v
    segments = options.get("segments", 1)
    per_micro_batch = p * stages * (3 if family.split else 2) * (segments if _counts(segments) else 1)
    if m * per_micro_batch > MAX_ACTIONS:
        broken.append(
            f"parallel.p={p} with num_microbatches={m} makes {m * per_micro_batch} actions; at most {MAX_ACTIONS} are "
            f"simulated. Nearest: num_microbatches={max(1, MAX_ACTIONS // per_micro_batch)}."
        )
    return broken + list(family.broken_rules(*family.sizes(p, m, stages), **options))


def warnings(name: str, p: int, m: int, v: int | None = None, **options: Any) -> list[str]:
    """What runs but is unwise. Call it with what ``problems`` finds nothing wrong with."""
    family = _family(name)
    found = []
    if p > 1 and m < p:
        found.append(
            f"num_microbatches={m} is smaller than parallel.p={p}: most ranks are idle most of the time. A smaller "
            f"training.micro_batch or a larger training.global_batch gives more. Nearest: num_microbatches={p}."
        )
    return found + list(family.unwise(*family.sizes(p, m, v or family.v), **options))


def peak_inflight(name: str, p: int, m: int, v: int | None = None, **options: Any) -> IntArray:
    """The schedule's memory law: at most how many activations (of one stage and micro-batch) each rank holds."""
    family = _family(name)
    return np.asarray(family.peak_inflight(*family.sizes(p, m, v or family.v), **options))


def _family(name: str) -> Family:
    known = canonical_name(name)
    if known is None:
        raise ValueError(_unknown(name))
    return _KNOWN[known]


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(_bare(str(name)), _SPELLINGS, n=5, cutoff=0.4)
    meant = list(dict.fromkeys(_SPELLINGS[spelling] for spelling in near))[:3]
    hint = f" Nearest: {', '.join(meant)}." if meant else ""
    return f"schedule.name={name!r} is unknown; it must be one of {', '.join(_KNOWN)}.{hint}"


def _bare(name: str) -> str:
    """Lower case without what people put between the parts of a name."""
    return "".join(letter for letter in name.lower() if letter.isalnum()).removeprefix("schedule")


def _counts(size: object) -> bool:
    return isinstance(size, int | np.integer) and not isinstance(size, bool) and int(size) >= 1


_KNOWN = FAMILIES | {"custom": READ}
_SPELLINGS = {_bare(spelling): name for name, family in _KNOWN.items() for spelling in (name, *family.aliases)}
