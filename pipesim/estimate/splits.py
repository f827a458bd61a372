"""One point whose stages are filled in many ways: cells of one shape, priced and simulated together."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from pipesim.costs.columns import FloatArray
from pipesim.costs.stage import Stages
from pipesim.estimate.points import Points, Shape, points_of
from pipesim.specs import Point


def splits_of(point: Point, contents: FloatArray, again: FloatArray | None = None) -> Points:
    """A resolved point as n points that differ in what their stages hold.

    ``contents`` (n, stages, 4) are those of ``costs.stage.contents``, ``again`` (n, stages) the layers of each stage that
    run again (None: as the point's training says). Each stage is a kind of its own, so that all share one shape.
    """
    one, n = points_of([point]), len(contents)
    (shape,) = one.shapes
    stages = range(len(shape.rank_of))
    same = np.zeros(n, np.int64)
    embedding, dense, moe, head = np.moveaxis(contents, -1, 0)
    rank_of = np.array(shape.rank_of)
    beside = (embedding > 0) | (rank_of == rank_of[np.argmax(embedding, axis=1)][:, None])
    kind_of = list(shape.kind_of)
    asked = one.cut.recomputed[same][:, kind_of] if isinstance(one.cut.recomputed, np.ndarray) else math.inf
    return dataclasses.replace(
        one,
        cut=dataclasses.replace(one.cut.taken(same), recomputed=asked if again is None else again),
        stages=Stages(embedding, dense, moe, head, beside.astype(np.float64), np.ones_like(head)),
        shapes=(Shape(shape.p, shape.v, shape.rank_of, (), tuple(stages), ()),),
        shape_of=same,
        cell_of=np.arange(n),
        num_microbatches=one.num_microbatches[same],
    )
