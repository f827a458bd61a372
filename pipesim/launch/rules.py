"""What each training framework can run, of all that can be priced: its schedules, its sharding, its recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pipesim.specs import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """``sharded`` are the ZeRO stages beside a pipeline, ``sharded_alone`` those without one.

    ``sequence_parallel`` says whether sequence parallelism may be chosen where t > 1 (``always``: comes with t).
    """

    schedules: tuple[str, ...]
    sharded: tuple[int, ...]
    sharded_alone: tuple[int, ...]
    recompute: tuple[str, ...]
    sequence_parallel: str
    """``free``, ``always`` or ``never``."""
    most: dict[str, int]
    """The largest degree where there is one: 1 is what the framework cannot do at all."""
    source: str


FRAMEWORKS: dict[str, Framework] = {
    "megatron_lm": Framework(
        schedules=("1f1b", "interleaved_1f1b"),
        sharded=(0, 1),
        sharded_alone=(0, 1),
        recompute=("none", "selective", "full"),
        sequence_parallel="free",
        most={},
        source="Megatron-LM core_v0.12, megatron/training/arguments.py: validate_args",
    ),
    "megatron_deepspeed": Framework(
        schedules=("1f1b",),
        sharded=(0, 1),
        sharded_alone=(0, 1, 2, 3),
        recompute=("none", "full"),
        sequence_parallel="never",
        most={"v": 1, "c": 1},
        source="DeepSpeed 0.16, runtime/pipe/engine.py (TrainSchedule; ZeRO 2 and 3 are refused), docs/config-json",
    ),
    "torchtitan": Framework(
        schedules=("1f1b", "gpipe", "interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "dualpipev"),
        sharded=(2, 3),
        sharded_alone=(2, 3),
        recompute=("none", "operators", "full"),
        sequence_parallel="always",
        most={},
        source="torchtitan 0.1, torchtitan/config/job_config.py; torch.distributed.pipelining.schedules of torch 2.7",
    ),
    "nanotron": Framework(
        schedules=("1f1b", "gpipe"),
        sharded=(0, 1),
        sharded_alone=(0, 1),
        recompute=("none", "full"),
        sequence_parallel="free",
        most={"v": 1, "c": 1},
        source="nanotron 0.4, src/nanotron/config/parallelism_config.py",
    ),
    "composer": Framework(
        schedules=("1f1b",),
        sharded=(0, 2, 3),
        sharded_alone=(0, 2, 3),
        recompute=("none", "full"),
        sequence_parallel="never",
        most={"t": 1, "p": 1, "v": 1, "c": 1, "e": 1},
        source="MosaicML Composer 0.20 and llm-foundry, docs of fsdp_config",
    ),
}


def problems(point: Point) -> list[str]:
    """What the framework of the point's stack cannot run of a resolved point; nothing where the stack names none."""
    if point.stack.framework is None:
        return []
    framework = FRAMEWORKS[point.stack.framework]
    return [f"stack.framework={point.stack.framework}: {each}" for each in _broken(framework, point)]


def _broken(framework: Framework, point: Point) -> Iterator[str]:
    layout, training = point.layout, point.training
    zero = framework.sharded if layout.p > 1 else framework.sharded_alone
    if layout.p > 1 and point.schedule not in framework.schedules:
        yield _no(f"schedule={point.schedule}", "schedule", framework.schedules)
    if layout.p == 1 and (layout.v or 1) > 1:
        yield f"parallel.v={layout.v} interleaves a pipeline, and parallel.p=1 is none. Nearest: parallel.v=1."
    if (layout.d or 1) * layout.c > 1 and layout.zero not in zero:
        yield _no(f"parallel.zero={layout.zero}{' with a pipeline' if layout.p > 1 else ''}", "parallel.zero", zero)
    if training.recompute not in framework.recompute:
        yield _no(f"training.recompute={training.recompute}", "training.recompute", framework.recompute)
    for key, most in framework.most.items():
        if (getattr(layout, key) or 1) > most:
            yield f"parallel.{key}={getattr(layout, key)} is not there. Nearest: parallel.{key}={most}."
    if framework.sequence_parallel == "never" and layout.sequence_parallel:
        yield "parallel.sequence_parallel=true is not there. Nearest: parallel.sequence_parallel=false."
    if framework.sequence_parallel == "always" and layout.t > 1 and not layout.sequence_parallel:
        yield (f"parallel.t={layout.t} comes with sequence parallelism. Nearest: parallel.sequence_parallel=true.")
    if layout.sequence_parallel and layout.t == 1:
        yield "parallel.sequence_parallel=true divides over parallel.t=1 nothing. Nearest: parallel.sequence_parallel=false."


def _no(asked: str, key: str, known: Sequence[Any]) -> str:
    return f"{asked} is not there. Nearest: {key}={' or '.join(map(str, known))}."
