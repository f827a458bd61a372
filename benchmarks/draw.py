"""Claim: every schedule's SVG is drawn within 1 s for p=16, m=256 and within 5 s for p=64, m=1024.

Beside it, for a few schedules, the text in both widths and the Chrome trace, held to the same limits.
"""

from __future__ import annotations

from collections.abc import Callable

from timing import load, time_s

from pipesim.report.timeline import svg as timeline_svg
from pipesim.report.timeline import text as timeline_text
from pipesim.report.timeline.trace import chrome_trace
from pipesim.schedules import make_schedule, schedule_names
from pipesim.simulate import Timeline, simulate

LIMITS_S = {(16, 256): 1.0, (64, 1024): 5.0}
BESIDE = ("1f1b", "zbv", "dualpipe")

KINDS: dict[str, Callable[[Timeline], str]] = {
    "svg": lambda timeline: timeline_svg.draw(timeline, "benchmark"),
    "narrow text": lambda timeline: timeline_text.draw(timeline, 1.0),
    "wide text": lambda timeline: timeline_text.draw(timeline, 1.0, wide=True),
    "trace": chrome_trace,
}


def main() -> None:
    for (p, m), limit_s in LIMITS_S.items():
        print(f"one picture, p={p}, m={m}; limit {limit_s:g} s; {load()}")
        for kind, draw in KINDS.items():
            for name in schedule_names() if kind == "svg" else BESIDE:
                timeline = simulate(make_schedule(name, p=p, m=m))
                best_s, median_s = time_s(lambda: draw(timeline), runs=3)  # noqa: B023
                size, verdict = len(draw(timeline).encode()) / 1e6, "met" if best_s <= limit_s else "missed"
                print(
                    f"{kind:11} {name:17} {size:6.2f} MB: best {best_s:.3f} s, median {median_s:.3f} s, "
                    f"limit {limit_s:g} s, {verdict}"
                )


if __name__ == "__main__":
    main()
