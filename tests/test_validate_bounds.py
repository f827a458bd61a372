"""Figures of the validation never get worse than ``published/bounds.yaml`` says; ``benchmarks/bounds.py`` writes it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from measured_rows import packaged
from omegaconf import OmegaConf

from pipesim.calibrate import summary

BOUNDS = {
    (source, name): float(bound)
    for source, figures in OmegaConf.load(Path(__file__).parent / "published" / "bounds.yaml").items()
    for name, bound in figures.items()
}


@functools.cache
def figures() -> dict[str, dict[str, float]]:
    return summary.figures(packaged())


@pytest.mark.slow
@pytest.mark.parametrize(("source", "name"), BOUNDS)
def test_no_figure_is_worse_than_its_bound(source: str, name: str) -> None:
    assert figures()[source][name] <= BOUNDS[source, name]


@pytest.mark.slow
def test_every_figure_has_a_bound() -> None:
    assert {(source, name) for source, each in figures().items() for name in each} == set(BOUNDS)
