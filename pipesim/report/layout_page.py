"""The report of one layout: the answer, then where the seconds and the bytes go, and the timeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipesim.report.document import Column, Document, Section, Table, TimelineView
from pipesim.report.formats import show
from pipesim.report.words import MEMORY_WORDS, TIME_WORDS, definitions, layout_name, provenance, trust
from pipesim.simulate.timeline import Timeline

Row = Mapping[str, Any]


def layout_page(
    row: Row, timeline: Timeline, lower_bound_s: float, idle_s: Mapping[str, float], manifest: Mapping[str, Any]
) -> Document:
    """``idle_s`` are the idle seconds of all ranks together by cause."""
    return Document(
        title=(
            f"{row['model']} ({show(row['model_params'], 'parameters')} parameters) on {row['gpus']} "
            f"GPU{'s' * (row['gpus'] > 1)} of {row['cluster']}: {layout_name(row)}"
        ),
        figure_folder="",
        sections=(
            Section(title="Answer", blocks=(answer(row), *_best_fix(row), *_warning(row), _degrees(row), _recipe(row))),
            Section(title="Step time", blocks=(_seconds(row), _gains(row), _communication(row))),
            Section(title="Memory", blocks=(_bytes(row), _stages(row))),
            Section(
                title="Pipeline",
                blocks=(
                    _pipeline(row, lower_bound_s),
                    _idle(row, idle_s),
                    TimelineView(
                        slug="timeline", title=layout_name(row), timeline=timeline, lower_bound_s=lower_bound_s
                    ),
                ),
            ),
            Section(title="How to read this", blocks=(*definitions([row["flop_convention"]]), provenance(manifest))),
        ),
    )


def answer(row: Row) -> str:
    """The whole result in a few sentences."""
    step, used = show(row["step_time_s"], "seconds"), show(row["memory_bytes"], "bytes")
    limit = show(row["memory_limit_bytes"], "bytes")
    if row["fits"]:
        outcome = f"One step takes {step} and fits: the heaviest rank ({row['heaviest_rank']}) holds {used} of {limit}."
    else:
        outcome = f"This {row['reason']} A step would take {step}."
    return (
        f"{outcome} {show(row['tokens_per_s'], 'number')} tokens/s, MFU {show(row['mfu'], 'percent')}, "
        f"HFU {show(row['hfu'], 'percent')}; bubble fraction {show(row['bubble_fraction'], 'percent')} (idle/total). "
        f"What bounds it: {row['verdict']}. {trust(row)}"
    )


def _warning(row: Row) -> tuple[str, ...]:
    return (f"Warning: {row['warning']}",) if row["warning"] else ()


def _degrees(row: Row) -> Table:
    names = {
        "tensor t": "t",
        "pipeline p": "p",
        "data d": "d",
        "context c": "c",
        "expert e": "e",
        "virtual v": "v",
        "ZeRO": "zero",
    }
    return Table(
        title="Layout",
        columns=(*(Column(title=name, kind="count") for name in names), Column(title="sequence parallel", kind="flag")),
        rows=((*(row[key] for key in names.values()), row["sequence_parallel"]),),
    )


def _recipe(row: Row) -> Table:
    numbers = {
        "micro-batch": "micro_batch",
        "global batch": "global_batch",
        "m": "num_microbatches",
        "tokens": "seq_length",
    }
    words = {"schedule": "schedule", "recompute": "recompute", "precision": "precision", "attention": "attention"}
    return Table(
        title="Training",
        columns=(*(Column(title=name, kind="count") for name in numbers), *(Column(title=name) for name in words)),
        rows=(tuple(row[key] for key in (numbers | words).values()),),
    )


def _seconds(row: Row) -> Table:
    total = row["step_time_s"]
    items = [(words, row[f"{item}_s"]) for item, words in TIME_WORDS.items()]
    lines = [(words, seconds, seconds / total) for words, seconds in items if seconds > 0]
    return Table(
        title="Where the step's seconds go",
        columns=(Column(title="item"), Column(title="time", kind="seconds"), Column(title="share", kind="percent")),
        rows=(*lines, ("step", total, 1.0)),
        emphasis=frozenset({len(lines)}),
        note=(
            "Imbalance, bubble and exposed sends together are the mean time in which a rank neither computes nor talks on the "
            "way. The bubble fraction leaves out how long ranks stand still while they hand results on."
        ),
    )


_FIXES = {
    "bubble": "a schedule without bubble",
    "imbalance": "a partition into equal stages",
    "pp": "results that move between stages in no time",
    "tp": "tensor-parallel communication that hides wholly",
    "dp": "gradient exchange that hides wholly",
    "cp and ep": "context and expert communication that hides wholly",
    "all communication": "all communication in no time",
    "recompute": "no recomputation",
    "launch": "kernels that launch in no time",
}


def _best_fix(row: Row) -> tuple[str, ...]:
    gains: Mapping[str, float] = json.loads(row["fixes"])
    if not gains:
        return ()
    fix = max(gains, key=lambda each: gains[each])
    gain, share = show(gains[fix], "seconds"), show(gains[fix] / row["step_time_s"], "percent")
    return (f"The fix that could gain most is {_FIXES[fix]}: at most {gain} of a step, {share}.",)


def _gains(row: Row) -> Table:
    """Each fix alone."""
    total = row["step_time_s"]
    gains = [(_FIXES[fix], gain) for fix, gain in json.loads(row["fixes"]).items()]
    lines = sorted(((fix, gain, gain / total) for fix, gain in gains), key=lambda line: -line[1])
    return Table(
        title="What each fix could gain at most",
        columns=(Column(title="fix"), Column(title="seconds", kind="seconds"), Column(title="share", kind="percent")),
        rows=tuple(lines),
        note=(
            "Upper limits, each alone, for the same place of every stage: with what shorter stages save in bubble and imbalance, "
            "and as if nothing else grew."
        ),
    )


_DIMENSIONS = {
    "tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline", "dp": "data", "tied": "tied embeddings",
}  # fmt: skip


def _communication(row: Row) -> Table:
    """Dimension x collective x group x link; messages x bytes x what an algorithm sends of each is sent per GPU."""
    lines = [
        (
            _DIMENSIONS[dimension], kind, ranks, "network" if leaves else "inside node", sharing if leaves else None,
            round(count, 6) if count % 1 else int(count), size, sent,
        )
        for dimension, kind, ranks, leaves, sharing, count, size, sent in json.loads(row["communication"])
    ]  # fmt: skip
    return Table(
        title="What is sent in a step",
        columns=(
            Column(title="dimension"), Column(title="collective"), Column(title="ranks", kind="count"), Column(title="link"),
            Column(title="groups on one network", kind="count"), Column(title="messages a step", kind="count"),
            Column(title="one message", kind="bytes"), Column(title="sent per GPU", kind="bytes"),
        ),
        rows=tuple(lines),
        note=(
            "On the rank that sends most, for each dimension. Of n ranks, each sends (n-1)/n of a message in a reduce-scatter, "
            "all-gather, all-to-all or ring pass, twice that in an all-reduce, all of it to the next stage. Groups on one network: "
            "how many groups side by side share the network cards of a node."
        ),
    )  # fmt: skip


def _bytes(row: Row) -> Table:
    total, limit = row["memory_bytes"], row["memory_limit_bytes"]
    items = [(words, row[f"{item}_bytes"]) for item, words in MEMORY_WORDS.items()]
    lines = [(words, held, held / limit) for words, held in items if held > 0]
    return Table(
        title=f"What rank {row['heaviest_rank']} of the pipeline, the heaviest, holds",
        columns=(Column(title="item"), Column(title="bytes", kind="bytes"), Column(title="of the GPU", kind="percent")),
        rows=(*lines, ("total", total, total / limit)),
        emphasis=frozenset({len(lines)}),
        note=f"{show(row['params_per_gpu'], 'parameters')} parameters per GPU there; the limit is {show(limit, 'bytes')}.",
    )


def _stages(row: Row) -> Table:
    """Memory and in-flight count of every rank, units of every stage."""
    held, flying = row["rank_memory_bytes"], row["peak_inflight"]
    return Table(
        title="Ranks of the pipeline",
        columns=(
            Column(title="rank", kind="count"), Column(title="place"), Column(title="units"),
            Column(title="in flight", kind="count"), Column(title="memory", kind="bytes"),
            Column(title="of the GPU", kind="percent"),
            Column(title="forward", kind="seconds"), Column(title="backward", kind="seconds"),
        ),
        rows=tuple(
            (
                rank,
                _place(row, rank),
                " + ".join(str(units) for units in row["stage_units"][rank :: row["p"]]),
                flying[rank],
                held[rank],
                held[rank] / row["memory_limit_bytes"],
                sum(row["stage_forward_s"][rank :: row["p"]]),
                sum(row["stage_input_grad_s"][rank :: row["p"]]) + sum(row["stage_weight_grad_s"][rank :: row["p"]]),
            )
            for rank in range(row["p"])
        ),
        note=(
            "Units are the embedding, the layers and the head. This partition lets the pipeline reach "
            f"{show(row['efficiency_bound'], 'percent')} at best (mean work over the slowest rank's)."
        ),
    )  # fmt: skip


def _place(row: Row, rank: int) -> str:
    """What to compare a rank by: the ends hold the tables, the middle layers alone, the heaviest decides what fits."""
    places = {"first": 0, "middle": row["p"] // 2, "last": row["p"] - 1, "heaviest": row["heaviest_rank"]}
    return ", ".join(place for place, at in places.items() if at == rank)


def _idle(row: Row, idle_s: Mapping[str, float]) -> Table:
    """Why ranks stand still, as the mean over ranks; the causes sum to the bubble."""
    ranks, makespan_s = row["p"], row["makespan_s"]
    lines = [(cause, seconds / ranks, seconds / ranks / makespan_s) for cause, seconds in idle_s.items()]
    total_s = sum(idle_s.values()) / ranks
    return Table(
        title="Why ranks are idle, mean over ranks",
        columns=(
            Column(title="cause"),
            Column(title="time", kind="seconds"),
            Column(title="of the makespan", kind="percent"),
        ),
        rows=(*lines, ("all", total_s, total_s / makespan_s)),
        emphasis=frozenset({len(lines)}),
        note="Imbalance: what a rank waits because it had less to do than the slowest. Travel: a message is on its way.",
    )


def _pipeline(row: Row, lower_bound_s: float) -> Table:
    return Table(
        title="The simulated pipeline",
        columns=(
            Column(title="makespan", kind="seconds"),
            Column(title="lower bound", kind="seconds"),
            Column(title="bubble fraction (idle/total)", kind="percent"),
            Column(title="bubble overhead (idle/useful)", kind="percent"),
            Column(title="one send", kind="seconds"),
        ),
        rows=((row["makespan_s"], lower_bound_s, row["bubble_fraction"], row["bubble_overhead"], row["hop_s"]),),
    )
