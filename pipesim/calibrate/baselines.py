"""What a formula with one constant reaches: model FLOPs over a constant MFU, blind to the layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipesim.costs.columns import FloatArray


def constant_mfu(peak_s: FloatArray, measured_s: FloatArray) -> float:
    """The MFU that fits best: median of ``peak_s`` (seconds of the model's FLOPs at peak) over what was measured."""
    return float(np.median(peak_s / measured_s)) if len(measured_s) else math.nan


def pooled_mfu(peak_s: FloatArray, measured_s: FloatArray, sources: Sequence[str]) -> float:
    """One MFU for all: the geometric mean of those that fit each source, so that large sources do not decide alone."""
    names = np.array(sources)
    each = [constant_mfu(peak_s[names == name], measured_s[names == name]) for name in sorted(set(sources))]
    return float(np.exp(np.mean(np.log(each)))) if each else math.nan
