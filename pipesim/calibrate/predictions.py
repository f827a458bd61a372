"""``predictions.parquet``: every measured row by ``id``, beside what is predicted of it."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipesim.calibrate import classes
from pipesim.calibrate.bands import Band
from pipesim.calibrate.regret import question
from pipesim.calibrate.rows import Measurement
from pipesim.calibrate.validate import ENDS, Validation
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS

FILE = "predictions.parquet"

_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()

COLUMNS: dict[str, pa.DataType] = {
    "id": _TEXT, "source": _TEXT, "role": _TEXT, "stack": _TEXT, "status": _TEXT, "reason": _TEXT, "note": _TEXT,
    "grade": _TEXT, "outcome": _TEXT, "scored": _FLAG, "kept": _FLAG, "question": _TEXT,
    **dict.fromkeys(classes.CLASSES, _TEXT),
    "gpus": _INT, "t": _INT, "p": _INT, "d": _INT, "c": _INT, "v": _INT, "micro_batch": _INT, "attention": _TEXT,
    "measured_step_time_s": _REAL, "step_time_s": _REAL, "step_time_lo_s": _REAL, "step_time_hi_s": _REAL,
    "step_time_error": _REAL, "scanned": _TEXT, "band_lo_s": _REAL, "band_hi_s": _REAL,
    "measured_memory_bytes": _REAL, "memory_kind": _TEXT, "memory_rank": _TEXT, "memory_bytes": _REAL, "memory_lo_bytes": _REAL,
    "memory_hi_bytes": _REAL, "memory_error": _REAL, "memory_limit_bytes": _REAL, "fits": _FLAG,
    **{f"{item}_s": _REAL for item in TIME_ITEMS},
    **{f"{item}_bytes": _REAL for item in MEMORY_ITEMS},
}  # fmt: skip
"""``status`` is ok, infeasible (does not fit) or invalid (no prediction; ``reason`` says why). Errors are predicted /
measured - 1; ``question`` is what comparable runs share, ``scored`` whether the main tables count the row, ``kept``
whether the rule against stalls keeps it. ``memory_bytes`` and its items are of ``memory_rank``, the rank whose memory the
source prints; ``fits`` is about the heaviest. From ``band_lo_s`` to ``band_hi_s`` go the legal values of inferred fields,
``scanned``."""

SCHEMA = pa.schema(list(COLUMNS.items()))

Row = dict[str, Any]


def rows(validation: Validation, bands: Sequence[Band] = ()) -> list[Row]:
    """In the order of the tables; what is not known is None."""
    scored, ends = validation.timed, {each.row: _band(each) for each in bands}
    each = ((i, _row(validation, i)) for i in range(len(validation.measurements)))
    return [row | {"scored": bool(scored[i])} | ends.get(i, {}) for i, row in each]


def _band(band: Band) -> Row:
    return {"scanned": ", ".join(band.fields), "band_lo_s": band.low_s, "band_hi_s": band.high_s}


def parquet(rows: list[Row]) -> bytes:
    """The file's content."""
    table = pa.table({name: [row.get(name) for row in rows] for name in COLUMNS}, schema=SCHEMA)
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", store_schema=False)
    return out.getvalue()


def _row(validation: Validation, i: int) -> Row:
    each, predicted = validation.measurements[i], validation.predicted
    time_s, memory, most = (each[i] for each in (predicted.step_time_s, predicted.memory_bytes, predicted.most_bytes))
    ends = {name: _real(getattr(validation, name)[i]) for name in ENDS}
    problem, limit = validation.problems[i], validation.capacity_bytes[i]
    return {
        "id": each.id,
        "source": each.source,
        "role": validation.roles[i],
        "stack": each.point.stack.name if each.point else each.stack,
        "status": "invalid" if problem else "ok" if most <= limit else "infeasible",
        "reason": problem or None,
        "note": validation.notes[i] or None,
        "grade": each.grade,
        "outcome": each.outcome,
        "kept": None if problem else classes.kept(each),
        "question": None if problem else " | ".join(filter(None, question(each))),
        **classes.classes(each),
        **_layout(each),
        "measured_step_time_s": each.step_time_s,
        "step_time_s": _real(time_s),
        "step_time_error": _real(time_s / validation.measured_s[i] - 1),
        "measured_memory_bytes": each.memory_bytes,
        "memory_kind": classes.memory_kind(each) if each.memory_bytes else None,
        "memory_rank": None if problem else "first" if classes.prints_first_rank(each) else "heaviest",
        "memory_bytes": _real(memory),
        "memory_error": _real(memory / validation.measured_bytes[i] - 1),
        "memory_limit_bytes": _real(limit),
        "fits": None if problem else bool(most <= limit),
        **ends,
        **{f"{item}_s": _real(values[i]) for item, values in predicted.seconds.items()},
        **{f"{item}_bytes": _real(values[i]) for item, values in predicted.bytes.items()},
    }


def _layout(measurement: Measurement) -> Row:
    point = measurement.point
    if point is None:
        return {}
    layout, training = point.layout, point.training
    degrees = {"t": layout.t, "p": layout.p, "d": layout.d, "c": layout.c, "v": layout.v}
    return degrees | {"gpus": point.cluster.gpus, "micro_batch": training.micro_batch, "attention": training.attention}


def _real(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
