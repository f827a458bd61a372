"""The Python interface: what the commands do, as functions that return values. ``import pipesim`` is all it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipesim import legality
from pipesim.checks import Invalid
from pipesim.estimate import MEMORY_ITEMS, TIME_ITEMS
from pipesim.plan.asked.space import Space
from pipesim.schedules import canonical_name, make_schedule, read_schedule, schedule_names
from pipesim.simulate import simulate, steady_period_s

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Estimate",
    "estimate",
    "make_schedule",
    "plan",
    "read_schedule",
    "schedule_names",
    "simulate",
    "steady_period_s",
    "sweep",
]

Shape = str | Mapping[str, Any]
"""A choice of a group by its name, or a mapping of the group's keys to values. One whose ``name`` (of ``costs`` the ``kind``)
is that of a choice starts from it; any other must be a whole shape: every key that has no default of its own.
"""

Shapes = Shape | Iterable[str]
"""In a sweep a mapping's values may be several too."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One layout's row, its columns as attributes: ``estimate.step_time_s``, ``estimate.fits``, … (``results.schema``)."""

    row: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.row[name]
        except KeyError:
            raise AttributeError(f"an estimate has no {name!r}; it has: {', '.join(self.row)}") from None

    @property
    def seconds(self) -> dict[str, float]:
        """The items of the step time; they sum to ``step_time_s``."""
        return {item: self.row[f"{item}_s"] for item in TIME_ITEMS}

    @property
    def bytes(self) -> dict[str, float]:
        """The items of the heaviest rank's memory; they sum to ``memory_bytes``."""
        return {item: self.row[f"{item}_bytes"] for item in MEMORY_ITEMS}


def estimate(
    model: Shape = "bloom_176b",
    cluster: Shape = "jean_zay_a100",
    parallel: Shape | None = None,
    training: Shape | None = None,
    schedule: Shape = "1f1b",
    costs: Shape = "full",
    stack: Shape | None = None,
    overrides: Sequence[str] = (),
    config_dir: str | Path | None = None,
) -> Estimate:
    """The estimate of one layout: names of config choices, or mappings of a group's keys to values.

    Those of ``parallel`` and ``training`` change what is there. ``dict(name="llama2_13b", layers=48)`` is that model with other
    layers; a mapping without the name of a choice must be a whole shape: every key that has no default of its own.
    ``overrides`` are other values, as typed on the command line: ``["cluster.gpus=512", "model.layers=96"]``; ``config_dir`` is
    a folder of your own files, as ``--config-dir`` takes one.

    Raises ``ValueError`` with every broken rule; a layout that does not fit has ``fits=False`` and its ``reason``.
    """
    from pipesim import config, study

    axes: dict[str, list[Any]] = {}
    spaces = _asked(
        axes,
        model=model,
        cluster=cluster,
        schedule=schedule,
        costs=costs,
        stack=stack,
        parallel=parallel,
        training=training,
        overrides=overrides,
        config_dir=config_dir,
    )
    if axes:
        raise Invalid([f"{key} is a list: an estimate is of one layout; use pipesim.sweep." for key in axes])
    (space,) = spaces
    legality.resolve(config.build(space.base))
    (row,) = study.evaluate(spaces)
    if row["status"] == "failed":
        raise RuntimeError(row["reason"])
    return Estimate(row)


def sweep(
    model: Shapes = "bloom_176b",
    cluster: Shapes = "jean_zay_a100",
    parallel: Shape | None = None,
    training: Shape | None = None,
    schedule: Shapes = "1f1b",
    costs: Shapes = "full",
    stack: Shapes | None = None,
    overrides: Sequence[str] = (),
    config_dir: str | Path | None = None,
) -> pd.DataFrame:
    """A row for every combination: any choice and any value may be several, as a list, a range, an array or whatever can be
    walked through. Rows and columns as ``run.py -m`` writes them.

    Mappings, ``overrides`` (one value each) and ``config_dir`` as in ``estimate``.
    """
    from pipesim import study
    from pipesim.results.schema import frame

    axes: dict[str, list[Any]] = {}
    asked = _asked(
        axes,
        model=model,
        cluster=cluster,
        schedule=schedule,
        costs=costs,
        stack=stack,
        parallel=parallel,
        training=training,
        overrides=overrides,
        config_dir=config_dir,
    )
    return frame(study.evaluate(asked))


