"""What is wrong with the cells of a row of the published columns: what would else be rounded, dropped or taken for another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pipesim.calibrate import lint
from pipesim.calibrate.lint import Finding
from pipesim.schedules import canonical_name

WHOLE = (
    "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "seq_len", "n_gpus", "gpus_per_node", "tp", "pp", "dp", "cp",
    "vpp", "ep", "micro_batch", "global_batch", "moe_experts", "moe_topk", "year",
)  # fmt: skip
REAL = ("measured_step_time_s", "derived_step_time_s", "mem_gb_per_gpu")
FLAGS = ("sp", "gated_mlp")
BLANK = ("", "n/a")

WORDS = {
    "precision": (r"bf16|fp16|fp8", "bf16, fp16 or fp8"),
    "recompute": (r"none|full|selective|op", "none, selective, operators or full"),
    "zero_stage_or_fsdp": (r"zero-[0-3]|stage[12]|fsdp|none", "none, ZeRO-0 to ZeRO-3 or FSDP"),
}
"""Columns of free words: what must stand in them, and how a message says so."""

SCHEDULES = re.compile(
    r"1f1b|no pipeline|interlaced|vocabulary|zb|gpipe|all-forward|interleaved|dualpipe|v-?half|v-?min"
)


def problems(cells: Mapping[str, str]) -> str:
    """Everything that is wrong, a sentence each; empty where nothing is. Blank cells are no matter."""
    given = {name: text for name, text in cells.items() if text not in BLANK}
    return " ".join(str(finding) for finding in _findings(given))


def _findings(given: Mapping[str, str]) -> Iterator[Finding]:
    for name in WHOLE:
        yield from lint.whole(name, given.get(name, "1"))
    for name in REAL:
        yield from lint.real(name, given.get(name, "1"))
    for name in FLAGS:
        if given.get(name, "true") not in ("true", "false"):
            yield Finding(name, repr(given[name]), "must be true or false")
    for name, (pattern, said) in WORDS.items():
        if name in given and not re.search(pattern, given[name].lower()):
            yield Finding(name, repr(given[name]), f"must name {said}")
    schedule = given.get("schedule", "1f1b")
    if not SCHEDULES.search(schedule.lower()) and canonical_name(schedule) is None:
        yield Finding("schedule", repr(schedule), "is none that we know")
