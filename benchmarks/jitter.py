"""Claim: 10 million actions a second are drawn and walked on one core, p=16, m=256; memory is that of 32 steps."""

from __future__ import annotations

from timing import load, time_s

from pipesim.schedules import make_schedule
from pipesim.simulate.jitter import LANES, WORK, Chance, makespans_s

LIMIT_PER_S = 1e7
SAMPLES = 320
CHANCE = Chance(spread=0.05, hop_spread=0.2)


def main() -> None:
    print(f"p=16, m=256, {SAMPLES} steps; limit {LIMIT_PER_S:.0e} actions a second; {load()}")
    for name in ("1f1b", "interleaved_1f1b", "zb_h1", "zbv", "dualpipe"):
        schedule = make_schedule(name, p=16, m=256)

        def draw() -> None:
            makespans_s(schedule, 1.0, 1.0, 1.0, 0.1, chance=CHANCE, samples=SAMPLES, seed=0)  # noqa: B023

        draw()
        best_s, median_s = time_s(draw, runs=3)
        actions = len(WORK) * schedule.stages * schedule.m
        rate, verdict = SAMPLES * actions / best_s, "met" if SAMPLES * actions / best_s >= LIMIT_PER_S else "missed"
        print(
            f"{name:17} {actions:6} actions: best {best_s:.3f} s, median {median_s:.3f} s, {rate / 1e6:.0f} million actions "
            f"and {SAMPLES / best_s:.0f} steps a second, {LANES * actions * 8 / 1e6:.0f} MB of draws, {verdict}"
        )


if __name__ == "__main__":
    main()
