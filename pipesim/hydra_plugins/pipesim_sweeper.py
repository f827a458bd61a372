"""Hydra's ``-m`` as one study: the sweeper that ``conf/config.yaml`` chooses.

Hydra executes this file at every start without entering it into ``sys.modules``, so annotations must be real objects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class PipesimSweeperConf:
    """``params`` are axes of its own, as Hydra's basic sweeper has them: key -> "1,2,4"."""

    _target_: str = "hydra_plugins.pipesim_sweeper.PipesimSweeper"
    params: dict[str, Any] | None = None


ConfigStore.instance().store(group="hydra/sweeper", name="pipesim", node=PipesimSweeperConf, provider="pipesim")


class PipesimSweeper(Sweeper):
    """Composes once per combination of group choices and evaluates all points in this process as one batch."""

    def __init__(self, params: dict[str, Any] | None) -> None:
        self.params = dict(params or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.context, self.master = hydra_context, config

    def sweep(self, arguments: Sequence[str]) -> None:
        from hydra_plugins import _pipesim_sweeper

        _pipesim_sweeper.sweep(self.context.config_loader, self.master, self.params, list(arguments))
