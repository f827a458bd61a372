"""The one row schema. Every asked point is a row; every column has a type, a unit in its name and a meaning here."""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

_TEXT, _INT, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_INTS, _REALS = pa.list_(pa.int64()), pa.list_(pa.float64())

COLUMNS: dict[str, tuple[pa.DataType, str]] = {
    "point_id": (_TEXT, "hash of the resolved config"),
    "status": (_TEXT, "ok, infeasible (does not fit), invalid (breaks rules) or failed"),
    "reason": (_TEXT, "why it is not ok: the shortfall, or every broken rule"),
    "settings": (_TEXT, "what else was swept: config keys that have no column, with their values"),
    "warning": (_TEXT, "what runs but is unwise"),
    "case": (_TEXT, "the demo that asked, if one did"),
    "model": (_TEXT, "model.name"),
    "cluster": (_TEXT, "cluster.name"),
    "stack": (_TEXT, "stack.name"),
    "costs": (_TEXT, "costs.kind"),
    "gpus": (_INT, "GPUs used, t p d c"),
    "t": (_INT, "tensor-parallel degree"),
    "p": (_INT, "pipeline-parallel degree"),
    "d": (_INT, "data-parallel degree"),
    "c": (_INT, "context-parallel degree"),
    "e": (_INT, "expert-parallel degree"),
    "v": (_INT, "virtual stages per rank"),
    "schedule": (_TEXT, "schedule.name"),
    "schedule_options": (_TEXT, "the schedule's own options that were set, as JSON"),
    "zero": (_INT, "ZeRO stage"),
    "recompute": (_TEXT, "none, selective, operators or full"),
    "sequence_parallel": (_FLAG, ""),
    "precision": (_TEXT, "of matrix products"),
    "attention": (_TEXT, "the kernel: torch, unfused, flash1, flash or flash3"),
    "micro_batch": (_INT, "sequences"),
    "global_batch": (_INT, "sequences"),
    "seq_length": (_INT, "tokens"),
    "num_microbatches": (_INT, "m, per replica and step"),
    "model_params": (_REAL, "parameters of the model; of the lecture's costs, to three digits"),
    "params_per_gpu": (_REAL, "parameters on the heaviest rank"),
    "model_state_bytes": (_REAL, "weights, gradients and optimizer state of the heaviest rank"),
    "weights_bytes": (_REAL, "heaviest rank"),
    "gradients_bytes": (_REAL, "heaviest rank"),
    "optimizer_bytes": (_REAL, "heaviest rank"),
    "activation_bytes": (_REAL, "heaviest rank: in flight, and the block being recomputed"),
    "logits_bytes": (_REAL, "heaviest rank"),
    "buffers_bytes": (_REAL, "heaviest rank: weights gathered for use"),
    "slack_bytes": (_REAL, "heaviest rank: what the allocator holds above what was asked for"),
    "context_bytes": (_REAL, "device context and libraries"),
    "memory_bytes": (_REAL, "heaviest rank, everything"),
    "memory_lo_bytes": (_REAL, "lower end of the 90 % interval"),
    "memory_hi_bytes": (_REAL, "upper end of the 90 % interval"),
    "memory_limit_bytes": (_REAL, "of one GPU; where they differ, of the smallest of the rank shown"),
    "fits": (_FLAG, "memory_bytes <= memory_limit_bytes"),
    "heaviest_rank": (_INT, "the pipeline rank that holds most; where GPUs differ, that has least to spare"),
    "rank_memory_bytes": (_REALS, "every rank's memory"),
    "rank_parts": (_INTS, "on which of cluster.parts each rank has GPUs, as bits: 5 is the first and the third"),
    "peak_inflight": (_INTS, "most activations held at once, per rank"),
    "stage_units": (_INTS, "units on each stage: embedding, layers, head"),
    "imbalance": (_REAL, "the slowest rank's work over the mean"),
    "efficiency_bound": (
        _REAL,
        "the most that this partition lets the pipeline reach: mean work over the slowest rank's",
    ),
    "bubble_fraction": (_REAL, "idle / (p makespan)"),
    "bubble_overhead": (_REAL, "idle / useful"),
    "makespan_s": (_REAL, "of the simulated pipeline"),
    "hop_s": (_REAL, "seconds of one send between ranks"),
    "stage_forward_s": (_REALS, "per stage and micro-batch"),
    "stage_input_grad_s": (_REALS, "per stage and micro-batch"),
    "stage_weight_grad_s": (_REALS, "per stage and micro-batch"),
    "stage_activation_bytes": (_REALS, "per stage, of one micro-batch in flight, allocator's slack included"),
    "dp_bytes_per_gpu": (
        _REAL,
        "sent per step by the heaviest rank for gradients and weights, all but the gradient of tied embeddings",
    ),
    "tp_bytes_per_gpu": (_REAL, "sent per step in tensor-parallel collectives"),
    "pp_bytes_per_gpu": (_REAL, "sent per step to neighbour stages"),
    "communication": (
        _TEXT,
        "JSON lists, of each dimension's rank that sends most: dimension, collective, ranks, leaves its node, groups that "
        "share a node's network, messages a step, bytes of one, bytes sent a step",
    ),
    "matmul_s": (_REAL, "matrix products, mean over ranks"),
    "attention_s": (_REAL, "mean over ranks"),
    "elementwise_s": (_REAL, "mean over ranks"),
    "launch_s": (_REAL, "waiting for the host, mean over ranks"),
    "recompute_s": (_REAL, "forward again, mean over ranks"),
    "tp_s": (_REAL, "mean over ranks"),
    "cp_s": (_REAL, "mean over ranks"),
    "ep_s": (_REAL, "mean over ranks"),
    "vocab_s": (_REAL, "communication of a vocabulary spread over the pipeline, mean over ranks"),
    "imbalance_s": (_REAL, "slowest rank's work over the mean"),
    "bubble_s": (_REAL, "slowest rank's idle time with free sends"),
    "pp_exposed_s": (_REAL, "what sends add to the makespan"),
    "dp_exposed_s": (
        _REAL,
        "gradients, weights and the gradient of tied embeddings, where not hidden behind computing",
    ),
    "optimizer_s": (_REAL, "weight update"),
    "fixes": (_TEXT, "JSON: seconds that each fix alone could gain at most"),
    "fixed_s": (_REAL, "once a step: logging, data, synchronisation"),
    "step_time_s": (_REAL, "sum of the items"),
    "step_time_lo_s": (_REAL, "lower end of the 90 % interval; empty for idealised costs"),
    "step_time_hi_s": (_REAL, "upper end of the 90 % interval; empty for idealised costs"),
    "extrapolates": (_TEXT, "why the intervals are wider than those of layouts like the measured ones"),
    "tokens_per_s": (_REAL, ""),
    "tokens_per_s_per_gpu": (_REAL, ""),
    "flop_convention": (_TEXT, "which FLOPs the next three count: palm, causal, kaplan or narayanan"),
    "model_tflops_per_gpu": (_REAL, "model FLOPs, no recomputation"),
    "mfu": (_REAL, "model FLOPs over peak dense"),
    "hfu": (_REAL, "hardware FLOPs, recomputation included, over peak dense"),
    "verdict": (_TEXT, "what bounds the step: compute, bubble, imbalance, tp, pp, dp, cp, ep, vocab or memory"),
}

