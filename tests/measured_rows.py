"""Measured rows for tests: one that every table could hold, with cells changed, as text of a table."""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Mapping

from pipesim.calibrate import rows, tables
from pipesim.calibrate.rows import Catalog, Measurement
from pipesim.calibrate.validate import Validation, validate

CELLS = {
    "id": "a", "source_group": "one source", "stack": "megatron-lm", "year": "2021", "model": "GPT-8B", "layers": "32",
    "hidden": "4096", "heads": "32", "ffn": "16384", "vocab": "51200", "seq_len": "2048", "gated_mlp": "false",
    "moe_experts": "n/a", "gpu": "A100-80G-SXM", "n_gpus": "32", "gpus_per_node": "8", "precision": "bf16", "tp": "4",
    "pp": "2", "dp": "4", "sp": "false", "schedule": "1F1B", "recompute": "full", "micro_batch": "2", "global_batch": "64",
    "zero_stage_or_fsdp": "none", "measured_step_time_s": "5.0", "mem_gb_per_gpu": "40", "outcome": "ok", "notes": "",
    "inferred": "", "complete": "A",
}  # fmt: skip


@functools.cache
def catalog() -> Catalog:
    return tables.catalog()


def measured(**cells: str) -> Measurement:
    """One row with some cells changed."""
    return rows.measurement(CELLS | cells, catalog())


def table(*changes: Mapping[str, str]) -> str:
    """A CSV of such rows."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(CELLS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(CELLS | each for each in changes)
    return out.getvalue()


@functools.cache
def packaged() -> Validation:
    """Predictions of everything that is packaged."""
    return validate([(name, tables.packaged(name, catalog())) for name in tables.TABLES])
