"""Claim: a core evaluates at least 100,000 layouts a second, whole rows, once it has met their schedules.

Beside it, in the same run: the same rows asked one by one, llm-analysis where it is installed (extra ``peers``), and how
fast this machine copies as many numbers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import load, time_s

from pipesim import compose, config, legality
from pipesim.calibrate import peers
from pipesim.plan import grid
from pipesim.plan.asked.space import PART, Axis, Slice, Space
from pipesim.results import store

WANTED, AIM = 100_000, 300_000
"""Layouts a second and core."""

AXES = {
    "training.recompute": ["none", "selective", "full"], "parallel.zero": [0, 1, 2, 3],
    "parallel.sequence_parallel": [False, True],
    "parallel.t": [1, 2, 4, 8], "parallel.p": [1, 2, 4, 8, 16], "parallel.d": [1, 2, 4, 8, 16, 32],
    "training.micro_batch": [1, 2, 4, 8], "training.global_batch": [128 * n for n in range(1, 33)],
    "training.seq_length": [2048, 4096, 8192],
}  # fmt: skip
SCHEDULES = ("1f1b", "gpipe", "interleaved_1f1b")
ONE_BY_ONE = 100


def space(schedule: str) -> Space:
    words = ["model=llama3_70b", "cluster=dgx_h100", "cluster.gpus=4096", "parallel=megatron", "training=megatron"]
    with compose.composer() as (make, _):
        base = config.plain(make([*words, f"schedule={schedule}"]))
    return Space(
        base=base, axes=tuple(Axis(keys=(key,), values=tuple((v,) for v in axis)) for key, axis in AXES.items())
    )


def rate(name: str, points: int, function: Callable[[], object], runs: int = 3) -> float:
    best_s, median_s = time_s(function, runs=runs)
    print(
        f"{name:46} {points / best_s:12,.0f} a second (median {points / median_s:,.0f}); {best_s / points * 1e6:.2f} us each"
    )
    return points / best_s


def main() -> None:
    print(load())
    reached: list[float] = []
    for schedule in SCHEDULES:
        asked = space(schedule)
        whole = Slice(asked, 0, PART)
        begun_s = time.thread_time()
        table = grid.evaluate([whole], details=False)
        first_s = time.thread_time() - begun_s
        print(f"\n{schedule}: {PART:,} of {len(asked):,} combinations; the first time {first_s:.1f} s")
        reached.append(rate("whole rows, as columns", PART, lambda: grid.evaluate([whole], details=False)))  # noqa: B023
        print(f"{'':46} wanted {WANTED:,}: {'met' if reached[-1] >= WANTED else 'missed'}; aim {AIM:,}")
    with tempfile.TemporaryDirectory() as folder:

        def write() -> None:
            with store.Writer(Path(folder), csv=False) as writer:
                writer.add(table)

        rate("writing them as parquet", PART, write)
    chosen = np.random.default_rng(0).choice(PART, ONE_BY_ONE, replace=False).tolist()
    configs = [asked.config(index) for index in chosen]
    rate("the same rows, asked one by one", ONE_BY_ONE, lambda: grid.rows(configs))
    if peers.installed():
        points = []
        for each in configs:
            try:
                points.append(legality.resolve(config.build(each)))
            except ValueError:
                continue
        theirs = rate(
            f"llm-analysis {peers.installed()}, step times alone",
            len(points),
            lambda: [peers.step_time_s(each) for each in points],
        )
        print(f"{'':46} our whole rows are {min(reached) / theirs:.0f} to {max(reached) / theirs:.0f} times as fast")
    else:
        print("left out: llm-analysis, which is not installed; pip install 'pipesim[peers]'")
    numbers = np.ones((PART, table.num_columns))
    copy = np.empty_like(numbers)
    rate(f"copying {table.num_columns} numbers a row", PART, lambda: np.copyto(copy, numbers))


if __name__ == "__main__":
    main()
