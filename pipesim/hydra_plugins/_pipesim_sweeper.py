"""The work of the sweeper: overrides become axes, axes become configs, configs one study."""

from __future__ import annotations

from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, RangeSweep
from omegaconf import DictConfig

from pipesim import compose, study
from pipesim.checks import Invalid
from pipesim.expand import overlap


def sweep(loader: ConfigLoader, master: DictConfig, params: dict[str, Any], arguments: list[str]) -> None:
    """``params`` are axes from the config, ``arguments`` the overrides as typed; the latter win."""

    def load(overrides: list[str]) -> DictConfig:
        composition = loader.load_sweep_config(master, overrides)
        if composition.hydra.sweeper != master.hydra.sweeper:
            raise Invalid(["experiment: one that brings axes of its own cannot be swept; run it alone, without -m."])
        return composition

    typed = [f"{key}={value}" for key, value in params.items()] + arguments
    fixed, axes = _split(OverridesParser.create(config_loader=loader), typed)
    spaces = compose.expand(load, loader, fixed, axes)
    compose.refuse_swept_grid(spaces)
    study.run(spaces, overrides=typed, swept=True)


def _split(parser: OverridesParser, typed: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Overrides with one value, and the values of the others by key; the last of several for one key counts.

    One value that lies in an earlier axis' value, or it in this, is an axis too, so that it is set after it.
    """
    last = {override.get_key_element(): override for override in parser.parse_overrides(typed)}
    fixed: list[str] = []
    axes: dict[str, list[str]] = {}
    for key, override in last.items():
        if override.is_discrete_sweep():
            if isinstance(sweep := override.value(), ChoiceSweep | RangeSweep):
                sweep.shuffle = False  # rows are sorted
            axes[key] = list(override.sweep_string_iterator())
        elif override.is_sweep_override():
            raise Invalid([f"{override.input_line}: an interval is no list of points; give a,b,c or range(...)."])
        elif not override.is_delete() and any(overlap(key, axis) for axis in axes):
            axes[key] = [override.get_value_element_as_str()]
        else:
            fixed.append(str(override.input_line))
    return fixed, axes
