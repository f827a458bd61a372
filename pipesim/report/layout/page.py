"""The report of one layout: the answer, then where the seconds and the bytes go, and the timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipesim.report import fit_tables, provenance
from pipesim.report.document import Axis, Bars, Document, Section, TimelineView
from pipesim.report.formats import show
from pipesim.report.layout import parts as layout_parts
from pipesim.report.layout import tables
from pipesim.report.memory_words import memory_sure, share_of
from pipesim.report.say import Say, asked_language, speaker
from pipesim.report.sweep.answer import best_fix, shortfall
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS, bound_by, definitions, layout_name, trust
from pipesim.simulate.timeline import Timeline

Row = Mapping[str, Any]

_MOST_RANKS = 32
"""Bars of a picture; of more ranks some in between are left out."""


def layout_page(
    row: Row,
    timeline: Timeline,
    lower_bound_s: float,
    idle_s: Mapping[str, float],
    manifest: Mapping[str, Any],
    way_out: fit_tables.WayOut | None = None,
    held: Sequence[Mapping[str, float]] = (),
) -> Document:
    """``idle_s`` are the idle seconds of all ranks together by cause, ``held`` the bytes of each rank by item."""
    language = asked_language(manifest)
    say = speaker(language)
    size, gpus = show(row["model_params"], "parameters"), row["gpus"]
    parts = manifest.get("config", {}).get("cluster", {}).get("parts") or ()
    view = TimelineView(slug="timeline", title=layout_name(row), timeline=timeline, lower_bound_s=lower_bound_s)
    fitting = () if way_out is None else (fit_tables.way_out(way_out, say),)
    answers = (
        answer(row, say, share_of(manifest)),
        *fitting,
        *filter(None, [best_fix(row, say).strip()]),
        *_warning(row, say),
    )
    ways = () if way_out is None else (fit_tables.ways_out([way_out], layout_name, say),)
    peaks = (fit_tables.peaks(row, timeline, held, say),) if held and row["stage_activation_bytes"] else ()
    return Document(
        title=say(
            f"{row['model']} ({size} parameters) on {gpus} GPU{'s' * (gpus > 1)} of {row['cluster']}: "
            f"{layout_name(row)}",
            f"{row['cluster']} 的 {gpus} 个 GPU 上的 {row['model']}（{size} 参数）：{layout_name(row)}",
        ),
        figure_folder="",
        language=language,
        sections=(
            Section(
                title=say("Answer", "结论"),
                blocks=(
                    *answers,
                    tables.degrees(row, say),
                    tables.recipe(row, say),
                    *layout_parts.parts(row, parts, say),
                ),
            ),
            Section(
                title=say("Step time", "步时"),
                blocks=(
                    tables.seconds(row, say),
                    _seconds(row, say),
                    tables.gains(row, say),
                    tables.communication(row, say),
                ),
            ),
            Section(
                title=say("Memory", "显存"),
                blocks=(
                    tables.held(row, say),
                    *ways,
                    fit_tables.sizes(row, say),
                    tables.ranks(row, timeline.schedule, say, parts),
                    *peaks,
                    _bytes(row, say),
                ),
            ),
            Section(
                title=say("Pipeline", "流水线"),
                blocks=(tables.pipeline(row, lower_bound_s, say), tables.idle(row, idle_s, say), view),
            ),
            *provenance.behind(manifest, [row], say),
            Section(
                title=say("How to read this", "如何阅读"),
                blocks=(*definitions([row["flop_convention"]], say), provenance.provenance(manifest, say)),
            ),
            provenance.details(manifest, say),
        ),
    )


def answer(row: Row, say: Say, room: float) -> str:
    """The whole result in a few sentences; ``room`` is the share of memory that shall stay free."""
    step, used = show(row["step_time_s"], "seconds"), show(row["memory_bytes"], "bytes")
    limit, rank = show(row["memory_limit_bytes"], "bytes"), row["heaviest_rank"]
    if row["fits"]:
        outcome = say(
            f"One step takes {step} and fits: the heaviest rank ({rank}) holds {used} of {limit}.",
            f"一步用时 {step}，放得下：最重的 rank（{rank}）占 {used} / {limit}。",
        )
    else:
        outcome = say(
            f"This {row['reason']} A step would take {step}.", f"放不下：{shortfall(row, say)}一步将用时 {step}。"
        )
    tokens, mfu, hfu = show(row["tokens_per_s"], "number"), show(row["mfu"], "percent"), show(row["hfu"], "percent")
    bubble, bound = show(row["bubble_fraction"], "percent"), bound_by(row, say)
    return say(
        f"{outcome} {tokens} tokens/s, MFU {mfu}, HFU {hfu}; bubble fraction {bubble} (idle/total). "
        f"What bounds it: {bound}. {trust(row, say)}{memory_sure(row, room, say)}",
        f"{outcome}{tokens} token/s，MFU {mfu}，HFU {hfu}；气泡占比 {bubble}（空闲/总）。瓶颈：{bound}。"
        f"{trust(row, say)}{memory_sure(row, room, say)}",
    )


def _warning(row: Row, say: Say) -> tuple[str, ...]:
    return (say(f"Warning: {row['warning']}", f"警告（原文）：{row['warning']}"),) if row["warning"] else ()


def _seconds(row: Row, say: Say) -> Bars:
    return Bars(
        slug="seconds",
        title=say("Where the step's seconds go", "一步的时间去向"),
        caption=say(
            "The items of the table as one bar, whose length is the step. The widest is where to look first.",
            "表中各项合成一条，全长即步时。最宽的一项最值得先看。",
        ),
        x=Axis(title=say("seconds of a step", "一步的秒数"), kind="seconds"),
        items=tuple(say(*words) for words in TIME_WORDS.values()),
        bars=((layout_name(row), tuple(max(0.0, row[f"{item}_s"]) for item in TIME_WORDS)),),
    )


def _bytes(row: Row, say: Say) -> Bars:
    """Of the heaviest rank the items are known, of every rank the sum."""
    limit, held = row["memory_limit_bytes"], row["rank_memory_bytes"]
    heaviest = tuple(row[f"{item}_bytes"] for item in MEMORY_WORDS)
    nothing = (0.0,) * len(MEMORY_WORDS)
    return Bars(
        slug="bytes",
        title=say("Memory of every rank", "每个 rank 的显存"),
        caption=say(
            "On top what the heaviest rank holds, item by item, then every rank of the pipeline in all. A bar "
            "beyond the dashed "
            "line does not fit; ranks that differ much ask for another partition or schedule.",
            "最上为最重 rank 的各项，其下为流水线每个 rank 的合计。超过虚线即放不下；各 rank "
            "相差悬殊时应换划分或调度。",
        ),
        x=Axis(title=say("memory", "显存"), kind="bytes"),
        items=(*(say(*words) for words in MEMORY_WORDS.values()), say("all of it", "合计")),
        bars=(
            (say(f"rank {row['heaviest_rank']}, by item", f"rank {row['heaviest_rank']}，按项"), (*heaviest, 0.0)),
            *((f"rank {rank}", (*nothing, held[rank])) for rank in shown_ranks(row["p"], row["heaviest_rank"])),
        ),
        x_limit=(limit, say(f"{show(limit, 'bytes')} a GPU", f"每 GPU {show(limit, 'bytes')}")),
    )


def shown_ranks(p: int, heaviest: int) -> list[int]:
    """Every rank, or of many those evenly spaced from the first to the last, and the heaviest.

    >>> shown_ranks(4, 0), len(shown_ranks(500, 77)) <= 33, 77 in shown_ranks(500, 77)
    ([0, 1, 2, 3], True, True)
    """
    most = min(p, _MOST_RANKS)
    return sorted({*(round(k * (p - 1) / max(1, most - 1)) for k in range(most)), heaviest})
