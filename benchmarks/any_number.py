"""Claim: the cost does not grow with m; p=64, m=1,000,000 takes under 50 ms, and says what the full run would say."""

from __future__ import annotations

from timing import load, time_s

from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import figures, simulate

LIMIT_MS = 50
P, MANY = 64, 10**6
CHECK_P, CHECK_M = 8, 512


def main() -> None:
    print(f"figures, p={P}, m={MANY}; limit {LIMIT_MS} ms; {load()}")
    for name in schedule_names():
        best_s, median_s = time_s(lambda: figures(name, p=P, m=MANY), runs=5)  # noqa: B023
        found = figures(name, p=P, m=MANY)
        verdict = "met" if best_s * 1e3 <= LIMIT_MS else "missed"
        exact = (
            figures(name, p=CHECK_P, m=CHECK_M).makespan_s
            == simulate(make_schedule(name, p=CHECK_P, m=CHECK_M)).makespan_s
        )
        times = f"best {best_s * 1e3:6.1f} ms, median {median_s * 1e3:6.1f} ms, {verdict}"
        check = f"p={CHECK_P} m={CHECK_M} equals the full run: {exact}"
        print(f"{name:17} {times}; {found.simulated} run, {found.how}; {check}")


if __name__ == "__main__":
    main()
