"""How the benchmarks time: processor seconds of the one thread that works, best and median of several runs.

Processor time leaves out that the thread waits for a core on a shared machine, not that others fill the caches.
"""

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
        start_s = time.thread_time()
        function()
        seconds.append(time.thread_time() - start_s)
    return min(seconds), statistics.median(seconds)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
