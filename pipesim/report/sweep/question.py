"""What a sweep asked, in words: the model, the machine, the batch, and the axes with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesim.report.document import Cell, Column, Table
from pipesim.report.formats import clean, show, with_runs
from pipesim.report.ranking import IDENTITY, Row
from pipesim.report.say import Say
from pipesim.report.words import COLUMN_WORDS

_MOST_VALUES = 24


def question(rows: Sequence[Row], varied: Sequence[str], manifest: Mapping[str, Any], say: Say) -> tuple[Any, ...]:
    return (_sentence(rows, manifest, say), *_axes(rows, varied, manifest, say), _fixed(rows, varied, say))


def _sentence(rows: Sequence[Row], manifest: Mapping[str, Any], say: Say) -> str:
    first = manifest.get("first_point") or manifest.get("config") or {}
    known = next((row for row in rows if row["model_params"] is not None), rows[0])
    one = len({row["model"] for row in rows}) == 1 and known["model_params"] is not None
    size = say(
        f" ({show(known['model_params'], 'parameters')} parameters)",
        f"（{show(known['model_params'], 'parameters')} 参数）",
    )
    models, clusters, batches = (_listed(rows, name, say) for name in ("model", "cluster", "global_batch"))
    gpus = first.get("cluster", {}).get("gpus")
    machine = clusters + (
        say(f" with {gpus:,} GPUs", f"（{gpus:,} 个 GPU）") if gpus and len(_values(rows, "gpus")) == 1 else ""
    )
    lengths = _listed(rows, "seq_length", say)
    return say(
        f"How fast is a training step of {models}{size if one else ''} on {machine}, with a global batch of "
        f"{batches} sequences "
        f"of {lengths} tokens, and what does each GPU hold, for each of these ways to cut it?",
        f"{models}{size if one else ''}在 {machine} 上训练，全局批量为 {batches} 条、每条 {lengths} 个 token "
        "的序列：下面每一种切法一步多久，"
        "每个 GPU 放多少？",
    )


def _listed(rows: Sequence[Row], name: str, say: Say) -> str:
    values = _values(rows, name)
    shown = ", ".join(values[:4])
    return (
        shown
        if len(values) <= 4
        else say(f"{len(values):,} values ({shown}, …)", f"{len(values):,} 种取值（{shown}，…）")
    )


def _axes(rows: Sequence[Row], varied: Sequence[str], manifest: Mapping[str, Any], say: Say) -> tuple[Table, ...]:
    lines: list[tuple[Cell, ...]] = []
    for name in (*varied, *(["gpus"] if len(_values(rows, "gpus")) > 1 else [])):
        values = _values(rows, name)
        more = f", … (+{len(values) - _MOST_VALUES})" if len(values) > _MOST_VALUES else ""
        lines.append((say(*COLUMN_WORDS[name]), len(values), ", ".join(values[:_MOST_VALUES]) + more))
    if not lines:
        return ()
    return (
        Table(
            title=say("What varies", "变化的量"),
            columns=(
                Column(title=say("what", "量")),
                Column(title=say("values", "取值数"), kind="count"),
                Column(title=say("which", "取值")),
            ),
            rows=tuple(lines),
            note=say("Values of the points that this report shows.", "本报告所示各点的取值。"),
        ),
    )


def _fixed(rows: Sequence[Row], varied: Sequence[str], say: Say) -> Table:
    names = [name for name in IDENTITY if name not in varied and rows[0][name] not in (None, "", False)]
    return Table(
        title=say("What all points share", "各点共有的量"),
        columns=(Column(title=say("what", "量")), Column(title=say("value", "取值"))),
        rows=tuple((say(*COLUMN_WORDS[name]), _text(rows[0][name])) for name in names),
    )


def _values(rows: Sequence[Row], name: str) -> list[str]:
    """Rising, numbers by size."""
    values = {row[name] for row in rows if row[name] is not None}
    return [_text(value) for value in sorted(values, key=lambda value: (isinstance(value, str), value))]


def _text(value: Cell) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else with_runs(clean(str(value)))
