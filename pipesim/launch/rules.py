"""What each training framework can run, of all that can be priced: its schedules, its sharding, its own arguments' rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from pipesim.launch.number_rules import RULES, Numbers, Rule, numbers_of
from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """``sharded`` are the ZeRO stages beside a pipeline, ``sharded_alone`` those without one.

    ``sequence_parallel`` says whether sequence parallelism may be chosen where t > 1 (``always``: comes with t).
    ``rank_orders`` are innermost first; ``context`` the ways to divide a sequence; ``shards`` whether fewer than all data
    ranks may share what is divided.
    """

    schedules: tuple[str, ...]
    sharded: tuple[int, ...]
    sharded_alone: tuple[int, ...]
    recompute: tuple[str, ...]
    sequence_parallel: str
    """``free``, ``always`` or ``never``."""
    most: dict[str, int]
    """The largest degree where there is one: 1 is what the framework cannot do at all."""
    precisions: tuple[str, ...]
    rank_orders: tuple[str, ...] = ("tcdp",)
    context: tuple[str, ...] = ("ring",)
    shards: bool = False
    source: str


FRAMEWORKS: dict[str, Framework] = {
    "megatron_lm": Framework(
        schedules=("1f1b", "interleaved_1f1b"),
        sharded=(0, 1),
        sharded_alone=(0, 1, 2, 3),
        recompute=("none", "selective", "full"),
        sequence_parallel="free",
        most={},
        precisions=("bf16", "fp16", "fp8"),
        rank_orders=("tcdp", "tcpd"),
        context=("ring", "all_gather", "ulysses"),
        shards=True,
        source="Megatron-LM core_v0.14, megatron/training/arguments.py: validate_args (--use-distributed-optimizer, "
        "--use-megatron-fsdp for ZeRO 2 and 3), core/parallel_state.py (rank order), core/pipeline_parallel/schedules.py",
    ),
    "megatron_deepspeed": Framework(
        schedules=("1f1b",),
        sharded=(0, 1),
        sharded_alone=(0, 1, 2, 3),
        recompute=("none", "full"),
        sequence_parallel="never",
        most={"v": 1, "c": 1, "e": 1},
        precisions=("bf16", "fp16"),
        source="DeepSpeed 0.16, runtime/pipe/engine.py (TrainSchedule; ZeRO 2 and 3 are refused), runtime/bf16_optimizer.py",
    ),
    "torchtitan": Framework(
        schedules=("1f1b", "gpipe", "interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "dualpipev"),
        sharded=(2, 3),
        sharded_alone=(0, 2, 3),
        recompute=("none", "operators", "full"),
        sequence_parallel="always",
        most={},
        precisions=("bf16", "fp8"),
        context=("ring", "all_gather"),
        shards=True,
        source="torchtitan 0.2, torchtitan/config/job_config.py, distributed/parallel_dims.py, models/llama3/infra/parallelize.py "
        "(replicas without sharding take no other parallelism); torch.distributed.pipelining.schedules of torch 2.9",
    ),
    "nanotron": Framework(
        schedules=("1f1b", "gpipe"),
        sharded=(0, 1),
        sharded_alone=(0, 1),
        recompute=("none", "full"),
        sequence_parallel="free",
        most={"v": 1, "e": 1},
        precisions=("bf16",),
        source="nanotron main, src/nanotron/config/parallelism_config.py, config.py, nn/llama3_ring_attention.py; its experts' "
        "parallelism is not described here",
    ),
    "composer": Framework(
        schedules=("1f1b",),
        sharded=(0, 2, 3),
        sharded_alone=(0, 2, 3),
        recompute=("none", "full"),
        sequence_parallel="never",
        most={"t": 1, "p": 1, "v": 1, "c": 1, "e": 1},
        precisions=("bf16", "fp16", "fp8"),
        source="MosaicML Composer 0.20 and llm-foundry, docs of fsdp_config",
    ),
}  # fmt: skip


def problems(point: Point) -> list[str]:
    """What the framework of the point's stack cannot run of a resolved point; nothing where the stack names none."""
    name = point.stack.framework
    if name is None:
        return []
    numbers = numbers_of(point)
    broken = [rule for rule in (*_TABLE, *RULES) if name in rule.of and not rule.holds(point, numbers)]
    return [f"stack.framework={name}: {rule.say(point, numbers)}" for rule in broken]


