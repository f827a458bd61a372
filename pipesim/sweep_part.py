"""One part of a sweep, worked on wherever an engine puts it: its rows go to a file of their own, its counts to the driver."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipesim import tasks
from pipesim.checks import Invalid
from pipesim.plan import grid
from pipesim.plan.asked.space import Slice, Space
from pipesim.plan.search.best import Wanted, best
from pipesim.results import parts, schema
from pipesim.results.parts import Made

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1024
"""Points that are evaluated together where the first that fails ends it: each that fails costs two evaluations."""


class Part(NamedTuple):
    """``asked`` is the hash of the slices, ``code`` that of the version; ``runs`` is whether its points really run, ``wanted``
    what alone is kept of them.
    """

    number: int
    slices: tuple[Slice, ...]
    asked: str
    code: str
    details: bool
    runs: bool
    fail_fast: bool
    folder: str
    wanted: Wanted | None = None


def make(part: Part) -> Made:
    """Every point is a row, whatever comes of it. What is there already, of an earlier try, is not done again.

    With ``fail_fast`` a part with a point that fails is that point's row alone.
    """
    folder = Path(part.folder)
    done = parts.kept(folder, part.number, part.asked)
    if done is not None and done.code == part.code:
        return done
    measured: Mapping[str, Any] = {}
    counts = None
    with _logged() as log:
        if part.wanted is not None:
            table, counts = best(part.slices, part.wanted)
        elif part.runs:
            table, measured = _run(part.slices, part.asked)
        else:
            table = _evaluated(part)
    return parts.keep(folder, part.number, part.asked, part.code, table, log.getvalue(), measured, counts)


def _evaluated(part: Part) -> pa.Table:
    if not part.fail_fast:
        return grid.evaluate(part.slices, part.details)
    tables = []
    for slices in _few(part.slices):
        table = grid.evaluate(slices, part.details)
        failed = table.filter(pc.equal(table["status"], "failed"))
        if len(failed):
            return failed.slice(0, 1)
        tables.append(table)
    return schema.sorted_table(pa.concat_tables(tables))


def _few(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """The slices in pieces of 1, 2, 4, … points, so that what fails everywhere fails at once."""
    size = 1
    for space, start, stop in slices:
        while start < stop:
            end = min(start + size, stop)
            yield [Slice(space, start, end)]
            start, size = end, min(2 * size, MOST_AT_ONCE)


def asked(slices: Sequence[Slice], known: dict[int, str]) -> str:
    """A hash of everything that decides the rows of the slices. ``known`` are the hashes of spaces by their identity."""
    told = [(_space(each.space, known), each.start, each.stop) for each in slices]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


NOT_ASKED = ("study", "engine", "resume", "resume_anyway", "fail_fast", "lang", "grid")
"""Keys of a config that change where and how a study is made, but no row of it."""


def _space(space: Space, known: dict[int, str]) -> str:
    if id(space) not in known:
        told = {field.name: getattr(space, field.name) for field in dataclasses.fields(space)}
        told["base"] = {key: value for key, value in space.base.items() if key not in NOT_ASKED}
        text = json.dumps(told, sort_keys=True, default=lambda axis: {"keys": axis.keys, "values": axis.values})
        known[id(space)] = hashlib.sha256(text.encode()).hexdigest()
    return known[id(space)]


NOISY = ("makespan_s", "bubble_fraction", "bubble_overhead")
"""Columns that a run simulates with its own measured seconds; they stand among the measured ones."""


def _run(slices: Sequence[Slice], point_id: str) -> tuple[pa.Table, Mapping[str, Any]]:
    """Really runs the one point of a part."""
    ((space, start, _),) = slices
    config = space.config(start)
    measured: Mapping[str, Any] = {}
    try:
        done = tasks.run(config)
        (row,), measured = done.rows, done.measured
    except Invalid as error:
        row = _known(config) | {"status": "invalid", "reason": " ".join(error.problems)}
    except Exception as error:
        log.exception("point %s failed", point_id[:16])
        reason = "".join(traceback.format_exception_only(error)).strip()
        row = _known(config) | {"status": "failed", "reason": reason}
    row = {name: value for name, value in row.items() if name not in NOISY}
    return schema.table([row | {"point_id": point_id[:16], "case": tasks.chosen(config)}]), measured


def _known(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a run without running it."""
    conf = config["task"]["execute"]
    names = ("schedule", "t", "p", "d", "v", "zero", "sequence_parallel", "micro_batch")
    return {name: conf[name] for name in names}


@contextmanager
def _logged() -> Iterator[io.StringIO]:
    """What is logged of failures inside, with tracebacks and without times."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.ERROR)
    logger = logging.getLogger("pipesim")
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield text
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
