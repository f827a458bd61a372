"""Measures the terms of the 90 % intervals and how layouts' errors differ on the calibration table, and writes both where
estimates read them.

Run it after any change to a constant or a formula: a test compares.
"""

from __future__ import annotations

from pathlib import Path

from pipesim.calibrate import contrasts, intervals, residuals
from pipesim.calibrate.tables import DATA, catalog, packaged


def main() -> None:
    known = catalog()
    rows = packaged("calibration", known)
    texts = {
        intervals.INTERVALS: intervals.dump(residuals.measured(rows, known.stacks)),
        contrasts.CONTRASTS: contrasts.dump(contrasts.measured(contrasts.questions(rows))),
    }
    for name, text in texts.items():
        Path(str(DATA / name)).write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    main()
