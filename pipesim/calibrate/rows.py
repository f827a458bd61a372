"""Measured runs, one row each, read into points that can be predicted.

The columns are those of published collections (see ``calibrate/README.md``). What a source states stands in its own
column, what was inferred in ``inferred``. A row that cannot be predicted says why.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipesim import inputs, legality, schedules
from pipesim.calibrate.cells import problems
from pipesim.calibrate.lint import LEAST, MOST
from pipesim.calibrate.machines import cluster_of
from pipesim.calibrate.partitions import partition_of
from pipesim.calibrate.recipes import recipe
from pipesim.checks import Invalid
from pipesim.specs import ClusterSpec, CostConstants, ModelSpec, Moe, ParallelLayout, Point, StackSpec

Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """What a row's names are looked up in."""

    clusters: Mapping[str, ClusterSpec]
    stacks: Mapping[str, StackSpec]
    costs: CostConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One row. ``point`` is None where ``problem`` says why it cannot be predicted."""

    id: str
    source: str
    stack: str
    cells: Cells
    point: Point | None
    problem: str
    step_time_s: float | None
    memory_bytes: float | None
    outcome: str
    grade: str

    @property
    def is_timed(self) -> bool:
        """Whether the row may be held against a prediction of its step time: complete, dense, 16 bits, nothing special."""
        plain = self.cells["moe_experts"] in ("", "n/a") and "fp8" not in self.cells["precision"].lower()
        odd = re.search(r"offload|LoRA", self.cells["notes"])
        return (
            self.point is not None and self.step_time_s is not None and self.outcome == "ok"
            and self.grade[:1] in ("A", "B") and plain and not odd and "fp4" not in self.cells["precision"]
        )  # fmt: skip


def read(path: Path, catalog: Catalog) -> list[Measurement]:
    """Every row of a CSV, plain or gzipped (``.gz``). Raises ``Invalid`` if it cannot be read or lacks columns."""
    try:
        table = list(csv.DictReader(io.StringIO(inputs.read_text(path), newline="")))
    except (OSError, inputs.Unreadable, csv.Error) as error:
        raise Invalid([f"measurements={path} cannot be read: {error}"]) from None
    if not table:
        raise Invalid([f"measurements={path}: the table has no rows."])
    missing = [name for name in NEEDED if name not in table[0]]
    if missing:
        raise Invalid([f"measurements={path}: columns {', '.join(missing)} are missing."])
    return _each_id_once([measurement(row, catalog) for row in table])


def _each_id_once(measurements: list[Measurement]) -> list[Measurement]:
    """Predictions go by their id: a later row with one that is taken has a problem."""
    first: dict[str, int] = {}
    found = []
    for number, each in enumerate(measurements, start=1):
        taken = first.setdefault(each.id, number)
        if taken < number and not each.problem:
            each = dataclasses.replace(each, point=None, problem=f"id={each.id} stands in row {taken} already.")
        found.append(each)
    return found


NEEDED = (
    "id",
    "layers",
    "hidden",
    "heads",
    "gpu",
    "n_gpus",
    "tp",
    "pp",
    "dp",
    "micro_batch",
    "global_batch",
    "seq_len",
)
_KNOWN = (
    *NEEDED, "source_group", "stack", "year", "model", "kv_heads", "ffn", "vocab", "gated_mlp", "moe_experts", "moe_topk",
    "gpus_per_node", "internode_net", "precision", "sp", "cp", "vpp", "ep", "zero_stage_or_fsdp", "schedule", "recompute",
    "optimizer", "measured_step_time_s", "derived_step_time_s", "mem_gb_per_gpu", "outcome", "notes", "inferred", "complete",
)  # fmt: skip

_PRINTED_VOCAB = {"ZeroBubble-2024": "32000"}
"""Sources that state no vocabulary, but the sizes of their models: to be of 14.6 and 28.3 billion parameters, one table of
32,000 rows has to come to the layers of Qi et al. 2024, table 3; 51,200 would make them 14.7 and 28.4."""

MOST_LAYERS = 1000
"""More in a measured row are a mistake: no published model has half as many."""


def measurement(row: Cells, catalog: Catalog) -> Measurement:
    """One row, its inferred values put where its own are blank."""
    cells = {name: (row.get(name) or "").strip() for name in _KNOWN}
    for pair in filter(None, cells["inferred"].split(";")):
        key, _, value = pair.partition("=")
        if key in cells and not cells[key]:
            cells[key] = _PRINTED_VOCAB.get(cells["source_group"], value) if key == "vocab" else value
    point, problem = None, ""
    try:
        point = point_of(cells, catalog)
    except (Invalid, ValueError, ArithmeticError, LookupError) as error:
        problem = " ".join(str(error).split())
    memory_gb = _positive(cells["mem_gb_per_gpu"])
    return Measurement(
        id=cells["id"],
        source=cells["source_group"] or "own",
        stack=cells["stack"],
        cells=cells,
        point=point,
        problem=problem,
        step_time_s=_positive(cells["measured_step_time_s"]) or _positive(cells["derived_step_time_s"]),
        memory_bytes=None if memory_gb is None else memory_gb * 1e9,
        outcome=cells["outcome"] or "ok",
        grade=cells["complete"] or "A",
    )


def point_of(cells: Cells, catalog: Catalog) -> Point:
    """The row as a resolved point. Raises ``Invalid`` or ``ValueError`` saying what cannot be."""
    absent = [name for name in NEEDED if not cells[name]]
    if absent:
        raise ValueError(f"{', '.join(absent)} not given")
    if wrong := problems(cells):
        raise ValueError(wrong)
    cluster = cluster_of(cells, catalog.clusters)
    if cluster is None:
        raise ValueError(f"gpu={cells['gpu']} is none that we know")
    known = recipe(cells, catalog.stacks)
    model = _model(cells)
    layout, training, schedule = _layout(cells, known.zero), known.training, known.schedule
    if training.attention == "flash3" and "flash3" not in cluster.flash_efficiency:
        training = dataclasses.replace(training, attention="flash")
    point = Point(
        model=model, cluster=cluster, layout=layout, training=training, schedule=schedule, costs=catalog.costs,
        stack=known.stack, options=known.options,
    )  # fmt: skip
    point = _legal(point)
    partition = partition_of(cells, model, layout.p * (point.layout.v or 1))
    placed = dataclasses.replace(point.layout, partition=partition, spread_vocab=known.spread_vocab)
    return dataclasses.replace(point, layout=placed)


def _legal(point: Point) -> Point:
    """Resolved; where the row's number of micro-batches is too small for its schedule, with the nearest that takes it."""
    for name in dict.fromkeys((point.schedule, "zb_h1", "1f1b")):
        tried = point
        if name != point.schedule:
            layout = dataclasses.replace(point.layout, v=None)
            tried = dataclasses.replace(point, schedule=name, layout=layout, options=())
        m = legality.micro_batches(tried)
        if not schedules.problems(name, tried.layout.p, max(m, 1), tried.layout.v, **dict(tried.options)):
            return legality.resolve(tried)
    return legality.resolve(point)


