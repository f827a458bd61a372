"""Claim: a first schedule and its simulation take under 6 processor seconds, compiling; a second process is warm."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

PROGRAM = """
import time
start_s = time.process_time()
from pipesim.schedules import make_schedule
from pipesim.simulate import simulate
imported_s = time.process_time()
schedule = make_schedule("1f1b", p=12, m=128)
made_s = time.process_time()
simulate(schedule)
simulated_s = time.process_time()
print(f"import {imported_s - start_s:.2f} s, make {made_s - imported_s:.2f} s, simulate {simulated_s - made_s:.2f} s, "
      f"together {simulated_s - start_s:.2f} s")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        for turn in ("cold", "warm"):
            print(turn, end=": ", flush=True)
            subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "NUMBA_CACHE_DIR": cache}, check=True)


if __name__ == "__main__":
    main()