def allowed(like: Point, numbers: Numbers) -> Any:
    """Which of many points (n,) the framework runs, by columns t, p, d, c, e, v, micro_batch, global_batch and seq_length
    of resolved points that share the words of ``like``: the same as no ``problems`` of each.
    """
    holds = np.ones(len(numbers["t"]), np.bool_)
    for rule in (*_TABLE, *RULES):
        if like.stack.framework in rule.of:
            holds &= rule.holds(like, numbers)
    return holds


def _own(like: Point) -> Framework:
    assert like.stack.framework is not None
    return FRAMEWORKS[like.stack.framework]


def _asked(like: Point, key: str) -> Any:
    return attrgetter(key.replace("parallel.", "layout."))(like)


def _no(like: Point, key: str, known: Sequence[Any], where: str = "") -> str:
    return f"{key}={_asked(like, key)}{where} is not there. Nearest: {key}={' or '.join(map(str, known))}."


def _rule(holds: Callable[[Point, Numbers], Any], say: Callable[[Point, Numbers], str]) -> Rule:
    return Rule(tuple(FRAMEWORKS), holds, say)


def _word(key: str, known: Callable[[Framework], Sequence[Any]]) -> Rule:
    """A key that has one of the framework's words."""
    return _rule(
        lambda like, n: _asked(like, key) in known(_own(like)), lambda like, n: _no(like, key, known(_own(like)))
    )


def _where(matters: Callable[[Numbers], Any], rule: Rule) -> Rule:
    """A rule that holds wherever its numbers do not matter."""
    return rule._replace(holds=lambda like, n: np.logical_not(matters(n)) | rule.holds(like, n))


def _most(key: str) -> Rule:
    return _rule(
        lambda like, n: n[key] <= _own(like).most.get(key, n[key]),
        lambda like, n: _no(like, f"parallel.{key}", (_own(like).most[key],)),
    )


_TABLE = (
    _word("training.recompute", lambda own: own.recompute),
    _word("training.precision", lambda own: own.precisions),
    _word("parallel.rank_order", lambda own: own.rank_orders),
    _word("parallel.spread_vocab", lambda own: ("none",)),
    _rule(
        lambda like, n: like.layout.shard is None or _own(like).shards,
        lambda like, n: _no(like, "parallel.shard", ("null",)),
    ),
    _rule(
        lambda like, n: not like.layout.sequence_parallel or _own(like).sequence_parallel != "never",
        lambda like, n: "parallel.sequence_parallel=true is not there. Nearest: parallel.sequence_parallel=false.",
    ),
    _where(lambda n: n["p"] > 1, _word("schedule", lambda own: own.schedules)),
    _rule(
        lambda like, n: (n["p"] > 1) | (n["v"] == 1),
        lambda like, n: f"parallel.v={n['v']} interleaves a pipeline, and parallel.p=1 is none. Nearest: parallel.v=1.",
    ),
    _where(lambda n: (n["d"] * n["c"] > 1) & (n["p"] == 1), _word("parallel.zero", lambda own: own.sharded_alone)),
    _where(
        lambda n: (n["d"] * n["c"] > 1) & (n["p"] > 1),
        _rule(
            lambda like, n: like.layout.zero in _own(like).sharded,
            lambda like, n: _no(like, "parallel.zero", _own(like).sharded, " with a pipeline"),
        ),
    ),
    *map(_most, ("t", "p", "v", "c", "e")),
    _rule(
        lambda like, n: (n["t"] == 1) | like.layout.sequence_parallel | (_own(like).sequence_parallel != "always"),
        lambda like, n: (
            f"parallel.t={n['t']} comes with sequence parallelism. Nearest: parallel.sequence_parallel=true."
        ),
    ),
    _rule(
        lambda like, n: (n["t"] > 1) | (not like.layout.sequence_parallel),
        lambda like, n: (
            "parallel.sequence_parallel=true divides over parallel.t=1 nothing. "
            "Nearest: parallel.sequence_parallel=false."
        ),
    ),
    _where(lambda n: n["c"] > 1, _word("parallel.context", lambda own: own.context)),
)
"""What a framework's entry above says, as rules of points; all are of numbers or columns, as those of ``number_rules``."""
