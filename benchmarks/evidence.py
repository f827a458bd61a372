"""Counts the measured runs behind the constants of each stack, and writes what reports say of them.

Run it after any change to a constant or a formula: a test compares.
"""

from __future__ import annotations

from pathlib import Path

from pipesim.calibrate import evidence
from pipesim.calibrate.tables import DATA, TABLES, catalog, packaged
from pipesim.calibrate.validate import validate


def main() -> None:
    known = catalog()
    found = evidence.lines(validate([(name, packaged(name, known)) for name in TABLES]))
    target = Path(str(DATA / evidence.EVIDENCE))
    target.write_text(evidence.dump(found), encoding="utf-8")
    print(target.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
