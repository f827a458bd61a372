"""Composes configs through Hydra, and keeps what its jobs asked for as spaces of points."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipesim import config, errors, safe_config
from pipesim.checks import Invalid
from pipesim.expand import Compose
from pipesim.expand import expand as expand
from pipesim.plan.asked import axes as axes_
from pipesim.plan.asked import names
from pipesim.plan.asked.space import Axis, Space
from pipesim.schedules import canonical_name

VERSION_BASE = "1.3"
JOBS_VARIABLE = "PIPESIM_JOBS"
"""The environment variable with the folder in which jobs leave what they were asked; ``conf/config.yaml`` reads it."""


class Asked(NamedTuple):
    """What Hydra's jobs were asked, in their order: spaces of plain configs, and the overrides as typed."""

    spaces: list[Space]
    overrides: list[str]
    swept: bool


@contextmanager
def composer(folder: Path | None = None) -> Iterator[tuple[Compose, ConfigLoader]]:
    """Hydra outside its command line: ``compose(overrides)`` gives what ``run.py`` would get, with ``--config-dir`` if a
    ``folder`` is given.
    """
    from hydra import compose, initialize_config_dir
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.global_hydra import GlobalHydra

    config.register_schema()
    with initialize_config_dir(config_dir=str(config.CONF_DIR), version_base=VERSION_BASE):
        loader: Any = GlobalHydra.instance().config_loader()
        if folder is not None:
            safe_config.refuse_unsafe_files(folder)
            loader.get_search_path().prepend("command-line", str(folder), "schema")
            loader.repository = ConfigRepository(loader.get_search_path())
        yield lambda overrides: compose("config", overrides, return_hydra_config=True), loader


WITH_VALUE = (
    "--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--cfg", "-c", "--package", "-p", "--experimental-rerun",
)  # fmt: skip
"""Flags of Hydra whose value is the next word."""
WITH_OPTION = "--info", "-i"
"""Those that may have one, which is no override."""


def with_flags_last(words: Sequence[str]) -> list[str]:
    """Command-line words with the overrides together, as Hydra's parser needs them, wherever flags were typed.

    >>> with_flags_last(["experiment=plan", "--config-dir", "mine", "model=toy"])
    ['experiment=plan', 'model=toy', '--config-dir', 'mine']
    """
    overrides: list[str] = []
    flags: list[str] = []
    before = ""
    for word in words:
        its_value = before in WITH_VALUE or (before in WITH_OPTION and "=" not in word)
        is_flag = word.startswith("-") and not its_value
        (flags if is_flag or its_value else overrides).append(word)
        before = word if is_flag else ""
    return [*overrides, *flags]


TEXTS = (
    "study.dir",
    "study.name",
    "study.tracker_uri",
    "schedule.path",
    "measurements",
    "resume",
    "engine.folder",
    "task.read.path",
)
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


def is_several(word: str) -> bool:
    """Whether an override holds several values, of which a sweep makes a row each. What is no override holds none."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    try:
        return bool(OverridesParser.create().parse_override(word).is_sweep_override())
    except HydraException:
        return False


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
        spaces = [Space(base=config.plain(composition))]
        grid = spaces[0].base["grid"]
        if grid is not None and spaces[0].base["demo"] is not None:
            raise Invalid(["demo and grid are both given: a demo has cases of its own. Leave one out."])
        if grid is not None:
            refuse_swept_grid(spaces if swept else [])
            spaces, swept = _grid(grid, overrides), True
        content: dict[str, Any] = {
            "spaces": [dataclasses.asdict(space) for space in spaces], "overrides": overrides, "swept": swept,
        }  # fmt: skip
    except (Invalid, OmegaConfBaseException, HydraException) as error:
        content = {"problems": [errors.explain(error)]}
    (Path(os.environ[JOBS_VARIABLE]) / f"{number:09d}.json").write_text(json.dumps(content), encoding="utf-8")


def refuse_swept_grid(spaces: Sequence[Space]) -> None:
    if any(space.base["grid"] is not None for space in spaces):
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
    jobs = [Asked([_space(each) for each in job["spaces"]], job["overrides"], job["swept"]) for job in contents]
    spaces = [space for job in jobs for space in job.spaces]
    overrides = jobs[0].overrides if len(jobs) == 1 else _together([job.overrides for job in jobs])
    return Asked(spaces, overrides, jobs[0].swept)


def _space(content: Mapping[str, Any]) -> Space:
    axes = [Axis(keys=tuple(axis["keys"]), values=tuple(map(tuple, axis["values"]))) for axis in content["axes"]]
    return Space(base=content["base"], axes=tuple(axes), where=tuple(content["where"]))


def _together(jobs: Sequence[Sequence[str]]) -> list[str]:
    """The overrides of a sweep from those of its jobs: every value of a key once, in order of appearance."""
    values: dict[str, dict[str, None]] = {}
    for key, _, value in (override.partition("=") for job in jobs for override in job):
        values.setdefault(key, {})[value] = None
    return [f"{key}={','.join(each)}" for key, each in values.items()]


def _canonical(keys: Sequence[str], values: Sequence[Any]) -> list[Any]:
    """The values of an axis with schedules by the names of their files."""
    return [
        canonical_name(value) or value if key == "schedule" and isinstance(value, str) else value
        for key, value in zip(keys, values, strict=True)
    ]


def _grid(grid: Mapping[str, Any], overrides: list[str]) -> list[Space]:
    """The spaces of a declared grid, on top of what else was asked."""
    from hydra import compose
    from hydra.core.global_hydra import GlobalHydra

    from pipesim.plan.keep import Keeper

    if grid["keep"] is not None:
        Keeper(grid["keep"])  # which refuses what it cannot keep by
    name = f"grid.name={grid['name']}"
    given = {override.lstrip("+").partition("=")[0]: override for override in overrides}
    where = [grid["where"]] if isinstance(grid["where"], str) else grid["where"]
    problems = [
        f"{given[key]}: {key} is an axis of {name}. Leave it out, or change the grid's own values."
        for key in (key.strip() for keys in grid["axes"] for key in keys.split(","))
        if key in given
    ]
    if not isinstance(where, list) or not all(isinstance(each, str) for each in where):
        problems.append(f"grid.where={where!r} must be a condition or a list of them, such as t <= gpus_per_node.")
    if problems:
        raise Invalid(problems)
    axes = [
        axis._replace(values=tuple(tuple(map(typed, _canonical(axis.keys, value))) for value in axis.values))
        for axis in axes_.read(grid["axes"])
    ]
    spaces = expand(
        lambda more: compose("config", more, return_hydra_config=True),
        GlobalHydra.instance().config_loader(),
        overrides,
        axes,
        tuple(where),
    )
    names.check(spaces)
    return spaces


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
