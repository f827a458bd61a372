"""Reads a table of measured runs for a fit, whichever of the two formats it has: the small one, or the published one's."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipesim import config as configs
from pipesim import inputs
from pipesim.calibrate import lint, rows
from pipesim.calibrate.own_runs import own_runs
from pipesim.calibrate.rows import Catalog, Measurement
from pipesim.calibrate.runs import Run, Runs
from pipesim.checks import Invalid

Conf = Mapping[str, Any]

COLUMNS = {
    "gpus": "n_gpus", "t": "tp", "p": "pp", "d": "dp", "c": "cp", "v": "vpp", "micro_batch": "micro_batch",
    "global_batch": "global_batch", "seq_length": "seq_len",
}  # fmt: skip
"""Our names of what is checked in a published table, and its own."""


SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""What spreadsheets write between columns instead of commas."""


def read_runs(path: Path, base: Conf) -> Runs:
    """The runs of the cluster and stack that ``base``, a plain config, has chosen, each once. A name in ``.gz`` is gzipped.

    Raises ``Invalid`` with everything that is wrong in any row, or if the table cannot be read.
    """
    head, table = _read(path)
    is_published = set(rows.NEEDED) <= set(head)
    return _each_once(_published(path, table, base) if is_published else own_runs(path, head, table, base))


def _each_once(read: Runs) -> Runs:
    """Rows that differ in their place and id alone are one run that was copied: another run takes another time."""
    first: dict[Run, Run] = {}
    copies = Counter(first.setdefault(dataclasses.replace(run, row=0, id=""), run) for run in read.runs)
    warnings = [
        f"{run.name} stands there {times} times, to the last digit of its time, and counts once."
        for run, times in copies.items()
        if times > 1
    ]
    return dataclasses.replace(read, runs=tuple(copies), warnings=(*read.warnings, *warnings))


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """The first line's names, and a mapping for each further line that is not empty."""
    try:
        text = io.StringIO(inputs.read_text(path), newline="")
        lines = [line for line in csv.reader(text) if any(cell.strip() for cell in line)]
    except (OSError, inputs.Unreadable, csv.Error) as error:
        raise Invalid([f"measurements={path} cannot be read: {error}."]) from None
    if len(lines) < 2:
        raise Invalid([f"measurements={path} has no rows: it needs a line of column names and a line for each run."])
    if len(lines[0]) == 1 and (other := next((mark for mark in SEPARATORS if mark in lines[0][0]), None)):
        name = SEPARATORS[other]
        raise Invalid(
            [f"measurements={path}: its columns are separated by {name}. Nearest: commas, and points in numbers."]
        )
    head = [name.strip() for name in lines[0]]
    problems = [
        f"measurements={path}: row {number} has {len(line)} cells, and the first line names {len(head)} columns."
        for number, line in enumerate(lines[1:], start=1)
        if len(line) > len(head)
    ]
    if problems:
        raise Invalid(problems)
    return head, [dict(zip(head, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]


def _published(path: Path, table: Sequence[Mapping[str, str]], base: Conf) -> Runs:
    """Rows that can be held against a prediction, see ``Measurement.is_timed``, of this stack and chip."""
    catalog = Catalog(
        clusters=configs.library("cluster") | {base["cluster"]["name"]: configs.build_cluster(base["cluster"])},
        stacks=configs.library("stack") | {base["stack"]["name"]: configs.build_stack(base["stack"])},
        costs=configs.build_costs(base["costs"]),
    )
    measured = [(number, rows.measurement(row, catalog)) for number, row in enumerate(table, start=1)]
    if problems := [problem for number, row in measured for problem in _linted(path, number, row)]:
        raise Invalid(problems)
    usable = [(number, row) for number, row in measured if row.is_timed]
    wanted = base["stack"]["name"], base["cluster"]["chip"]
    runs = [_run(number, row, table[number - 1]) for number, row in usable if _machine(row) == wanted]
    if not runs:
        raise Invalid(
            [f"measurements={path}: no usable row is of stack={wanted[0]} on {wanted[1]}. {_there_are(usable)}"]
        )
    unusable, others = len(measured) - len(usable), len(usable) - len(runs)
    reasons = Counter(row.problem for _, row in measured if row.problem and _is_offered(row)).most_common(3)
    warnings = [
        f"{unusable} of {len(measured)} rows did not run, are incomplete, or are no dense 16-bit runs, and were left out.",
        f"{others} rows are of another stack or chip and were left out.",
        *(f"left out, {count} x: {reason}" for reason, count in reasons),
    ]
    return Runs(
        runs=tuple(runs), warnings=tuple(warnings[unusable == 0 :] if others else warnings[:1] * bool(unusable))
    )


def _is_offered(row: Measurement) -> bool:
    """Whether the table itself says that the row ran and is complete."""
    return row.outcome == "ok" and row.grade[:1] in ("A", "B")


def _is_asked(row: Measurement) -> bool:
    return _is_offered(row) and row.step_time_s is not None


def _linted(path: Path, number: int, row: Measurement) -> list[str]:
    if not _is_asked(row):
        return []
    cells = {ours: row.cells[theirs] for ours, theirs in COLUMNS.items() if row.cells[theirs] not in ("", "n/a")}
    findings = lint.lint(cells, ("gpus", "t", "p", "micro_batch", "global_batch"))
    return [f"measurements={path}: row {number} ({row.id}): {finding}" for finding in findings]


def _machine(row: Measurement) -> tuple[str, str]:
    assert row.point is not None
    return row.point.stack.name, row.point.cluster.chip


def _there_are(usable: Sequence[tuple[int, Measurement]]) -> str:
    counts = Counter(_machine(row) for _, row in usable).most_common(5)
    return "There are " + (", ".join(f"stack={stack} on {chip} ({n})" for (stack, chip), n in counts) or "none") + "."


def _run(number: int, row: Measurement, cells: Mapping[str, str]) -> Run:
    assert row.point is not None
    assert row.step_time_s is not None
    try:
        tflops = float(cells.get("tflops_per_gpu", "")) or None
    except ValueError:
        tflops = None
    return Run(
        row=number, id=row.id, source=row.source, point=row.point, step_time_s=row.step_time_s,
        memory_bytes=row.memory_bytes, tflops_per_gpu=tflops,
    )  # fmt: skip
