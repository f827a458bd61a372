"""The one row schema. Every asked point is a row; every column has a type, a unit in its name and a meaning here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

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
    "memory_limit_bytes": (_REAL, "of one GPU"),
    "fits": (_FLAG, "memory_bytes <= memory_limit_bytes"),
    "heaviest_rank": (_INT, "the pipeline rank that holds most"),
    "rank_memory_bytes": (_REALS, "every rank's memory"),
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
    "dp_bytes_per_gpu": (_REAL, "sent per step by the heaviest rank for gradients and weights"),
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
    "imbalance_s": (_REAL, "slowest rank's work over the mean"),
    "bubble_s": (_REAL, "slowest rank's idle time with free sends"),
    "pp_exposed_s": (_REAL, "what sends add to the makespan"),
    "dp_exposed_s": (_REAL, "gradient reduction not hidden behind computing"),
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
    "verdict": (_TEXT, "what bounds the step: compute, bubble, imbalance, tp, pp, dp, cp, ep or memory"),
}

SCHEMA = pa.schema([pa.field(name, kind, nullable=True) for name, (kind, _) in COLUMNS.items()])

ORDER = (
    "case", "model", "cluster", "stack", "costs", "schedule", "zero", "recompute", "sequence_parallel", "precision",
    "attention", "settings", "t", "p", "c", "d", "e", "v", "micro_batch", "global_batch", "seq_length", "point_id",
)  # fmt: skip
"""The columns by which rows are sorted."""


def table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows sorted, in the declared schema; a column that a row lacks is empty, one that the schema lacks an error."""
    listed = list(rows)
    unknown = {name for row in listed for name in row} - set(COLUMNS)
    assert not unknown, f"columns without a schema: {sorted(unknown)}"
    return sorted_table(pa.table({name: [row.get(name) for row in listed] for name in COLUMNS}, schema=SCHEMA))


def sorted_table(table: pa.Table) -> pa.Table:
    """The same rows in the order of every study, what is missing first."""
    keys = [(name, "ascending", "at_start") for name in ORDER]
    return table.take(pc.sort_indices(table, sort_keys=keys))


def frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The table as a pandas frame with nullable types, so that a missing whole number leaves the others whole."""
    import pandas as pd

    nullable = {
        pa.int64(): pd.Int64Dtype(), pa.float64(): pd.Float64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype(),
    }  # fmt: skip
    return table(rows).to_pandas(types_mapper=nullable.get)
