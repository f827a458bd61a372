"""The work of the sweeper: overrides become axes, axes become configs, configs one study."""

from __future__ import annotations

from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from pipesim import compose, study
from pipesim.checks import Invalid
from pipesim.plan.space import Space


def sweep(loader: ConfigLoader, master: DictConfig, params: dict[str, Any], arguments: list[str]) -> None:
    """``params`` are axes from the config, ``arguments`` the overrides as typed; the latter win."""

    def load(overrides: list[str]) -> DictConfig:
        composition = loader.load_sweep_config(master, overrides)
        if composition.hydra.sweeper != master.hydra.sweeper:
            raise Invalid(["experiment: one that brings axes of its own cannot be swept; run it alone, without -m."])
        return composition

    typed = [f"{key}={value}" for key, value in params.items()] + arguments
    fixed, axes = _split(OverridesParser.create(config_loader=loader), typed)
    configs = list(compose.expand(load, loader, fixed, axes))
    compose.refuse_swept_grid(configs)
    study.run([Space(base=each) for each in configs], overrides=typed, swept=True)


def _split(parser: OverridesParser, typed: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Overrides with one value, and the values of the others by key; the last of several for one key counts."""
    fixed: dict[str, str] = {}
    axes: dict[str, list[str]] = {}
    for override in parser.parse_overrides(typed):
        key = override.get_key_element()
        fixed.pop(key, None)
        axes.pop(key, None)
        if not override.is_sweep_override():
            fixed[key] = str(override.input_line)
        elif override.is_discrete_sweep():
            axes[key] = list(override.sweep_string_iterator())
        else:
            raise Invalid([f"{override.input_line}: an interval is no list of points; give a,b,c or range(...)."])
    return list(fixed.values()), axes
