"""A text timeline that is wider than the terminal, in pieces under each other, cut between its time units."""

from __future__ import annotations

from collections.abc import Sequence

from pipesim.report.document import TimelineView

_BAR = " | "


def fold(view: TimelineView, drawing: str, room: int) -> list[str]:
    """The drawing's lines, each piece at most ``room`` cells wide and with the ranks' heads; as they are where they fit.

    What stands at the end of a wide drawing's lines, the ranks' peaks, stays at the end of the last piece.
    """
    lines = drawing.splitlines()
    if max(map(len, lines)) <= room:
        return lines
    heads, bodies = zip(*(line.split(_BAR, 1) for line in lines), strict=True)
    tails = [""] * len(lines)
    if view.text == "wide":
        bodies, tails = zip(*(body.rsplit("| ", 1) for body in bodies), strict=True)  # type: ignore[assignment]
        tails = [f"| {tail}" for tail in tails]
    unit = _unit(view, len(bodies[-1]))
    pieces = []
    start, end = 0, max(map(len, bodies))
    while start < end:
        space = max(unit, room - len(heads[0]) - len(_BAR) - max(map(len, tails)))
        stop = _cut(bodies, start, unit, space, view.text == "wide")
        last = stop >= end
        pieces.append(
            [
                f"{head}{_BAR}{body[start:stop]}{tail if last else ''}".rstrip()
                for head, body, tail in zip(heads, bodies, tails, strict=True)
            ]
        )
        start = stop
    return [line for number, piece in enumerate(pieces) for line in ([""] if number else []) + piece]


def _unit(view: TimelineView, length: int) -> int:
    """Terminal cells of one time unit."""
    assert view.unit_s is not None
    span_s = float(view.timeline.end_s.max() - view.timeline.start_s.min())
    return length // round(span_s / view.unit_s)


def _cut(bodies: Sequence[str], start: int, unit: int, space: int, wide: bool) -> int:
    """Where a piece ends: after as many whole units as fit, and where no label is cut if that can be."""
    furthest = start + space // unit * unit
    if furthest >= max(map(len, bodies)):
        return furthest
    places = range(furthest, start, -unit)
    return next((k for k in places if not wide or not any(_inside(body, k) for body in bodies)), furthest)


def _inside(body: str, k: int) -> bool:
    """Whether a label or a number of the ruler stands on both sides."""
    return not {body[k - 1 : k], body[k : k + 1]} & {" ", "─", "·", ""}