def plan(
    model: Shape = "bloom_176b",
    cluster: Shape = "jean_zay_a100",
    parallel: Shape | None = None,
    training: Shape | None = None,
    schedule: Shape = "1f1b",
    costs: Shape = "full",
    stack: Shape | None = None,
    overrides: Sequence[str] = (),
    config_dir: str | Path | None = None,
    **asked: Any,
) -> pd.DataFrame:
    """The best of all layouts that fit, the best first, as rows of a sweep; none if nothing fits.

    ``asked`` are ``headroom`` and keys of ``task.plan``: ``objective``, ``best``, lists of ``t``, ``p``, …; what else there is
    says ``conf/README.md``. ``parallel`` and ``schedule`` say what else a layout is, such as its ``rank_order``; mappings,
    ``overrides`` and ``config_dir`` as in ``estimate``. Raises ``ValueError`` for what cannot be asked.
    """
    from pipesim import compose
    from pipesim.plan.search import refine
    from pipesim.results.schema import frame

    axes: dict[str, list[Any]] = {}
    (space,) = _asked(
        axes,
        model=model,
        cluster=cluster,
        schedule=schedule,
        costs=costs,
        stack=stack,
        parallel=parallel,
        training=training,
        overrides=overrides,
        config_dir=config_dir,
        base=[
            "experiment=plan",
            *(f"{_key(name)}={compose.typed(_plain(name, value))}" for name, value in asked.items()),
        ],
    )
    if axes:
        raise Invalid(
            [f"{key} is a list: what a plan may choose from is a list of its own, such as t=[1, 2]." for key in axes]
        )
    rows = refine.ranked_rows(space.base)
    return frame(rows).set_index("point_id").loc[[row["point_id"] for row in rows]].reset_index()


def _asked(
    axes: dict[str, list[Any]],
    overrides: Sequence[str],
    config_dir: str | Path | None,
    base: Sequence[str] = (),
    **choices: Any,
) -> list[Space]:
    """Spaces of all combinations; lists become axes, except those that are values, such as a partition.

    Raises ``Invalid`` for whatever cannot be composed.
    """
    from pipesim import compose, errors, given

    _refuse(overrides, compose.is_several)
    fixed, shapes = [*base, *overrides], dict[str, dict[str, Any]]()
    for group, choice in choices.items():
        values = _keyed(group, choice)
        axes |= {
            key: [compose.typed(each) for each in value] for key, value in values.items() if _is_several(key, value)
        }
        if isinstance(choice, Mapping) and group in given.NAMES:
            shapes[group] = {key.removeprefix(f"{group}."): value for key, value in values.items()}
            fixed.append(f"{group}={given.GIVEN}")
        else:
            fixed += [f"{key}={compose.typed(value)}" for key, value in values.items() if key not in axes]
    try:
        with compose.composer(_folder(config_dir)) as (make, loader):
            files = {
                group: given.file_of(group, shape, loader.get_group_options(group)) for group, shape in shapes.items()
            }
            for key in axes:
                group, _, name = key.partition(".")
                files.get(group, {}).pop(name, None)
            with given.stored(files):
                return compose.expand(make, loader, fixed, axes)
    except Exception as error:
        message = errors.explain(error)
        if message is None:
            raise
        raise Invalid([re.sub(rf"^\w+/{given.GIVEN}\.yaml: ", "", line) for line in message.splitlines()]) from None


def _folder(config_dir: str | Path | None) -> Path | None:
    folder = None if config_dir is None else Path(config_dir).expanduser().resolve()
    if folder is not None and not folder.is_dir():
        raise Invalid([f"config_dir={str(config_dir)!r} is no folder."])
    return folder


def _refuse(overrides: Sequence[str], is_several: Callable[[str], bool]) -> None:
    if isinstance(overrides, str):
        raise Invalid([f"overrides={overrides!r} must be a list of words. Nearest: [{overrides!r}]."])
    for word in overrides:
        if re.match(r"[+~]*(grid|demo|task|experiment|hydra)\b", word):
            raise Invalid([f"{word}: only the command line runs it; overrides change what a layout is."])
        if is_several(word):
            raise Invalid([f"{word}: an override has one value. Nearest: pipesim.sweep(parallel=dict(t=[1, 2]))."])


def _keyed(group: str, choice: Any) -> dict[str, Any]:
    """The config keys that an argument sets, with plain values."""
    if choice is None or isinstance(choice, Mapping):
        return {f"{group}.{key}": _plain(f"{group}.{key}", value) for key, value in (choice or {}).items()}
    names = _plain(group, choice)
    if not all(isinstance(name, str) for name in (names if isinstance(names, list) else [names])):
        raise Invalid([f"{group}={choice!r} must be the name of a choice, names, or a mapping of keys to values."])
    if group != "schedule":
        return {group: names}
    if isinstance(names, str):
        return {group: canonical_name(names) or names}
    return {group: [canonical_name(name) or name for name in names]}


def _key(name: str) -> str:
    """Of what a plan is asked: head-room is a key of all tasks."""
    return name if name == "headroom" else f"task.plan.{name}"


def _plain(key: str, value: Any) -> Any:
    """A value as YAML has it: numpy's and pandas' numbers are Python's, whatever can be walked through is a list."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(f"{key}.{name}", each) for name, each in value.items()}
    if isinstance(value, Iterable):
        return [_plain(key, each) for each in value]
    raise Invalid([f"{key}={value!r} must be a name, a number, or several of them."])


def _is_several(key: str, value: Any) -> bool:
    if not isinstance(value, list):
        return False
    if not len(value):
        raise Invalid([f"{key} has no values: give at least one."])
    if key in ("cluster.parts", "stack.own_reasons"):
        return any(isinstance(each, list) for each in value)
    one = key in ("parallel.partition", "training.recompute_layers")
    return not one or any(not isinstance(each, int) for each in value)
