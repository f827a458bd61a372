"""Whether a layout fits, and how surely, in the words that every report uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim import headroom
from pipesim.report.formats import show
from pipesim.report.say import Say

Row = Mapping[str, Any]


def share_of(manifest: Mapping[str, Any]) -> float:
    """The head-room that a study's config asks for."""
    return headroom.of(manifest.get("first_point") or manifest.get("config") or {})


def with_room(share: float) -> str:
    """What "fits" means besides, where something is recommended."""
    return f" with {show(share, 'percent')} of the memory free" if share else ""


def memory_sure(row: Row, share: float, say: Say) -> str:
    """Of a priced layout by its 90 % interval, and by the share of memory that shall stay free; nothing for idealised costs."""
    if row["memory_hi_bytes"] is None:
        return ""
    return _interval(row, say) + _room(row, share, say)


def _interval(row: Row, say: Say) -> str:
    least, held, most, limit = (
        show(row[f"memory_{name}"], "bytes") for name in ("lo_bytes", "bytes", "hi_bytes", "limit_bytes")
    )
    if row["memory_lo_bytes"] > row["memory_limit_bytes"]:
        return say(
            f" Its memory is above {least} in more than nine of ten such runs: it does not fit.",
            f"十次里有九次以上它的显存超过 {least}：放不下。",
        )
    if not row["fits"]:
        return say(
            f" Its memory, {held}, may be {least} where {limit} are there: it probably does not fit.",
            f"它的显存为 {held}，也可能只有 {least}，而上限为 {limit}：大概放不下。",
        )
    if row["memory_hi_bytes"] <= row["memory_limit_bytes"]:
        return say(
            f" Its memory stays below {most} in more than nine of ten such runs: it fits.",
            f"十次里有九次以上它的显存不超过 {most}：放得下。",
        )
    return say(
        f" Its memory, {held}, may be {most} where {limit} are there: try it before you count on it.",
        f"它的显存为 {held}，也可能达到 {most}，而上限为 {limit}：请先试跑。",
    )


def _room(row: Row, share: float, say: Say) -> str:
    if not row["fits"] or headroom.left(row, share):
        return ""
    free = show(1 - row["memory_bytes"] / row["memory_limit_bytes"], "percent")
    return say(
        f" It leaves {free} of the memory free, less than headroom={share:g} asks for.",
        f"它只留出 {free} 显存，少于 headroom={share:g} 的要求。",
    )
