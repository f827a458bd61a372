"""Measures the terms of the 90 % intervals on the calibration table and writes them where estimates read them.

Run it after any change to a constant or a formula: a test compares.
"""

from __future__ import annotations

from pathlib import Path

from pipesim.calibrate import intervals, residuals
from pipesim.calibrate.tables import DATA, catalog, packaged


def main() -> None:
    known = catalog()
    measured = residuals.measured(packaged("calibration", known), known.stacks)
    target = Path(str(DATA / intervals.INTERVALS))
    target.write_text(intervals.dump(measured), encoding="utf-8")
    print(target.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
