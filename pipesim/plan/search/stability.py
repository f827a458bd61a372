"""How likely the first of a ranking is truly the best, and which layouts cannot be told from it.

Layouts of one model, cluster and stack share most of an estimate's error, which moves all of them alike. What is left
between two is ``calibrate.contrasts``: drawn jointly, layouts that are much alike err much alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.calibrate import contrasts
from pipesim.costs.columns import FloatArray

Row = Mapping[str, Any]

SURE = 0.9
"""Layouts are told apart from this probability on."""
MOST = 100
"""Layouts that are drawn: those with the largest probability of beating the first."""
DRAWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """Of rows from the predicted fastest on; everything has one entry a row."""

    order: tuple[int, ...]
    """Places of the rows in what was given, the fastest first."""
    best: tuple[float, ...]
    """Probability of truly being the fastest of all, 0 beyond the ``MOST`` likeliest."""
    beaten: tuple[float, ...]
    """Probability that the first is truly faster than this one; the first's own is 0.5."""
    loss: float
    """What the first is slower than the truly fastest, as a fraction, at most in nine of ten cases."""

    @property
    def alike(self) -> tuple[int, ...]:
        """Places in ``order`` of those that cannot be told from the first; the first is not among them."""
        return tuple(k for k, sure in enumerate(self.beaten) if k and sure < SURE)


def per_token(row: Row) -> float:
    return 1.0 / float(row["tokens_per_s"])


def of(
    rows: Sequence[Row],
    pace: Callable[[Row], float] = per_token,
    known: contrasts.Contrasts | None = None,
    seed: int = 0,
) -> Stability | None:
    """Of rows that were evaluated; ``pace`` is what shall be small, proportional to the time.

    None where no measurement speaks: idealised costs, more than one model, cluster or stack, or no rows.
    """
    if len({tuple(row[name] for name in ("model", "cluster", "stack", "costs")) for row in rows}) != 1:
        return None
    if rows[0]["costs"] != "full":
        return None
    spread = (known or contrasts.packaged()).spread
    paces = np.log([pace(row) for row in rows])
    order = np.argsort(paces, kind="stable")
    slower, h = paces[order] - paces[order[0]], contrasts.distances([rows[order[0]]], [rows[i] for i in order])[0]
    beaten = contrasts.surely(slower, h, spread)
    drawn = np.sort(np.argsort(beaten, kind="stable")[:MOST])
    best, lost = _drawn(slower[drawn], [rows[i] for i in order[drawn]], spread, np.random.default_rng(seed))
    chances = np.zeros(len(rows))
    chances[drawn] = best
    return Stability(
        order=tuple(order.tolist()),
        best=tuple(chances.tolist()),
        beaten=tuple(beaten.tolist()),
        loss=float(np.expm1(np.quantile(lost, SURE))),
    )


def _drawn(
    slower: FloatArray, rows: Sequence[Row], spread: float, draw: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """The share of draws in which each is the fastest, and in each draw the first's excess over the fastest (a logarithm).

    Errors are relative to the first's, of Student's t with the covariance spread^2 (h_i + h_j - h_ij) / 2, which has the
    variogram of ``contrasts`` for every pair.
    """
    h = contrasts.distances(rows, rows)
    scales, axes = np.linalg.eigh(spread**2 / 2 * (h[0, :, None] + h[0] - h))
    normal = draw.standard_normal((DRAWS, len(rows))) * np.sqrt(np.maximum(scales, 0.0))
    size = np.sqrt(draw.chisquare(contrasts.DEGREES, DRAWS) / contrasts.DEGREES)
    true = slower + (normal @ axes.T) / size[:, None]
    fastest = true.argmin(axis=1)
    return np.bincount(fastest, minlength=len(rows)) / DRAWS, true[:, 0] - true[np.arange(DRAWS), fastest]
