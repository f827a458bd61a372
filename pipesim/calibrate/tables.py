"""The packaged tables of published runs, and what their rows' names are looked up in."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from pipesim import config
from pipesim.calibrate.rows import Catalog, Measurement, read

DATA = resources.files(__package__) / "data"

TABLES = ("calibration", "dev")
"""Constants are fitted to the first alone; the second was looked at while formulas were corrected."""


def catalog() -> Catalog:
    """Our clusters, stacks and full costs."""
    return Catalog(
        clusters=config.library("cluster"), stacks=config.library("stack"), costs=config.library("costs")["full"]
    )


def packaged(name: str, known: Catalog) -> list[Measurement]:
    """The rows of one of ``TABLES``."""
    with resources.as_file(DATA / f"{name}.csv.gz") as path:
        return read(Path(path), known)
