"""What each training framework can run, of all that can be priced: its schedules, its sharding, its own arguments' rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.launch.number_rules import RULES, Numbers, numbers_of
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
    broken = [*_words(FRAMEWORKS[name], point), *_degrees(FRAMEWORKS[name], point)]
    numbers = numbers_of(point)
    broken += [rule.say(point, numbers) for rule in RULES if name in rule.of and not rule.holds(point, numbers)]
    return [f"stack.framework={name}: {each}" for each in broken]


def allowed(like: Point, numbers: Numbers) -> Any:
    """Which of many points (n,) the framework runs, by columns t, p, d, c, e, v, micro_batch, global_batch and seq_length
    of resolved points that share the words of ``like``: the same as no ``problems`` of each.
    """
    n = len(numbers["t"])
    name = like.stack.framework
    if name is None:
        return np.ones(n, np.bool_)
    framework, layout = FRAMEWORKS[name], like.layout
    piped, many = numbers["p"] > 1, numbers["d"] * numbers["c"] > 1
    holds = np.full(n, not any(_words(framework, like)), np.bool_)
    holds &= ~piped | (like.schedule in framework.schedules)
    holds &= piped | (numbers["v"] <= 1)
    holds &= ~many | np.where(piped, layout.zero in framework.sharded, layout.zero in framework.sharded_alone)
    for key, most in framework.most.items():
        holds &= numbers[key] <= most
    if framework.sequence_parallel == "always":
        holds &= (numbers["t"] == 1) | layout.sequence_parallel
    if layout.sequence_parallel:
        holds &= numbers["t"] > 1
    holds &= (numbers["c"] == 1) | (layout.context in framework.context)
    for rule in RULES:
        if name in rule.of:
            holds &= rule.holds(like, numbers)
    return holds


def _words(framework: Framework, point: Point) -> Iterator[str]:
    """What no number matters for."""
    layout, training = point.layout, point.training
    if training.recompute not in framework.recompute:
        yield _no(f"training.recompute={training.recompute}", "training.recompute", framework.recompute)
    if training.precision not in framework.precisions:
        yield _no(f"training.precision={training.precision}", "training.precision", framework.precisions)
    if layout.rank_order not in framework.rank_orders:
        yield _no(f"parallel.rank_order={layout.rank_order}", "parallel.rank_order", framework.rank_orders)
    if layout.spread_vocab != "none":
        yield _no(f"parallel.spread_vocab={layout.spread_vocab}", "parallel.spread_vocab", ("none",))
    if layout.shard is not None and not framework.shards:
        yield _no(f"parallel.shard={layout.shard}", "parallel.shard", ("null",))
    if framework.sequence_parallel == "never" and layout.sequence_parallel:
        yield "parallel.sequence_parallel=true is not there. Nearest: parallel.sequence_parallel=false."


def _degrees(framework: Framework, point: Point) -> Iterator[str]:
    layout = point.layout
    zero = framework.sharded if layout.p > 1 else framework.sharded_alone
    if layout.p > 1 and point.schedule not in framework.schedules:
        yield _no(f"schedule={point.schedule}", "schedule", framework.schedules)
    if layout.p == 1 and (layout.v or 1) > 1:
        yield f"parallel.v={layout.v} interleaves a pipeline, and parallel.p=1 is none. Nearest: parallel.v=1."
    if (layout.d or 1) * layout.c > 1 and layout.zero not in zero:
        yield _no(f"parallel.zero={layout.zero}{' with a pipeline' if layout.p > 1 else ''}", "parallel.zero", zero)
    for key, most in framework.most.items():
        if (getattr(layout, key) or 1) > most:
            yield f"parallel.{key}={getattr(layout, key)} is not there. Nearest: parallel.{key}={most}."
    if framework.sequence_parallel == "always" and layout.t > 1 and not layout.sequence_parallel:
        yield f"parallel.t={layout.t} comes with sequence parallelism. Nearest: parallel.sequence_parallel=true."
    if layout.sequence_parallel and layout.t == 1:
        yield "parallel.sequence_parallel=true divides over parallel.t=1 nothing. Nearest: parallel.sequence_parallel=false."
    if layout.c > 1 and layout.context not in framework.context:
        yield _no(f"parallel.context={layout.context}", "parallel.context", framework.context)


def _no(asked: str, key: str, known: Sequence[Any]) -> str:
    return f"{asked} is not there. Nearest: {key}={' or '.join(map(str, known))}."
