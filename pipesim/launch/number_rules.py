"""Frameworks' rules about numbers, for one point or columns of many: what holds is arithmetic, so both say the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pipesim.checks import nearest_divisors
from pipesim.specs import Point

Numbers = Mapping[str, Any]
"""t, p, d, c, e, v, micro_batch, global_batch and seq_length: numbers of one resolved point, or columns (n,)."""


class Rule(NamedTuple):
    """``holds`` of a point's words and numbers, for the frameworks ``of``; ``say`` is told where it does not."""

    of: tuple[str, ...]
    holds: Callable[[Point, Numbers], Any]
    say: Callable[[Point, Numbers], str]


def numbers_of(point: Point) -> dict[str, int]:
    layout, training = point.layout, point.training
    degrees = {key: getattr(layout, key) or 1 for key in ("t", "p", "d", "c", "e", "v")}
    return degrees | {
        "micro_batch": training.micro_batch, "global_batch": training.global_batch,
        "seq_length": training.seq_length or point.model.context,
    }  # fmt: skip


def _m(numbers: Numbers) -> Any:
    return numbers["global_batch"] // np.maximum(numbers["micro_batch"] * numbers["d"], 1)


def _group(like: Point, numbers: Numbers) -> Any:
    return np.maximum(dict(like.options).get("group") or numbers["p"], 1)


def _groups_hold(like: Point, numbers: Numbers) -> Any:
    """The schedule's groups hold p to m micro-batches, the last one too, if not m is their multiple."""
    group, m = _group(like, numbers), _m(numbers)
    inside = (numbers["p"] <= group) & (group <= m) & ((m % group == 0) | (m % group >= numbers["p"]))
    return (numbers["p"] == 1) | (like.schedule != "interleaved_1f1b") | inside


def _groups_say(like: Point, numbers: Numbers) -> str:
    p, m = int(numbers["p"]), int(_m(numbers))
    works = range(p, m + p + 1, p)
    near = [each for each in works if each <= m][-1:] + [each for each in works if each > m][:1]
    return (
        f"schedule=interleaved_1f1b takes groups of schedule.group={dict(like.options).get('group') or p} micro-batches, and "
        f"num_microbatches={m} leaves one that is smaller than parallel.p={p}. Nearest: schedule.group=null with "
        f"num_microbatches={' or '.join(map(str, near))} (training.global_batch / (training.micro_batch * parallel.d))."
    )