VERSION = 5
"""Of the columns and of the rows' order. A change of either is a new version with a step in ``UPGRADES``."""

_UNITS = (
    ("tokens_per_s_per_gpu", "tokens/s"), ("tokens_per_s", "tokens/s"), ("tflops_per_gpu", "TFLOP/s"), ("_bytes_per_gpu", "bytes"),
    ("_bytes", "bytes"), ("_s", "s"), ("params_per_gpu", "parameters"), ("model_params", "parameters"), ("gpus", "GPUs"),
    ("micro_batch", "sequences"), ("global_batch", "sequences"), ("seq_length", "tokens"), ("stage_units", "units"),
    ("num_microbatches", "micro-batches"), ("peak_inflight", "micro-batches"),
)  # fmt: skip
"""Endings of names, the first that fits counts, and their units; every other number has none."""

_ABOUT = b"pipesim"
"""The key of the schema's metadata: a JSON text with the version and the units."""


def unit(name: str) -> str | None:
    """The unit of a column's values, ``None`` of bare numbers, texts and flags.

    >>> unit("step_time_s"), unit("memory_bytes"), unit("mfu")
    ('s', 'bytes', None)
    """
    number = COLUMNS[name][0] not in (_TEXT, _FLAG)
    return next((sign for ending, sign in _UNITS if number and name.endswith(ending)), None)


