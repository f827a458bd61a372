"""Claim: a batch of points costs little more than its actions, however many points there are."""

from __future__ import annotations

import numpy as np
from timing import load, time_s

from pipesim.simulate import simulate_many


def main() -> None:
    rng = np.random.default_rng(0)
    print(load())
    for n in (1_000, 10_000, 100_000):
        p, m = rng.choice([2, 4, 8], n), rng.choice([8, 16, 32], n)
        forward_s = rng.random((n, 8))
        best_s, _ = time_s(lambda: simulate_many("1f1b", p=p, m=m, v=1, forward_s=forward_s), runs=3)  # noqa: B023
        actions = int((2 * p * m).sum())
        print(
            f"{n:7} points: {best_s:.3f} s, {best_s / n * 1e6:.1f} us a point, "
            f"{best_s / actions * 1e9:.1f} ns an action"
        )


if __name__ == "__main__":
    main()
