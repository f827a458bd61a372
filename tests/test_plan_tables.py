"""The list of a plan's best: what is one entry of it, and what it says of memory that may not fit."""

from __future__ import annotations

from typing import Any

from points import plain

from pipesim.estimate import MEMORY_ITEMS
from pipesim.plan.search import question
from pipesim.report.document import Table
from pipesim.tasks.plan.tables import ranking

LAYOUT = {
    "gpus": 64, "t": 4, "p": 4, "d": 4, "c": 1, "e": 1, "micro_batch": 1, "zero": 1, "sequence_parallel": True,
    "recompute": "none", "schedule": "interleaved_1f1b", "settings": None, "mfu": 0.4, "verdict": "compute",
    "global_batch": 64, "seq_length": 4096,
}  # fmt: skip
ITEMS = {f"{item}_bytes": 0.0 for item in MEMORY_ITEMS}


def row(v: int, seconds: float, memory_bytes: float = 60e9, **others: Any) -> dict[str, Any]:
    """Of a layout on GPUs of 80 GB; memory's interval ends a fifth above."""
    ends = {"step_time_lo_s": seconds, "step_time_hi_s": seconds, "memory_hi_bytes": 1.2 * memory_bytes}
    sizes = {"v": v, "step_time_s": seconds, "memory_bytes": memory_bytes, "memory_limit_bytes": 80e9}
    return ITEMS | LAYOUT | ends | sizes | others


def layouts(*rows: dict[str, Any]) -> Table:
    return ranking(plain("experiment=plan", "headroom=0"), question.apart(rows), None)


def told(table: Table, title: str) -> list[Any]:
    place = [column.title for column in table.columns].index(title)
    return [line[place] for line in table.rows]


def test_layouts_that_differ_in_v_alone_are_one_while_as_fast() -> None:
    """One hundredth is where they part; t parts them at any pace."""
    rows = (
        row(4, 100.0),
        row(3, 100.2, settings="parallel.partition=[9,8]"),
        row(4, 100.3, t=8),
        row(2, 101.0),
        row(9, 101.1),
        row(1, 101.2),
    )
    assert [[each["v"] for each in same] for same in question.apart(rows)] == [[4, 3, 2], [4], [9, 1]]
    table = layouts(*rows)
    assert told(table, "and as fast") == ["v=2, 3", "", "v=1"]
    assert "another v alone and at most 1.0 % slower" in table.note
    assert [len(same) for same in question.apart(rows, share=0)] == [1] * len(rows)


def test_what_is_equal_in_time_and_memory_is_one_as_before() -> None:
    table = layouts(row(4, 100.0), row(4, 100.0, t=8), row(2, 100.5))
    assert told(table, "and as fast") == ["v=2; t=8"]
    assert told(layouts(row(4, 100.0)), "layout") == ["t4 p4 d4 v4 b1 ZeRO-1 SP interleaved_1f1b recompute=none"]


def test_every_layout_whose_interval_passes_the_memory_says_that_it_may_not_fit() -> None:
    table = layouts(row(4, 100.0, 79e9), row(4, 110.0, 60e9, t=8), row(4, 120.0, 70e9, t=2))
    assert told(table, "fits") == ["may not fit", "surely", "may not fit"]
    assert "fits" not in [column.title for column in layouts(row(4, 100.0)).columns]
