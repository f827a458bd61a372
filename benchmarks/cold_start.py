"""Claim: the first command compiles in seconds, the second process finds it on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import time
start_s = time.perf_counter()
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate
imported_s = time.perf_counter()
schedule = make_schedule("1f1b", p=4, m=8)
made_s = time.perf_counter()
simulate(schedule)
simulated_s = time.perf_counter()
print(f"import {imported_s - start_s:.2f} s, make {made_s - imported_s:.2f} s, simulate {simulated_s - made_s:.2f} s")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        for turn in ("cold", "warm"):
            print(turn, end=": ", flush=True)
            subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "NUMBA_CACHE_DIR": cache}, check=True)


if __name__ == "__main__":
    main()
