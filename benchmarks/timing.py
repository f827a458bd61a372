"""How the benchmarks time: the best and the median of several runs on one core, and how busy the machine was."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable


def time_s(function: Callable[[], object], *, runs: int = 30) -> tuple[float, float]:
    """Seconds of the best run and of the median one; one run before them is not counted."""
    function()
    seconds = []
    for _ in range(runs):
        start_s = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start_s)
    return min(seconds), statistics.median(seconds)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