_SAID = json.dumps({"version": VERSION, "units": {name: unit(name) for name in COLUMNS if unit(name)}})

SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=True) for name, (kind, _) in COLUMNS.items()], metadata={_ABOUT: _SAID.encode()}
)

SORT_KEYS = (
    "case", "model", "cluster", "stack", "costs", "schedule", "zero", "recompute", "sequence_parallel", "precision",
    "attention", "settings", "t", "p", "c", "d", "e", "v", "micro_batch", "global_batch", "seq_length", "point_id",
)  # fmt: skip
"""Rows stand in the rising order of these columns, what is missing first."""


class WrongTable(ValueError):
    """Rows that do not fit the schema, or a table of a version that cannot be read; the message says why."""


def table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows sorted, in the declared schema; a column that a row lacks is empty, one that the schema lacks an error.

    Raises ``WrongTable`` for a value that is not of its column's type: nothing is converted but whole numbers to reals.
    """
    asked = list(rows)
    unknown = {name for row in asked for name in row} - set(COLUMNS)
    assert not unknown, f"columns without a schema: {sorted(unknown)}"
    columns = [_column(name, [row.get(name) for row in asked]) for name in COLUMNS]
    return sorted_table(pa.table(columns, schema=SCHEMA))


def sorted_table(rows: pa.Table) -> pa.Table:
    """The rows in the order of ``SORT_KEYS``, texts by their code points; without a Python object per row."""
    keys = [(name, "ascending", "at_start") for name in SORT_KEYS if not _is_constant(rows[name])]
    if not keys:
        return rows
    order = pc.sort_indices(rows.select([name for name, *_ in keys]), sort_keys=keys).to_numpy()
    return rows if np.array_equal(order, np.arange(len(order))) else rows.take(order)


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The table as a pandas frame with nullable types, so that a missing whole number leaves the others whole."""
    import pandas as pd

    nullable = {
        pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype(),
    }  # fmt: skip
    return table(rows).to_pandas(types_mapper=nullable.get)


def version(stored: pa.Schema) -> int:
    """Of a table's schema: what its metadata says; tables of before there were versions are the first.

    Raises ``WrongTable`` if it says something else than a version.
    """
    said = (stored.metadata or {}).get(_ABOUT)
    try:
        found = 1 if said is None else json.loads(said)["version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        found = None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise WrongTable(f"its schema says no version: {str(said)[:80]}.")
    return found


def upgraded(stored: pa.Table, columns: Iterable[str] | None = None) -> pa.Table:
    """A table of this version or an older one, in ``SCHEMA``, or in those of its columns that were read.

    Raises ``WrongTable`` for a newer version, and for other columns or types than its version has.
    """
    written = version(stored.schema)
    if written > VERSION:
        raise WrongTable(
            f"it has version {written} of the schema and this pipesim knows {VERSION}: a newer one wrote it."
        )
    for step in range(written, VERSION):
        stored = UPGRADES[step](stored)
    if columns is not None and written < VERSION:
        stored = stored.select([name for name in columns if name in stored.schema.names])
    wanted = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns], SCHEMA.metadata)
    if stored.schema.names != wanted.names:
        odd = sorted(set(stored.schema.names) ^ set(wanted.names))
        raise WrongTable(
            f"it has other columns than version {written} of the schema: {', '.join(odd) or 'their order'}."
        )
    for has, declared in zip(stored.schema, wanted, strict=True):
        if not _same_type(has.type, declared.type):
            raise WrongTable(f"its column {has.name} holds {has.type} and must hold {declared.type}.")
    return stored.cast(wanted)