def _rounds_hold(like: Point, numbers: Numbers) -> Any:
    """PyTorch cuts m micro-batches into max(1, m // p) equal rounds."""
    m = _m(numbers)
    looped = like.schedule in ("interleaved_1f1b", "interleaved_zb")
    return (numbers["p"] == 1) | (not looped) | (m % np.maximum(m // np.maximum(numbers["p"], 1), 1) == 0)


def _rounds_say(like: Point, numbers: Numbers) -> str:
    p, m = int(numbers["p"]), int(_m(numbers))
    works = [each for each in range(1, m + p + 1) if each % max(1, each // p) == 0]
    near = [each for each in works if each < m][-1:] + [each for each in works if each > m][:1]
    return (
        f"schedule={like.schedule} cuts num_microbatches={m} into {m // p} rounds, which do not divide it. Nearest: "
        f"num_microbatches={' or '.join(map(str, near))} (training.global_batch / (training.micro_batch * parallel.d))."
    )


def _shard_holds(like: Point, numbers: Numbers) -> Any:
    shard = like.layout.shard
    return shard is None or shard % numbers["c"] == 0


def _one_recompute(like: Point, _: Numbers) -> bool:
    again = like.training.recompute_layers
    same = again is None or isinstance(again, int) or len(set(again)) == 1
    return same and (again is None or like.training.recompute == "full")


RULES = (
    Rule(
        ("megatron_lm", "torchtitan", "nanotron"),
        lambda like, n: like.model.kv_heads % n["t"] == 0,
        lambda like, n: f"parallel.t={n['t']} does not divide model.kv_heads={like.model.kv_heads}. "
        f"Nearest: parallel.t={nearest_divisors(like.model.kv_heads, int(n['t']))}.",
    ),
    Rule(
        ("megatron_lm",),
        lambda like, n: (n["t"] == 1) | (like.model.moe is None) | like.layout.sequence_parallel,
        lambda like, n: f"parallel.t={n['t']} with a mixture of experts needs parallel.sequence_parallel=true, and it is "
        "false. Nearest: parallel.sequence_parallel=true, or parallel.t=1.",
    ),
    Rule(
        ("megatron_lm",),
        lambda like, n: (n["e"] == 1) | (like.training.precision != "fp16"),
        lambda like, n: f"parallel.e={n['e']} does not go with training.precision=fp16. Nearest: training.precision=bf16.",
    ),
    Rule(
        ("megatron_lm", "torchtitan", "nanotron"),
        lambda like, n: (n["c"] == 1) | (n["seq_length"] % (2 * n["c"]) == 0),
        lambda like, n: f"parallel.c={n['c']} cuts the sequence into twice as many parts, and {2 * n['c']} does not divide "
        f"training.seq_length={n['seq_length']}. Nearest: parallel.c={nearest_divisors(int(n['seq_length']) // 2, int(n['c']))}.",
    ),
    Rule(
        ("megatron_lm",),
        lambda like, n: (like.layout.context != "ulysses") | (like.model.kv_heads % (n["t"] * n["c"]) == 0),
        lambda like, n: f"parallel.t={n['t']} x parallel.c={n['c']} does not divide model.kv_heads={like.model.kv_heads}, which "
        "parallel.context=ulysses shares out. Nearest: parallel.context=ring, or "
        f"parallel.c={nearest_divisors(max(like.model.kv_heads // int(n['t']), 1), int(n['c']))}.",
    ),
    Rule(("megatron_lm",), _groups_hold, _groups_say),
    Rule(("torchtitan",), _rounds_hold, _rounds_say),
    Rule(
        ("torchtitan",),
        lambda like, n: (n["d"] * n["c"] == 1) | (like.layout.zero > 0) | ((n["t"] == 1) & (n["c"] == 1)),
        lambda like, n: f"parallel.zero=0 takes no other parallelism than d, and parallel.t={n['t']} x parallel.c={n['c']} is "
        "more than 1. Nearest: parallel.zero=2 or 3.",
    ),
    Rule(
        ("torchtitan",),
        _shard_holds,
        lambda like, n: f"parallel.c={n['c']} does not divide parallel.shard={like.layout.shard}, in which its ranks lie. "
        f"Nearest: parallel.shard=null.",
    ),
    Rule(
        ("megatron_deepspeed",),
        lambda like, n: (n["d"] == 1) | (like.training.precision != "bf16") | (like.layout.zero > 0),
        lambda like, n: "parallel.zero=0 with training.precision=bf16: its bf16 optimizer divides its states over "
        f"parallel.d={n['d']} at any ZeRO stage. Nearest: parallel.zero=1.",
    ),
    Rule(
        ("megatron_lm",),
        _one_recompute,
        lambda like, n: f"training.recompute_layers={_shown(like)} is one number for all stages, with training.recompute=full. "
        "Nearest: training.recompute_layers=null.",
    ),
    Rule(
        ("megatron_deepspeed", "torchtitan", "nanotron", "composer"),
        lambda like, n: like.training.recompute_layers is None,
        lambda like, n: f"training.recompute_layers={_shown(like)} is not there. Nearest: training.recompute_layers=null.",
    ),
)  # fmt: skip
"""Sources: Megatron-LM core_v0.14 (transformer_config.py: num_query_groups; moe/moe_layer.py: sequence parallelism;
arguments.py: fp16 and experts, seq-length and 2 c; Transformer Engine 2.8, context_parallel.py: heads and all-to-alls;
schedules.py: microbatch_group_size_per_vp_stage), torchtitan 0.2
(parallel_dims.py: seq_len_divisor; parallelize.py), torch 2.9 (pipelining/schedules.py: number_of_rounds), BigScience's
tr11-176B-ml.slurm and DeepSpeed's bf16_optimizer.py.
"""


def _shown(like: Point) -> Any:
    again = like.training.recompute_layers
    return list(again) if isinstance(again, tuple) else again
