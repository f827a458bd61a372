"""The same rows by llm-analysis, a calculator from the package index, as one calls it.

It is not needed: what it says of the packaged tables is kept as data. Where it is installed (``pip install
pipesim[peers]``), it is asked about tables of one's own too.
"""

from __future__ import annotations

import csv
import gzip
import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources, util

import numpy as np

from pipesim.calibrate.rows import Measurement
from pipesim.costs.columns import FloatArray
from pipesim.specs import Point

NAME, TABLE = "llm-analysis", "llm_analysis.csv.gz"

FLOPS_EFFICIENCY = 0.5
"""What its source says of Megatron-LM ("~0.5 for LLM training"); its own default of 1 is the peak."""

_RECOMPUTE = {"none": "NONE", "operators": "NONE", "selective": "SELECTIVE", "full": "FULL"}
_GPUS = {"v100": "v100-sxm-32gb", "a100_40g": "a100-sxm-40gb", "a100_80g": "a100-sxm-80gb", "h100": "h100-sxm-80gb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Step times that a peer predicts, one a row; not a number where it has none. ``note`` says how they were made."""

    step_time_s: FloatArray
    note: str


def llm_analysis(measurements: Sequence[Measurement], packaged: Sequence[bool]) -> Peer:
    """Kept figures for rows of packaged tables; the others are asked of llm-analysis, if it is there."""
    kept, version = _kept()
    live = installed()
    asked = [i for i, own in enumerate(packaged) if not own] if live else []
    values = np.array(
        [kept.get(each.id, np.nan) if own else np.nan for each, own in zip(measurements, packaged, strict=True)]
    )
    for i in asked:
        values[i] = step_time_s(measurements[i].point)
    return Peer(step_time_s=values, note=_note(version, live, own_rows=not all(packaged)))


def _note(version: str, live: str | None, *, own_rows: bool) -> str:
    note = (
        f"{NAME} {live if own_rows and live else version} with flops_efficiency={FLOPS_EFFICIENCY}, nothing fitted: its "
        "latency_per_iter, which counts no bubble and no communication; it knows no context parallelism."
    )
    if own_rows and not live:
        note += f" It is not installed, so that own rows have no figure of it: pip install {NAME}."
    return note


def installed() -> str | None:
    """Its version, if it is there."""
    return metadata.version(NAME) if util.find_spec("llm_analysis") else None


def step_time_s(point: Point | None) -> float:
    """llm-analysis's ``latency_per_iter`` for a resolved point; not a number if it refuses. Needs the package.

    It knows no context parallelism: points that use it have no figure.
    """
    from llm_analysis import analysis, config, logger  # type: ignore[import-not-found]

    if point is None or point.cluster.chip not in _GPUS or point.layout.c > 1:
        return float("nan")
    logger.logger.setLevel(logging.ERROR)
    model, layout, training = point.model, point.layout, point.training
    seq_length = training.seq_length or model.context
    asked = analysis.LLMAnalysis(
        config.ModelConfig(
            name=model.name, num_layers=model.layers, n_head=model.heads, hidden_dim=model.hidden, vocab_size=model.vocab,
            max_seq_len=seq_length, num_key_value_heads=model.kv_heads, ffn_embed_dim=model.ffn,
            expansion_ratio=model.ffn / model.hidden,
        ),
        config.get_gpu_config_by_name(_GPUS[point.cluster.chip]),
        config.DtypeConfig(),
        config.ParallelismConfig(
            tp_size=layout.t, pp_size=layout.p, dp_size=layout.d, sp_size=layout.t if layout.sequence_parallel else 1
        ),
        flops_efficiency=FLOPS_EFFICIENCY,
    )  # fmt: skip
    try:
        said = asked.training(
            batch_size_per_gpu=training.micro_batch, global_batch_size=training.global_batch, seq_len=seq_length,
            activation_recomputation=getattr(analysis.ActivationRecomputation, _RECOMPUTE[training.recompute]),
            ds_zero=analysis.DSZeRO(layout.zero), flash_attn=training.attention.startswith("flash"),
        )  # fmt: skip
    except (AssertionError, ArithmeticError):
        return float("nan")
    return float(said["latency_per_iter"])


def table(measurements: Sequence[Measurement]) -> bytes:
    """The kept figures of these rows, as they are packaged."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("id", "step_time_s", "version"))
    for each in measurements:
        value = step_time_s(each.point)
        if np.isfinite(value):
            writer.writerow((each.id, f"{value:.6g}", installed()))
    return gzip.compress(out.getvalue().encode(), mtime=0)


@cache
def _kept() -> tuple[dict[str, float], str]:
    packed = (resources.files(__package__) / "data" / TABLE).read_bytes()
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(packed).decode())))
    return {row["id"]: float(row["step_time_s"]) for row in rows}, rows[0]["version"] if rows else ""