def with_new_columns(stored: pa.Table) -> pa.Table:
    """Version 1 had neither collectives nor fixes nor a choice of FLOPs, and left rows that differ only in zero, recompute,
    precision, attention or settings in order of their ids.
    """
    if set(SORT_KEYS) - set(stored.schema.names):
        return stored
    return sorted_table(_with_empty(stored, "communication", "fixes", "flop_convention"))


def with_stage_activations(stored: pa.Table) -> pa.Table:
    """Version 2 did not say what each stage holds for one micro-batch."""
    return _with_empty(stored, "stage_activation_bytes")


def with_parts(stored: pa.Table) -> pa.Table:
    """Version 3 knew no clusters of several parts."""
    return _with_empty(stored, "rank_parts")


def with_spread_vocabulary(stored: pa.Table) -> pa.Table:
    """Version 4 priced no communication of a spread vocabulary: it has none where a row has items."""
    wider = _with_empty(stored, "vocab_s")
    if not {"vocab_s", "matmul_s"} <= set(wider.schema.names):
        return wider
    none = pc.multiply(wider["matmul_s"], 0.0)
    return wider.set_column(wider.schema.get_field_index("vocab_s"), "vocab_s", none)


def _with_empty(stored: pa.Table, *later: str) -> pa.Table:
    names = [name for name in SCHEMA.names if name in later or name in stored.schema.names]
    columns = [pa.nulls(len(stored), COLUMNS[name][0]) if name in later else stored[name] for name in names]
    return pa.table([*columns], names=names) if len(names) == len({*stored.schema.names, *later}) else stored


UPGRADES: dict[int, Callable[[pa.Table], pa.Table]] = {1: with_new_columns, 2: with_stage_activations, 3: with_parts,
    4: with_spread_vocabulary,
}  # fmt: skip
"""From each older version the step to the next."""


def _column(name: str, values: list[Any]) -> pa.Array:
    kind = COLUMNS[name][0]
    try:
        return pa.array([_value(name, kind, value) for value in values], kind)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise WrongTable(f"column {name} cannot hold what it should: {error}.") from None


_PYTHON: dict[pa.DataType, type | tuple[type, ...]] = {
    _TEXT: str, _INT: numbers.Integral, _REAL: numbers.Real, _FLAG: (bool, np.bool_),
}  # fmt: skip


def _value(name: str, kind: pa.DataType, value: Any) -> Any:
    """The value as arrow takes it for this type."""
    if value is None:
        return None
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return [_value(name, kind.value_type, each) for each in value]
    if not isinstance(value, _PYTHON.get(kind, ())) or (isinstance(value, bool) and kind != _FLAG):
        raise WrongTable(f"column {name} holds {kind}, and {value!r:.80} is none.")
    return float(value) if isinstance(value, numbers.Real) and kind == _REAL else value


def _is_constant(column: pa.ChunkedArray) -> bool:
    if column.null_count in (0, len(column)):
        ends = pc.min_max(column)
        return bool(ends["min"].equals(ends["max"]))
    return False


def _same_type(has: pa.DataType, declared: pa.DataType) -> bool:
    """Whatever a list calls its elements."""
    if pa.types.is_list(declared):
        return bool(pa.types.is_list(has) and has.value_type == declared.value_type)
    return bool(has == declared)
