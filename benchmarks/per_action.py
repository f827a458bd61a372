"""Claim: at most 25 ns per action, once compiled, for any schedule of at least 100,000 actions.

What is timed is ``simulate``: checking the times, the kernel and the timeline's arrays.
"""

from __future__ import annotations

from timing import load, time_s

from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import simulate

LIMIT_NS = 25.0
P, M = 64, 1024


def main() -> None:
    print(f"simulate, p={P}, m={M}; limit {LIMIT_NS:g} ns per action; {load()}")
    for name in schedule_names():
        schedule = make_schedule(name, p=P, m=M)
        for latency_s in (0.0, 0.1):
            run = lambda: simulate(schedule, latency_s=latency_s)  # noqa: B023, E731 - called within the loop's turn
            best_ns, median_ns = (seconds / len(schedule) * 1e9 for seconds in time_s(run))
            verdict = "met" if best_ns <= LIMIT_NS else "missed"
            sizes = f"{name:17} {len(schedule):7} actions, latency {latency_s}"
            print(f"{sizes}: best {best_ns:5.1f} ns, median {median_ns:5.1f} ns, {verdict}")


if __name__ == "__main__":
    main()
