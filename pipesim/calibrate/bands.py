"""What rows that leave a key field to be inferred could have taken: a band over the field's legal values.

A row's grade names the fields that its source does not state (``C:micro_batch,recompute``). Each that is a choice of
layout is given its other legal values, one field at a time, the others as inferred; layouts that are predicted not to fit
are left out, for the run ran. Shapes, lengths and precisions are not scanned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesim.calibrate import rows
from pipesim.calibrate.predict import Predicted
from pipesim.calibrate.rows import Catalog, Measurement
from pipesim.calibrate.validate import Validation, validate

POWERS = ("1", "2", "4", "8", "16")
SCANNED: dict[str, tuple[str, ...]] = {
    "tp": POWERS[:4],
    "pp": POWERS,
    "vpp": ("1", "2", "3", "4", "5", "6", "8", "10", "12", "16", "20"),
    "micro_batch": POWERS,
    "recompute": ("none", "selective", "full"),
    "sp": ("false", "true"),
}
"""Columns that are scanned and their values; of these the legal ones count."""

SELECTIVE_AFTER = 2022
"""Runs of this year and before had neither selective recomputation nor sequence parallelism, or their source states them:
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", is of May 2022."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Of one row: step times predicted over all values of its inferred fields, the inferred ones among them."""

    row: int
    """Its place in the validation."""
    fields: tuple[str, ...]
    """Those that were scanned."""
    layouts: int
    """Different ones that are legal and fit."""
    low_s: float
    high_s: float
    nearest_s: float
    """The prediction that lies nearest to what was measured."""
    inside: bool
    """Whether what was measured lies between the ends."""
    inside_intervals: bool
    """Likewise, with the ends' 90 % intervals."""


def bands(validation: Validation, catalog: Catalog) -> list[Band]:
    """Of every row with a measured time whose source leaves such a field out, in the order of the tables."""
    usable = validation.known & np.isfinite(validation.measured_s) & validation.which(lambda each: each.outcome == "ok")
    asked = [(int(i), list(_others(validation.measurements[i], catalog))) for i in np.flatnonzero(usable)]
    tried = validate([("tried", [other for _, others in asked for other in others])])
    fits = tried.known & (tried.predicted.most_bytes <= tried.capacity_bytes)
    found, start = [], 0
    for i, others in asked:
        mine = slice(start, start + len(others))
        start += len(others)
        if others:
            found.append(_band(validation, i, tried.predicted, np.flatnonzero(fits[mine]) + mine.start))
    return found


def fields(measurement: Measurement) -> tuple[str, ...]:
    """Columns of ``SCANNED`` that the row's source leaves out, by its grade; those that go with a cut too, if inferred."""
    grade, _, named = measurement.grade.partition(":")
    if grade not in ("C", "missing"):
        return ()
    inferred = {pair.partition("=")[0] for pair in measurement.cells["inferred"].split(";")} & {"vpp", "sp"}
    return tuple(name for name in SCANNED if name in {*named.split(","), *inferred} and _existed(measurement, name))


def _existed(measurement: Measurement, field_or_value: str) -> bool:
    return field_or_value not in ("sp", "selective") or float(measurement.cells["year"] or "inf") > SELECTIVE_AFTER


def _others(measurement: Measurement, catalog: Catalog) -> Iterator[Measurement]:
    """The row with one inferred field changed to another legal value; layouts that come to the same are there once."""
    seen = [measurement.point]
    for name in fields(measurement):
        for value in SCANNED[name]:
            if _existed(measurement, value):
                other = rows.measurement({**measurement.cells, name: value}, catalog)
                if other.point is not None and other.point not in seen:
                    seen.append(other.point)
                    yield other


def _band(validation: Validation, row: int, tried: Predicted, others: np.typing.NDArray[np.intp]) -> Band:
    measured_s, inferred_s = validation.measured_s[row], validation.predicted.step_time_s[row]
    found = np.append(tried.step_time_s[others], inferred_s)
    low_s, high_s, wide = found.min(), found.max(), validation.step_time_hi_s[row] / inferred_s
    return Band(
        row=row,
        fields=fields(validation.measurements[row]),
        layouts=len(found),
        low_s=float(low_s),
        high_s=float(high_s),
        nearest_s=float(found[np.argmin(np.abs(np.log(found / measured_s)))]),
        inside=bool(low_s <= measured_s <= high_s),
        inside_intervals=bool(low_s / wide <= measured_s <= high_s * wide),
    )
