"""Two studies joined: which rows ask the same, how much faster one is, and which item moved most. Plain data in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipesim.report.words import MEMORY_WORDS, TIME_WORDS

SAME = 1e-9
"""Relative difference up to which two computed numbers are one: they were summed in another order."""

_DERIVED = ("d", "v", "num_microbatches")
"""Keys that follow from the others and from the cluster where nobody sets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """``about`` is the manifest, ``rows`` the table with ``step_s``, ``lo_s`` and ``hi_s``: what a step takes, measured where
    it really ran. ``notes`` are sentences on the table, ``points`` counts what was asked by status.
    """

    name: str
    about: Mapping[str, Any]
    rows: pd.DataFrame
    points: Mapping[str, int]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """``before`` and ``after`` are rows that ask the same, side by side; ``apart`` are columns with one value in each study
    and another in the other, which are not compared: column -> both values.
    """

    keys: tuple[str, ...]
    apart: dict[str, tuple[Any, Any]]
    before: pd.DataFrame
    after: pd.DataFrame
    gone: pd.DataFrame
    new: pd.DataFrame


def join(before: pd.DataFrame, after: pd.DataFrame, columns: Sequence[str]) -> Joined:
    """Joins on those of ``columns`` in which rows of a study differ, or both studies agree.

    A degree that is derived, as d is from the number of GPUs, counts where leaving it out would join what differs.
    Rows that are equal in all keys, which a sweep can ask twice, are joined in their order.
    """
    apart = {}
    for name in columns:
        one, other = before[name].unique(), after[name].unique()
        if len(one) == len(other) == 1 and _plain(one[0]) != _plain(other[0]):
            apart[name] = (_plain(one[0]), _plain(other[0]))
    keys = [name for name in columns if name not in apart]
    joined = _joined(before, after, keys)
    for derived in (name for name in _DERIVED if name in keys):
        fewer = [name for name in keys if name != derived]
        if before.duplicated(fewer).any() or after.duplicated(fewer).any():
            continue
        looser = _joined(before, after, fewer)
        if len(looser[0]) > len(joined[0]):
            keys, joined = fewer, looser
    at_before, at_after = joined
    return Joined(
        keys=tuple(keys),
        apart=apart,
        before=before.iloc[at_before].reset_index(drop=True),
        after=after.iloc[at_after].reset_index(drop=True),
        gone=before.drop(index=before.index[at_before]),
        new=after.drop(index=after.index[at_after]),
    )


def _joined(before: pd.DataFrame, after: pd.DataFrame, keys: list[str]) -> tuple[Any, Any]:
    """Places of the rows that are equal in ``keys``, in the order of ``after``."""
    sides = []
    for rows in (before, after):
        side = rows[keys].astype(object).where(rows[keys].notna(), None)
        side["nth"] = rows.groupby(keys, dropna=False, sort=False).cumcount().to_numpy() if keys else range(len(rows))
        side["at"] = np.arange(len(rows))
        sides.append(side)
    both = sides[0].merge(sides[1], on=[*keys, "nth"], suffixes=("_before", "_after")).sort_values("at_after")
    return both["at_before"].to_numpy(), both["at_after"].to_numpy()


