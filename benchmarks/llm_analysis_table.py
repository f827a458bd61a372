"""Writes what llm-analysis says of the packaged rows, which every validation shows. Needs ``pip install pipesim[peers]``."""

from __future__ import annotations

from pathlib import Path

from pipesim.calibrate import peers
from pipesim.calibrate.tables import DATA, TABLES, catalog, packaged


def main() -> None:
    rows = [each for table in TABLES for each in packaged(table, catalog())]
    target = Path(str(DATA / peers.TABLE))
    target.write_bytes(peers.table(rows))
    print(target)


if __name__ == "__main__":
    main()
