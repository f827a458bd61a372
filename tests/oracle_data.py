"""Orders and figures of schedules from independent sources, read from CSV files.

All of them lie in a folder ``shared/oracles`` beside the checkout, or where PIPESIM_ORACLES says; without either the
small subset in ``tests/golden`` is read, which has the same files.
"""

from __future__ import annotations

import csv
import os
from functools import cache
from pathlib import Path

import numpy as np

from pipesim.schedules import action, make_schedule
from pipesim.schedules.action import Schedule

GOLDEN = Path(__file__).parent / "golden"
csv.field_size_limit(10**8)

# Orders that we also make, under the names of their sources.
OURS = {
    "GPipe_runtime": ("gpipe", {}),
    "1F1B_runtime": ("1f1b", {}),
    "Interleaved1F1B": ("interleaved_1f1b", {}),
    "LoopedBFS": ("looped_bfs", {}),
    "InterleavedZeroBubble": ("interleaved_zb", {}),
    "ZBVZeroBubble": ("zbv", {}),
    "DualPipeV": ("dualpipev", {}),
    "zb:ZB-1p": ("zb_h1", {}),
    "zb:ZB-2p": ("zb_h2", {}),
    "zb:ZB-V": ("zbv", {}),
    "zb:V-half": ("v_half", {}),
    "zb:V-min": ("v_min", {}),
    "zb:1F1B-V": ("1f1b_v", {}),
    "zb:Seq1F1B-sq2": ("seq1f1b", {"segments": 2}),
    "zb:Seq1F1B-sq4": ("seq1f1b", {"segments": 4}),
    "megatron:interleaved": ("interleaved_1f1b", {}),
    "megatron:interleaved_group2p": ("interleaved_1f1b", {"group": 2}),  # times p
    "deepseek:DualPipe": ("dualpipe", {}),
    "deepseek:DualPipeV": ("dualpipev", {}),
    "chimera:Chimera": ("chimera", {}),
    "jaxpp:Eager1F1B": ("eager_1f1b", {}),
    "minpp:eager1f1b": ("eager_1f1b", {}),
}


def folder() -> Path:
    asked = os.environ.get("PIPESIM_ORACLES")
    beside = Path(__file__).parents[2] / "shared" / "oracles"
    return Path(asked) if asked else (beside if beside.is_dir() else GOLDEN)


@cache
def rows(name: str) -> list[dict[str, str]]:
    with (folder() / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def orders() -> dict[tuple[str, int, int, int], str]:
    """The CSV text of every printed order by (schedule, p, m, v); peers' schedules are called ``peer:schedule``."""
    lines: dict[tuple[str, int, int, int], list[str]] = {}
    for row in rows("orders"):
        lines.setdefault((row["schedule"], *sizes(row)), []).append(row["actions"])
    return {key: "\n".join(ranks) + "\n" for key, ranks in lines.items()}


@cache
def order(name: str, p: int, m: int, v: int) -> Schedule:
    return action.parse(orders()[name, p, m, v], name)


def sizes(row: dict[str, str]) -> tuple[int, int, int]:
    return int(row["p"]), int(row["m"]), int(row["v"])


def times(row: dict[str, str]) -> tuple[np.ndarray | float, ...]:
    """Seconds of F, I, W (per stage where the row says so) and of a hop, in the order of ``simulate``."""
    each = [[float(part) for part in row[key].split(";")] for key in ("tF", "tB", "tW")]
    return *(np.array(parts) if len(parts) > 1 else parts[0] for parts in each), float(row["tcomm"])


def per_rank(text: str) -> list[int]:
    return [int(part) for part in text.split(";")]


def ours(name: str, options: dict[str, int], p: int, m: int, v: int) -> Schedule:
    """Our schedule under an entry of ``OURS``; a group counts in pipelines' depths."""
    options = {key: value * (p if key == "group" else 1) for key, value in options.items()}
    return make_schedule(name, p=p, m=m, v=v, **options)
