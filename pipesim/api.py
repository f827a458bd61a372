"""The Python interface: what the commands do, as functions that return values. ``import pipesim`` is all it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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

Choice = str | Iterable[str]


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
    model: str = "bloom_176b",
    cluster: str = "jean_zay_a100",
    parallel: str | Mapping[str, Any] | None = None,
    training: str | Mapping[str, Any] | None = None,
    schedule: str = "1f1b",
    costs: str = "full",
    stack: str | None = None,
    overrides: Sequence[str] = (),
) -> Estimate:
    """The estimate of one layout: names of config choices, and keys of ``parallel`` and ``training`` to change.

    ``overrides`` are any others, as typed on the command line: ``["cluster.gpus=512", "model.layers=96"]``.

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
    model: Choice = "bloom_176b",
    cluster: Choice = "jean_zay_a100",
    parallel: str | Mapping[str, Any] | None = None,
    training: str | Mapping[str, Any] | None = None,
    schedule: Choice = "1f1b",
    costs: Choice = "full",
    stack: Choice | None = None,
    overrides: Sequence[str] = (),
) -> pd.DataFrame:
    """A row for every combination: any choice and any value may be several, as a list, a range, an array or whatever can be
    walked through. Rows and columns as ``run.py -m`` writes them.

    ``overrides`` as in ``estimate``: one value each.
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
    )
    return frame(study.evaluate(asked))


def plan(
    model: str = "bloom_176b",
    cluster: str = "jean_zay_a100",
    parallel: str | Mapping[str, Any] | None = None,
    training: str | Mapping[str, Any] | None = None,
    schedule: str = "1f1b",
    costs: str = "full",
    stack: str | None = None,
    overrides: Sequence[str] = (),
    **asked: Any,
) -> pd.DataFrame:
    """The best of all layouts that fit, the best first, as rows of a sweep; none if nothing fits.

    ``asked`` are ``headroom`` and keys of ``task.plan``: ``objective``, ``best``, lists of ``t``, ``p``, …; what else there is
    says ``conf/README.md``. ``parallel`` and ``schedule`` say what else a layout is, such as its ``rank_order``. Raises
    ``ValueError`` for what cannot be asked.
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
    axes: dict[str, list[Any]], overrides: Sequence[str], base: Sequence[str] = (), **choices: Any
) -> list[Space]:
    """Spaces of all combinations; lists become axes, except the one list that is a value: a partition.

    Raises ``Invalid`` for whatever cannot be composed.
    """
    from pipesim import compose, errors

    _refuse(overrides, compose.is_several)
    fixed = [*base, *overrides]
    for group, choice in choices.items():
        for key, value in _keyed(group, choice).items():
            if _is_several(key, value):
                axes[key] = [compose.typed(each) for each in value]
            else:
                fixed.append(f"{key}={compose.typed(value)}")
    try:
        with compose.composer() as (make, loader):
            return compose.expand(make, loader, fixed, axes)
    except Exception as error:
        message = errors.explain(error)
        if message is None:
            raise
        raise Invalid(message.splitlines()) from None


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
    one = key in ("parallel.partition", "training.recompute_layers")
    return not one or any(not isinstance(each, int) for each in value)
