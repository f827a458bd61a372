"""Composes configs through Hydra, expands the axes of a sweep, and keeps what Hydra's jobs asked for."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
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
from pipesim.checks import Invalid
from pipesim.schedules import canonical_name

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


TEXTS = ("study.dir", "study.name", "schedule.path", "measurements", "resume", "engine.folder")
"""Keys whose values are free text, such as paths, which Hydra's grammar would take apart."""


def with_quoted_texts(words: Sequence[str]) -> list[str]:
    """Command-line words in which paths and names need no quotes of their own; a list stays one."""
    pairs = [word.partition("=") for word in words]
    return [
        f"{key}={typed(value)}" if key in TEXTS and not _reads_as_it_is(value) else word
        for word, (key, _, value) in zip(words, pairs, strict=True)
    ]


def _reads_as_it_is(value: str) -> bool:
    """Hydra takes it whole, or its author has used Hydra's grammar: quotes, a list, a reference."""
    return bool(re.fullmatch(r"[\w./:+-]*", value, re.ASCII) or re.search(r"[,'\"\[{$]", value))


def with_canonical_schedules(words: Sequence[str]) -> list[str]:
    """Command-line words in which ``schedule=vpp,zb1p`` names its files: interleaved_1f1b, zb_h1."""
    return [
        "schedule=" + ",".join(canonical_name(name) or name for name in word.removeprefix("schedule=").split(","))
        if word.startswith("schedule=")
        else word
        for word in words
    ]


def expand(
    compose: Compose, loader: ConfigLoader, fixed: Sequence[str], axes: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """The plain config of every combination of ``axes`` (key -> values as they are typed on a command line).

    Composes once for each combination of group choices, checks each value of a plain key there once against the schema,
    and sets it in a copy; the result is what Hydra would compose for that job.
    """
    values = {key: texts for key, texts in axes.items() if not any(_is_composed(key, text, loader) for text in texts)}
    composed = {key: texts for key, texts in axes.items() if key not in values}
    for choices in itertools.product(*([f"{key}={text}" for text in texts] for key, texts in composed.items())):
        composition = compose([*fixed, *choices])
        config.refuse_unknown(composition)
        if _has_interpolation(composition):  # a value may follow another: nothing can be set without resolving anew
            for settings in itertools.product(*([f"{key}={text}" for text in texts] for key, texts in values.items())):
                yield config.plain(compose([*fixed, *choices, *settings]))
            continue
        checked = [
            [(key.split("."), _checked(composition, key, text)) for text in texts] for key, texts in values.items()
        ]
        base = config.plain(composition)
        for changes in itertools.product(*checked):
            yield functools.reduce(lambda changed, change: _with(changed, *change), changes, base)


def _is_composed(key: str, text: str, loader: ConfigLoader) -> bool:
    """Whether this needs composing anew: a group's choice, an added or deleted key, Hydra's own, a mapping, a reference."""
    plain_key = all(part.isidentifier() for part in key.split("."))
    return (
        not plain_key
        or key.split(".")[0] == "hydra"
        or any(sign in text for sign in ("{", "???"))
        or bool(loader.get_group_options(key))
    )


def _has_interpolation(composition: DictConfig) -> bool:
    own = {key: value for key, value in OmegaConf.to_container(composition).items() if key != "hydra"}  # type: ignore[union-attr]
    return "${" in json.dumps(own, default=str)


def _checked(composition: DictConfig, key: str, text: str) -> Any:
    """The value as the schema takes it: parsed by Hydra, converted and refused by OmegaConf."""
    OmegaConf.update(composition, key, OverridesParser.create().parse_override(f"{key}={text}").value())
    value = OmegaConf.select(composition, key)
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _with(config: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy that differs at ``path`` and shares everything else."""
    first, *rest = path
    return {**config, first: _with(config[first], rest, value) if rest else value}


def record(composition: DictConfig) -> None:
    """A Hydra job's whole work: leaves its config, or those of its grid, for ``recorded``. Jobs may be other processes."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    job = HydraConfig.get()
    overrides = OmegaConf.to_container(job.overrides.task, resolve=False)  # as typed: they may hold ${...}
    assert isinstance(overrides, list)
    swept = job.mode == RunMode.MULTIRUN
    number = job.job.num if swept else 0
    try:
        config.refuse_unknown(composition)
        configs = [config.plain(composition)]
        if configs[0]["grid"] is not None and configs[0]["demo"] is not None:
            raise Invalid(["demo and grid are both given: a demo has cases of its own. Leave one out."])
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
    overrides = jobs[0].overrides if len(jobs) == 1 else _together([job.overrides for job in jobs])
    return Asked(configs, overrides, jobs[0].swept)


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
    """A value as one types it in an override; text in quotes where Hydra would read something else."""
    if isinstance(value, list | tuple):
        return f"[{','.join(typed(each) for each in value)}]"
    if not isinstance(value, str):
        return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    if re.fullmatch(
        r"(?!true$|false$|null$|nan$|inf$)[A-Za-z_][\w.-]*|\d+[A-Za-z]\d+[A-Za-z]", value, re.ASCII | re.IGNORECASE
    ):
        return value
    return "'" + re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), value) + "'"
