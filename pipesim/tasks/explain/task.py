"""Task: why one layout takes as long as it does, what would change it, and how it differs from another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim import config as configs
from pipesim import errors, legality
from pipesim.checks import Invalid
from pipesim.plan import grid
from pipesim.plan.asked.restage import NOTE, PARTITION, freed
from pipesim.plan.asked.space import with_values
from pipesim.plan.explain import difference, explained, micro_batches
from pipesim.results.schema import Row
from pipesim.tasks import Done
from pipesim.tasks.explain.page import Other, page

AGAINST = "task.explain.against"


def explain(config: Mapping[str, Any]) -> Done:
    """Raises ``Invalid`` with every rule that the layout, or the one it is held against, breaks."""
    asked = config["task"]["explain"]
    share = asked["bubble"]
    if not 0 < share < 1:
        raise Invalid([f"task.explain.bubble={share} must lie between 0 and 1, both excluded. Nearest: 0.05."])
    point = legality.resolve(configs.build(config))
    row = _row(config, "")
    other = _against(config, asked["against"], row) if asked["against"] is not None else None
    found = explained(config, point, row)
    fewest = {
        "all stages alike, sends for nothing": micro_batches.enough(point, share, equal=True),
        "this layout": micro_batches.enough(point, share, equal=False),
    }
    rows = [row, *([other.row] if other else []), *(each.row for each in found.neighbours), *found.sizes]
    alone = {each["point_id"]: each for each in reversed(rows)}  # the first of equals
    kept = [each for each in rows if each is alone[each["point_id"]]]
    return Done(document=page(found, fewest, share, other), rows=kept)


def _against(config: Mapping[str, Any], values: Mapping[str, Any], row: Row) -> Other:
    if not isinstance(values, Mapping) or not values:
        raise Invalid([f"{AGAINST}={values!r} must be keys and values. Nearest: '{{parallel.t: 8, parallel.p: 6}}'."])
    changed = _changed(config, values)
    gives_way = {} if PARTITION in values else freed(config, changed)
    other = _row(with_values(changed, gives_way), f"{AGAINST}: ")
    if other["model"] != row["model"]:
        raise Invalid([f"{AGAINST}: model={other['model']} is another model. Nearest: model={row['model']}."])
    return Other(other, difference(row, other), (NOTE,) if PARTITION in gives_way else ())


def _changed(config: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Raises ``Invalid`` with every key or value that is wrong, whoever found it."""
    problems = []
    for key, value in values.items():
        try:
            config = configs.changed(config, {key: value}, AGAINST)
        except Exception as error:
            told = errors.explain(error, [f"{key}: {value}"])
            if told is None:
                raise
            problems.append(f"{AGAINST}: {told.removeprefix(f'{AGAINST}: ')}")
    if problems:
        raise Invalid(problems)
    return config


def _row(config: Mapping[str, Any], where: str) -> Row:
    """With details. Raises ``Invalid`` if it breaks a rule."""
    try:
        legality.resolve(configs.build(config))
    except Invalid as error:
        raise Invalid([f"{where}{problem}" for problem in error.problems]) from None
    (row,) = grid.rows([config])
    if row["step_time_s"] is None:
        raise Invalid([f"{where}{row['reason']}"])
    return row
