"""What every rank of one point's pipeline holds, item by item."""

from __future__ import annotations

from pipesim.costs import full, lecture
from pipesim.estimate.held import memory
from pipesim.estimate.points import points_of
from pipesim.estimate.runs import runs
from pipesim.specs import Point


def held_by_rank(point: Point) -> list[dict[str, float]]:
    """Bytes by item of ``held.MEMORY_ITEMS`` for each rank of a resolved point, each at the moment when it holds most."""
    points = points_of([point])
    price = lecture.price if point.costs.kind == "lecture" else full.price
    prices = price(point, points.model, points.cut, points.stages)
    (run,) = runs(points, prices)
    ranks = (memory(points, prices, run, False, rank)[0] for rank in range(point.layout.p))
    return [{item: float(values[0]) for item, values in items.items()} for items in ranks]
