"""Composes configs through Hydra, expands the axes of a sweep, and keeps what Hydra's jobs asked for."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipesim import config, errors
from pipesim.specs import Invalid

VERSION_BASE = "1.3"
JOBS_VARIABLE = "PIPESIM_JOBS"
"""The environment variable with the folder in which jobs leave what they were asked; ``conf/config.yaml`` reads it."""

Compose = Callable[[list[str]], DictConfig]


class Asked(NamedTuple):
    """What Hydra's jobs were asked, in their order: plain configs, and the overrides as typed."""

    configs: list[dict[str, Any]]
    overrides: list[str]
    swept: bool


@contextmanager
def composer() -> Iterator[tuple[Compose, ConfigLoader]]:
    """Hydra outside its command line: ``compose(overrides)`` gives what ``run.py`` would get."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    config.register_schema()
    with initialize_config_dir(config_dir=str(config.CONF_DIR), version_base=VERSION_BASE):
        yield lambda overrides: compose("config", overrides), GlobalHydra.instance().config_loader()


def expand(
    compose: Compose, loader: ConfigLoader, fixed: Sequence[str], axes: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """The plain config of every combination of ``axes`` (key -> values as they are typed on a command line).

    Composes once for each combination of group choices and sets plain values in place, with Hydra's own parser and type
    checks, so that the result is what Hydra would compose for that job.
    """
    composed = {key: texts for key, texts in axes.items() if _is_composed(key, loader)}
    parser = OverridesParser.create()
    values = {
        key: [parser.parse_override(f"{key}={text}").value() for text in texts]
        for key, texts in axes.items()
        if key not in composed
    }
    for choices in itertools.product(*([f"{key}={text}" for text in texts] for key, texts in composed.items())):
        composition = compose([*fixed, *choices])
        config.refuse_unknown(composition)
        for settings in itertools.product(*values.values()):
            for key, value in zip(values, settings, strict=True):
                OmegaConf.update(composition, key, value)
            yield config.plain(composition)


def record(composition: DictConfig) -> None:
    """A Hydra job's whole work: leaves its config, or those of its grid, for ``recorded``. Jobs may be other processes."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    job = HydraConfig.get()
    overrides, swept = list(job.overrides.task), job.mode == RunMode.MULTIRUN
    number = job.job.num if swept else 0
    try:
        config.refuse_unknown(composition)
        configs = [config.plain(composition)]
        if configs[0]["grid"] is not None:
            refuse_swept_grid(configs if swept else [])
            configs, swept = list(_grid(configs[0]["grid"]["axes"], overrides)), True
        content: dict[str, Any] = Asked(configs, overrides, swept)._asdict()
    except (Invalid, OmegaConfBaseException, HydraException) as error:
        content = {"problems": [errors.explain(error)]}
    (Path(os.environ[JOBS_VARIABLE]) / f"{number:09d}.json").write_text(json.dumps(content), encoding="utf-8")


def refuse_swept_grid(configs: Sequence[Mapping[str, Any]]) -> None:
    if any(each["grid"] is not None for each in configs):
        raise Invalid(["grid: it brings axes of its own and cannot be swept; run it without -m."])


def recorded(folder: Path) -> Asked | None:
    """What all jobs were asked, as one; ``None`` if there were none (our own sweeper needs no jobs).

    Raises ``Invalid`` with what was wrong with any of them.
    """
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    if not contents:
        return None
    if problems := [problem for content in contents for problem in content.get("problems", [])]:
        raise Invalid(list(dict.fromkeys(problems)))
    jobs = [Asked(**content) for content in contents]
    configs = [asked for job in jobs for asked in job.configs]
    return Asked(configs, _together([job.overrides for job in jobs]), jobs[0].swept)


def _together(jobs: Sequence[Sequence[str]]) -> list[str]:
    """The overrides of a sweep from those of its jobs: every value of a key once, in order of appearance."""
    values: dict[str, dict[str, None]] = {}
    for key, _, value in (override.partition("=") for job in jobs for override in job):
        values.setdefault(key, {})[value] = None
    return [f"{key}={','.join(each)}" for key, each in values.items()]


def _grid(axes: Mapping[str, Sequence[Any]], overrides: list[str]) -> Iterator[dict[str, Any]]:
    from hydra import compose
    from hydra.core.global_hydra import GlobalHydra

    texts = {key: [typed(value) for value in values] for key, values in axes.items()}
    loader = GlobalHydra.instance().config_loader()
    return expand(lambda more: compose("config", more), loader, overrides, texts)


def typed(value: Any) -> str:
    """A value as one types it in an override."""
    if isinstance(value, list | tuple):
        return f"[{','.join(typed(each) for each in value)}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _is_composed(key: str, loader: ConfigLoader) -> bool:
    """Whether a new value of this key needs composing anew: a group's choice, an added or deleted key, Hydra's own."""
    plain_key = all(part.isidentifier() for part in key.split("."))
    return not plain_key or key.split(".")[0] == "hydra" or bool(loader.get_group_options(key))