def _model(cells: Cells) -> ModelSpec:
    hidden, heads = _whole(cells["hidden"]), _whole(cells["heads"])
    if _whole(cells["layers"]) > MOST_LAYERS:
        raise ValueError(f"layers={cells['layers']} must be at most {MOST_LAYERS}")
    gated = cells["gated_mlp"] == "true"
    experts = cells["moe_experts"] not in ("", "n/a")
    vocab, t = _whole(cells["vocab"] or "51200"), _whole(cells["tp"])
    padded = -(-vocab // (128 * t)) * 128 * t
    ffn = _whole(cells["ffn"]) if cells["ffn"] else 4 * hidden
    moe = (
        Moe(experts=_whole(cells["moe_experts"]), top_k=_whole(cells["moe_topk"] or "2"), ffn=ffn) if experts else None
    )
    said = [note.strip() for note in cells["notes"].split(";")]
    tied = "tied embeddings" in said or (not gated and "untied embeddings" not in said)
    return ModelSpec(
        name=cells["model"] or "model",
        layers=_whole(cells["layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(cells["kv_heads"]) if cells["kv_heads"] else heads,
        head_dim=hidden // heads,
        ffn=ffn,
        vocab=padded,
        context=_whole(cells["seq_len"]),
        gated=gated,
        bias=not gated,
        tied_embeddings=tied,
        embedding_norm=False,
        final_norm=True,
        positions="rotary" if gated else "learned",
        norm="rmsnorm" if gated else "layernorm",
        moe=moe,
    )


def _layout(cells: Cells, zero: int) -> ParallelLayout:
    t, p, c = (_whole(cells[name] or "1") for name in ("tp", "pp", "cp"))
    gpus = _whole(cells["n_gpus"])
    if gpus % (t * p * c):
        raise ValueError(f"tp={t} x pp={p} x cp={c} does not divide n_gpus={gpus}")
    d = gpus // (t * p * c)
    found = re.search(r"FSDP2 (?:\(ZeRO-3\) )?(\d+)$|FSDP=(\d+)$", cells["zero_stage_or_fsdp"])
    shard = int(found[1] or found[2]) * c if found else None
    experts = 1 if cells["moe_experts"] in ("", "n/a") else _whole(cells["moe_experts"])
    spread = math.gcd(experts, d * c)  # unsaid: over as many ranks as there are
    e = min(_whole(cells["ep"]), d * c) if cells["ep"] else spread
    v = _whole(cells["vpp"]) if cells["vpp"] and p > 1 and _whole(cells["vpp"]) > 1 else None
    return ParallelLayout(
        t=t, p=p, d=d, c=c, e=e, v=v, zero=zero, shard=shard if shard and shard < d * c else None,
        sequence_parallel=t > 1 and cells["sp"] == "true",
    )  # fmt: skip


def _whole(text: str) -> int:
    value = float(text)
    if value != int(value):
        raise ValueError(f"{text} is no whole number")
    return int(value)


def _positive(text: str) -> float | None:
    """What was measured, if it is a number that can have been."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if LEAST <= value <= MOST else None
