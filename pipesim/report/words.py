"""Words that reports share: what items are called, what measures mean, where a study comes from."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from pipesim.report.formats import show

TIME_WORDS = {
    "matmul": "matrix products",
    "attention": "attention",
    "elementwise": "elementwise kernels",
    "launch": "waiting for the host",
    "recompute": "recomputation",
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert-parallel communication",
    "imbalance": "imbalance of stages",
    "bubble": "bubble (fill and drain)",
    "pp_exposed": "pipeline sends, exposed",
    "dp_exposed": "data-parallel communication, exposed",
    "optimizer": "optimizer",
    "fixed": "fixed cost of a step",
}

MEMORY_WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activation": "activations",
    "logits": "logits and loss",
    "buffers": "gathered weights and fp8 copies",
    "slack": "allocator's slack",
    "context": "device context and libraries",
}

FLOP_WORDS = {
    "palm": (
        "6 N + 12 L H Q T FLOPs a token (Chowdhery et al. 2022, appendix B: N weights a token is multiplied with, L layers, H "
        "heads of size Q, T tokens of context; the full square of scores)"
    ),
    "causal": "6 N + 6 L H Q T FLOPs a token, as palm but without the masked half of attention",
    "kaplan": "6 N FLOPs a token (Kaplan et al. 2020: N weights of the layers, or all parameters with idealised costs)",
    "narayanan": (
        "96 L h^2 (1 + s / 6h + V / 16Lh) FLOPs a token (Narayanan et al. 2021, equation 3, per token; h hidden size, s tokens "
        "of context, V vocabulary), which counts recomputation always, so that MFU and HFU are one"
    ),
}
"""What each convention of ``costs.flops`` counts."""

_MEASURES = (
    "Bubble fraction = idle / (p x makespan), for equal stages (p-1)/(m+p-1); bubble overhead = idle / useful, (p-1)/m. "
    "GB is 1e9 bytes, GiB 2**30 bytes, 7.4 % more. Items of computing and of communication on the way are means over the ranks "
    "of the pipeline; the slowest rank's excess is imbalance, its idle time bubble. A fixed cost is paid once a step: data, "
    "logging, waiting for each other.",
    "Activations are those in flight and the layer that is being recomputed; slack is what the allocator holds above what "
    "is asked for, the device context what driver and libraries hold.",
)


def definitions(conventions: Collection[str] = ("palm",)) -> tuple[str, ...]:
    """What the measures mean, with the FLOPs that these conventions count."""
    counts = "; or ".join(f"{FLOP_WORDS[each]} [{each}]" for each in conventions)
    return (
        f"MFU = model FLOPs / (time x GPUs x peak dense FLOP/s), with {counts}. HFU = hardware FLOPs / the same: model FLOPs "
        "and those of recomputation. costs.flops chooses what is counted.",
        *_MEASURES,
    )


def layout_name(row: Mapping[str, Any], varied: Collection[str] = ("micro_batch", "schedule")) -> str:
    """``t4 p12 d8 b2 1f1b``: the degrees (those of 1 beyond t, p, d are left out), and whatever else is ``varied``."""
    degrees = "".join(f" {key}{row[key]}" for key in ("c", "e", "v") if (row[key] or 1) > 1)
    signs = {
        "micro_batch": f"b{row['micro_batch']}", "global_batch": f"B{row['global_batch']}", "zero": f"ZeRO-{row['zero']}",
        "sequence_parallel": "SP" if row["sequence_parallel"] else "", "seq_length": f"s{row['seq_length']}",
    }  # fmt: skip
    words = ("schedule", "recompute", "attention", "precision", "stack", "costs", "model", "cluster", "settings")
    more = [signs[name] for name in signs if name in varied] + [str(row[name]) for name in words if name in varied]
    return " ".join([f"t{row['t']} p{row['p']} d{row['d'] or '?'}{degrees}", *filter(None, more)])


def trust(row: Mapping[str, Any]) -> str:
    """How far off the seconds may be: their interval, and where they extrapolate."""
    if row["costs"] != "full":
        return "Idealised costs: closed forms to learn from, not to plan with."
    low, high = row["step_time_lo_s"], row["step_time_hi_s"]
    text = f"Of runs like this nine in ten lie between {show(low, 'seconds')} and {show(high, 'seconds')}"
    return f"{text}. {row['extrapolates']}" if row["extrapolates"] else f"{text}."


def provenance(manifest: Mapping[str, Any]) -> str:
    """The command without the places where its study was made and went to, on which a report does not depend."""
    overrides = [word for word in manifest["overrides"] if not word.startswith(("study.dir", "study.name", "engine"))]
    own_axes = any(word.startswith(("grid=", "experiment=")) for word in overrides)
    swept = ["-m"] if manifest["kind"] in ("sweep", "runs") and not own_axes else []
    command = shlex.join(["python", "experiments/run.py", *swept, *overrides])
    return f"Made by pipesim {manifest['versions']['pipesim']}: {command}"
