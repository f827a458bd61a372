"""Writes the bounds that validation figures must keep: what this version reaches, and a margin.

Look at the difference before committing it: a bound that rises is a figure that got worse.
"""

from __future__ import annotations

import math
from pathlib import Path

from pipesim.calibrate import summary
from pipesim.calibrate.tables import TABLES, catalog, packaged
from pipesim.calibrate.validate import validate

TARGET = Path(__file__).parents[1] / "tests" / "published" / "bounds.yaml"
MARGIN, LEAST = 0.05, 0.002
HEAD = """\
# What the validation's figures may be at most, as fractions, by source; written by benchmarks/bounds.py.
# step_time: mean error; step_time_scaled: after one factor; regret: mean; memory: mean error; oom: 1 less the balanced
# accuracy; oom_far: the same without rows predicted within 10 % of the capacity.
"""


def main() -> None:
    known = catalog()
    figures = summary.figures(validate([(name, packaged(name, known)) for name in TABLES]))
    lines = [HEAD]
    for source, values in sorted(figures.items()):
        lines.append(f'"{source}":\n')
        lines += [f"  {name}: {bound(value):.3f}\n" for name, value in sorted(values.items())]
    TARGET.write_text("".join(lines), encoding="utf-8")
    print(TARGET)


def bound(value: float) -> float:
    """The value with its margin, rounded up to a thousandth."""
    return math.ceil(1000 * max(value * (1 + MARGIN), value + LEAST)) / 1000


if __name__ == "__main__":
    main()
