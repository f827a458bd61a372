"""Points that each framework can be asked for, drawn at random, and what its words cannot tell apart."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st
from points import composed

from pipesim import legality
from pipesim.checks import Invalid
from pipesim.launch import rules
from pipesim.launch.values import values_of
from pipesim.specs import Point

MODELS = {
    "megatron_lm": ("llama3_8b", "gpt_22b", "mixtral_8x7b", "deepseek_v3", "toy"),
    "megatron_deepspeed": ("llama2_7b", "gpt_22b", "bloom_176b", "llama3_8b"),
    "torchtitan": ("llama3_8b", "llama3_70b", "llama3_405b", "deepseek_v3"),
    "nanotron": ("llama2_7b", "llama3_8b", "llama3_70b"),
}
LOST = {
    "megatron_lm": ("training.optimizer_barrier",),
    "megatron_deepspeed": ("training.optimizer_barrier", "parallel.context", "parallel.rank_order"),
    "torchtitan": ("training.optimizer_barrier", "schedule.group"),
    "nanotron": ("training.optimizer_barrier", "parallel.partition", "parallel.context"),
}
"""What a framework has no word for."""
KERNELS = {"megatron_lm": ("flash", "unfused"), "megatron_deepspeed": ("flash", "unfused")}
STACKS = {name: name for name in MODELS}
SMALL = st.sampled_from([1, 1, 2, 3, 4, 8])


@st.composite
def points(draw: st.DrawFn, framework: str) -> Point | None:
    """A resolved point that its framework runs, or None where what was drawn is none."""
    known = rules.FRAMEWORKS[framework]
    base = composed(
        f"model={draw(st.sampled_from(MODELS[framework]))}", "cluster=dgx_h100", f"stack={STACKS[framework]}",
        "training=megatron", "cluster.gpus=1000000",
    )  # fmt: skip
    schedule = draw(st.sampled_from(known.schedules))
    v = draw(st.sampled_from([2, 3, 4])) if schedule in ("interleaved_1f1b", "looped_bfs", "interleaved_zb") else None
    t, p, d, c = (draw(SMALL) for _ in range(4))
    c = min(c, known.most.get("c", 8))
    v = v if p > 1 else None
    m = draw(st.sampled_from([1, 2, 4, 8, 16, 17, 24]))
    micro = draw(st.sampled_from([1, 2, 4]))
    layout = dataclasses.replace(
        base.layout, t=t, p=p, d=d, c=c, v=v, e=draw(SMALL) if base.model.moe else 1,
        zero=draw(st.sampled_from(known.sharded if p > 1 else known.sharded_alone)),
        shard=draw(st.sampled_from([None, d, d * c])) if known.shards else None,
        sequence_parallel=t > 1 and (known.sequence_parallel == "always" or draw(st.booleans())),
        context=draw(st.sampled_from(known.context)), rank_order=draw(st.sampled_from(known.rank_orders)),
    )  # fmt: skip
    recompute = draw(st.sampled_from(known.recompute))
    training = dataclasses.replace(
        base.training, micro_batch=micro, global_batch=m * micro * d, recompute=recompute,
        recompute_layers=draw(st.sampled_from([None, 1])) if recompute == "full" and framework == "megatron_lm" else None,
        precision=draw(st.sampled_from(known.precisions)), seq_length=draw(st.sampled_from([None, 1024])),
        attention=draw(st.sampled_from(KERNELS.get(framework, ("flash",)))),
        dropout=framework.startswith("megatron") and draw(st.booleans()),
    )  # fmt: skip
    point = dataclasses.replace(base, layout=layout, training=training, schedule=schedule if p > 1 else "1f1b")
    if p > 1 and draw(st.booleans()):
        point = dataclasses.replace(point, layout=dataclasses.replace(layout, partition=draw(cuts(point, v or 1))))
    try:
        point = legality.resolve(normal(point))
    except Invalid:
        return None
    return None if rules.problems(point) else point


def cuts(point: Point, v: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Layers in equal stages with the ends beside them, equal units, or one layer moved from the first stage to the last."""
    stages, layers = point.layout.p * v, point.model.layers
    each, more = divmod(layers, stages)
    even = [each + (k < more) for k in range(stages)]
    ends = [n + (k == 0) + (k == stages - 1) for k, n in enumerate(even)]
    moved = [n - (k == 0) + (k == stages - 1) for k, n in enumerate(ends)]
    return st.sampled_from([tuple(ends), tuple(moved)])


def normal(point: Point) -> Point:
    """Two spellings of one thing as one: all data ranks share, no data ranks have nothing to share, one context rank sends
    nothing.
    """
    layout = point.layout
    ranks = (layout.d or 1) * layout.c
    shard = None if layout.shard == ranks or layout.zero == 0 else layout.shard
    context = layout.context if layout.c > 1 else "ring"
    return dataclasses.replace(point, layout=dataclasses.replace(layout, shard=shard, context=context))


def compared(point: Point, framework: str) -> dict[str, Any]:
    """What must come back; one data rank has nothing to divide."""
    lost = [*LOST[framework], *(["parallel.zero"] if (point.layout.d or 1) * point.layout.c == 1 else [])]
    return {key: value for key, value in values_of(point).items() if key not in lost and value is not None}