def changes(joined: Joined) -> pd.DataFrame:
    """A row for each joined pair: ``speed_up`` with its ends ``lo`` and ``hi``, what it ``reads`` as, and the item of seconds
    and of bytes that moved most with the whole: ``time_item``, ``time_item_s``, ``memory_item``, ``memory_item_bytes``.

    The speed-up is of tokens/s, where both are known, and else of steps. Its ends are the least and the most that the two
    intervals allow, so that 1 lies between them exactly if they overlap for the same batch.
    """
    before, after = joined.before, joined.after
    step = [_numbers(rows, "step_s") for rows in (before, after)]
    rate = [
        np.where(np.isnan(tokens := _numbers(rows, "tokens_per_s")), 1 / seconds, tokens)
        for rows, seconds in zip((before, after), step, strict=True)
    ]
    speed_up = rate[1] / rate[0]
    low, high = (
        speed_up * (_numbers(before, first) / step[0]) / (_numbers(after, last) / step[1])
        for first, last in (("lo_s", "hi_s"), ("hi_s", "lo_s"))
    )
    memory = [_numbers(rows, "memory_bytes") for rows in (before, after)]
    time_item, time_item_s = _cause(before, after, list(TIME_WORDS), "s", step[1] - step[0])
    memory_item, memory_item_bytes = _cause(before, after, list(MEMORY_WORDS), "bytes", memory[1] - memory[0])
    status = before["status"].to_numpy() != after["status"].to_numpy()
    return pd.DataFrame(
        {
            "speed_up": speed_up, "lo": low, "hi": high, "reads": reads(speed_up, low, high),
            "changed": status | _differ(*step) | _differ(*memory) | _differ(*rate),
            "time_item": time_item, "time_item_s": time_item_s,
            "memory_item": memory_item, "memory_item_bytes": memory_item_bytes,
        }
    )  # fmt: skip


def reads(speed_up: Any, low: Any, high: Any) -> Any:
    """What a speed-up with its ends says, element by element; nothing where one of the two has no time."""
    speed_up, low, high = (np.atleast_1d(np.asarray(each, float)) for each in (speed_up, low, high))
    return np.select(
        [np.isnan(speed_up), abs(speed_up - 1) <= SAME, np.isnan(low) | np.isnan(high), low > 1, high < 1],
        ["", "same", "no interval", "faster", "slower"],
        "not distinguishable",
    )


def best(rows: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """Each group's row of rank 1."""
    return rows[rows["rank"] == 1].drop_duplicates(list(groups))


def with_rank(rows: pd.DataFrame, groups: Sequence[str]) -> pd.DataFrame:
    """With a column ``rank`` within each group, 1 for the best that runs; 0 for what does not fit or run."""
    tokens = _numbers(rows, "tokens_per_s")
    rate = np.where(np.isnan(tokens), 1 / _numbers(rows, "step_s"), tokens)
    runs = (rows["status"] == "ok").to_numpy(bool) & ~np.isnan(rate)
    by_rate = pd.DataFrame({"rate": rate, **{name: rows[name].to_numpy() for name in groups}})[runs]
    places = by_rate.groupby(list(groups), dropna=False)["rate"].rank(method="first", ascending=False)
    rank = np.zeros(len(rows), int)
    rank[runs] = places.to_numpy(int)
    return rows.assign(rank=rank)


def _cause(before: pd.DataFrame, after: pd.DataFrame, items: list[str], unit: str, whole: Any) -> tuple[Any, Any]:
    """The item that moved most in the direction of the whole, and by how much; none where the whole stays."""
    moved = np.column_stack(
        [np.nan_to_num(_numbers(after, f"{item}_{unit}")) - np.nan_to_num(_numbers(before, f"{item}_{unit}")) for item in items]
    )  # fmt: skip
    most = np.argmax(moved * np.sign(np.nan_to_num(whole))[:, None], axis=1) if len(moved) else np.zeros(0, int)
    by = moved[np.arange(len(moved)), most]
    moves = ~np.isnan(whole) & (np.abs(by) > SAME * np.abs(np.nan_to_num(whole))) & (whole != 0)
    return np.where(moves, np.array(items, object)[most], ""), np.where(moves, by, np.nan)


def _differ(one: Any, other: Any) -> Any:
    """Element by element: by more than rounding, or one of the two is missing."""
    missing = np.isnan(one), np.isnan(other)
    return (missing[0] != missing[1]) | (np.abs(other - one) > SAME * np.maximum(np.abs(one), np.abs(other)))


def _numbers(rows: pd.DataFrame, name: str) -> Any:
    """A column as floats, NaN where it is missing."""
    return rows[name].to_numpy(float, na_value=np.nan) if name in rows else np.full(len(rows), np.nan)


def _plain(value: Any) -> Any:
    """A cell as Python has it, ``None`` where it is missing."""
    return None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as Python has them, ``None`` where something is missing."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in rows.to_dict("records")]
