"""Which rows of a sweep stand where: ranked, by question, on the Pareto front, and which layouts differ in one thing alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pipesim.report.document import Kind
from pipesim.report.say import Say

Row = Mapping[str, Any]
Named = Callable[[Row], str]

IDENTITY = ("model", "cluster", "stack", "costs", "schedule", "t", "p", "d", "c", "e", "v", "zero", "recompute",
            "sequence_parallel", "precision", "attention", "micro_batch", "global_batch", "seq_length", "settings")  # fmt: skip
"""Columns that tell layouts apart."""

_QUESTION = ("model", "cluster", "costs")


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Layouts that fit by tokens/s, then those that do not, by memory; ties stay in the table's order."""
    priced = [row for row in rows if row["status"] in ("ok", "infeasible")]
    return sorted(
        priced, key=lambda row: (not row["fits"], -row["tokens_per_s"] if row["fits"] else row["memory_bytes"])
    )


def questions(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by model, cluster and cost model: layouts of different ones are no alternatives."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(str(row[name]) for name in _QUESTION), []).append(row)
    return dict(sorted(found.items()))


class Pace(NamedTuple):
    """What layouts are compared by: seconds a step where all steps are alike, else seconds a million tokens."""

    title: str
    of: Callable[[Row], float]
    kind: Kind = "seconds"


def pace(rows: Sequence[Row], say: Say) -> Pace:
    """Of priced rows."""
    if len({(row["global_batch"], row["seq_length"]) for row in rows}) == 1:
        return Pace(say("step time", "步时"), lambda row: float(row["step_time_s"]))
    return Pace(say("time for a million tokens", "每百万 token 用时"), lambda row: 1e6 / row["tokens_per_s"])


def front(rows: Sequence[Row], of: Callable[[Row], float]) -> list[Row]:
    """Those of fitting rows that no other beats or equals in pace, memory and GPUs at once; equals stay together."""

    def key(row: Row) -> tuple[float, float, int]:
        return of(row), row["memory_bytes"], row["gpus"]

    least: dict[int, float] = {}
    kept: list[Row] = []
    for row in sorted(rows, key=key):
        if kept and key(row) == key(kept[-1]):
            kept.append(row)
        elif not any(gpus <= row["gpus"] and held <= row["memory_bytes"] for gpus, held in least.items()):
            kept.append(row)
            least[row["gpus"]] = row["memory_bytes"]
    return kept


def families(rows: Sequence[Row], changing: str = "micro_batch") -> list[list[Row]]:
    """Priced rows that differ in one column alone (and what follows from it), two or more, in its rising order."""
    fixed = [name for name in (*IDENTITY, "gpus") if name != changing]
    found: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in fixed), {}).setdefault(row[changing], row)
    return [[each[value] for value in sorted(each)] for each in found.values() if len(each) > 1]


def best_values(rows: Sequence[Row], name: str, most: int) -> list[Any]:
    """The values of a column, at most so many: those whose first row stands highest, in rising order."""
    return sorted(list(dict.fromkeys(row[name] for row in rows if row[name] is not None))[:most])
