"""torchtitan: a job's TOML from a point, and back.

torchtitan chooses a model by name and flavor, so shapes are told by ours that are the same. Source: torchtitan 0.2,
torchtitan/config/job_config.py, distributed/pipeline_parallel.py, models/*/__init__.py.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pipesim.checks import Invalid
from pipesim.launch import rows
from pipesim.launch.megatron import fixed, nearest_words
from pipesim.launch.rows import Row, theirs, without_words
from pipesim.launch.script import commented, name_of, nodes_of
from pipesim.launch.values import Values, values_of
from pipesim.specs import ModelSpec, Point

FLAVORS = {
    "llama3_8b": ("llama3", "8B"), "llama3_70b": ("llama3", "70B"), "llama3_405b": ("llama3", "405B"),
    "deepseek_v3": ("deepseek_v3", "671B"),
}  # fmt: skip
"""Our model -> torchtitan's name and flavor."""

OWN = "ours"
"""The flavor of a model that torchtitan does not have."""

SCHEDULES = {
    "1f1b": "1F1B", "gpipe": "GPipe", "interleaved_1f1b": "Interleaved1F1B", "looped_bfs": "LoopedBFS",
    "interleaved_zb": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV",
}  # fmt: skip
ROTATING = {"all_gather": "allgather", "ring": "alltoall"}
SINGLE = ("1f1b", "gpipe")
"""One stage a rank; the others have at least two."""

PARALLEL = (
    Row("parallelism.tensor_parallel_degree", "parallel.t", absent=1),
    Row("parallelism.pipeline_parallel_degree", "parallel.p", absent=1),
    Row("parallelism.context_parallel_degree", "parallel.c", absent=1),
    Row("parallelism.context_parallel_rotate_method", "parallel.context", ROTATING, absent="all_gather"),
    Row("parallelism.expert_parallel_degree", "parallel.e", absent=1),
    Row("parallelism.pipeline_parallel_schedule", "schedule.name", SCHEDULES, absent="1f1b"),
)
RESHARD = Row("parallelism.fsdp_reshard_after_forward", "parallel.zero", {3: "always", 2: "never"})
TRAINING = (Row("training.seq_len", "training.seq_length"), Row("training.global_batch_size", "training.global_batch"))
CHECKPOINTING = Row(
    "activation_checkpoint.mode", "training.recompute", {"none": "none", "full": "full", "operators": "selective"}
)
SHARD, REPLICATE = "parallelism.data_parallel_shard_degree", "parallelism.data_parallel_replicate_degree"
LOCAL, MICRO = "training.local_batch_size", "parallelism.pipeline_parallel_microbatch_size"
PARTS, PER_STAGE = "parallelism.module_fqns_per_model_part", "parallelism.pipeline_parallel_layers_per_stage"
LESS = ("parallelism.pipeline_parallel_first_stage_less_layers", "parallelism.pipeline_parallel_last_stage_less_layers")
OPERATORS, ETP = "activation_checkpoint.selective_ac_option", "parallelism.expert_tensor_parallel_degree"
FIXED = {"training.dropout": False, "training.attention": "flash"}
MODEL = {
    "model.gated": True, "model.bias": False, "model.embedding_norm": False, "model.final_norm": True,
    "model.positions": "rotary", "model.norm": "rmsnorm",
}  # fmt: skip
"""What all its language models have."""


def write(point: Point) -> str:
    """Raises ``Invalid`` with everything that torchtitan has no word for."""
    values, model = values_of(point), point.model
    if values["parallel.c"] == 1:
        values |= {"parallel.context": "all_gather"}  # nothing travels; its own habit needs no word
    spoken, notes = nearest_words(values)
    problems = [*without_words([*PARALLEL, CHECKPOINTING], spoken), *fixed(MODEL | {"training.dropout": False}, values)]
    own = model_named(model)
    if own is None:
        notes.append(
            f"model.name={model.name} is no shape that torchtitan has: register it as a flavor (dim={model.hidden}, "
            f"n_layers={model.layers}, n_heads={model.heads}, n_kv_heads={model.kv_heads}, hidden_dim={model.ffn}, "
            f"vocab_size={model.vocab})."
        )
    if spoken["training.attention"] != "flash":
        notes.append(
            f"training.attention={values['training.attention']} has no key: attention is torch's fused kernel."
        )
    if values.get("schedule.group"):
        notes.append(f"schedule.group={values['schedule.group']} has no key: torch takes rounds of equal size.")
    if problems:
        raise Invalid([f"torchtitan: {problem}" for problem in problems])
    name, flavor = FLAVORS[own] if own else (model.name, OWN)
    settings: dict[str, Any] = {"model.name": name, "model.flavor": flavor}
    if values["training.precision"] == "fp8":
        settings["model.converters"] = ["float8"]
    settings |= theirs(TRAINING, values) | _batch(values) | {"training.steps": 20}
    settings |= _degrees(values) | _stages(values)
    settings |= theirs([CHECKPOINTING], values)
    if values["training.recompute"] == "operators":
        settings[OPERATORS] = "op"
    nodes, per_node, left = nodes_of(point)
    notes += [left] if left else []
    run = f"torchrun --nnodes {nodes} --nproc-per-node {per_node} -m torchtitan.train --job.config_file torchtitan.toml"
    head = [f"torchtitan: {name_of(point)}", run, *(f"Note: {note}" for note in notes)]
    return commented(head) + toml(rows.nested(settings))


def model_named(model: ModelSpec) -> str | None:
    """The name of our model with this shape, of those that torchtitan has."""
    for name, known in shapes().items():
        if dataclasses.replace(known, name=model.name, source=model.source, context=model.context) == model:
            return name
    return None


@functools.cache
def shapes() -> dict[str, ModelSpec]:
    """Our models that torchtitan has, by name."""
    from pipesim import config

    known = config.library("model")
    return {name: config.build_model(known[name]) for name in FLAVORS}


def _batch(values: Values) -> dict[str, Any]:
    """A rank's batch of one pass: all of a step's with a pipeline, one micro-batch without."""
    micro, d = values["training.micro_batch"], values["parallel.d"]
    if values["parallel.p"] == 1:
        return {LOCAL: micro}
    return {LOCAL: values["training.global_batch"] // d, MICRO: micro}


def _degrees(values: Values) -> dict[str, Any]:
    d, c, zero = (values[f"parallel.{key}"] for key in ("d", "c", "zero"))
    shared = values["parallel.shard"] or d * c
    sharded = 1 if zero == 0 else shared // c
    settings = theirs(PARALLEL, values) | {REPLICATE: d // sharded, SHARD: sharded}
    if values["parallel.e"] > 1:
        settings[ETP] = values["parallel.t"]
    return settings | (theirs([RESHARD], values) if zero else {})


def _stages(values: Values) -> dict[str, Any]:
    """Layers of a stage where torchtitan's own cut is the asked one, else the modules of every stage."""
    partition, p, v = values["parallel.partition"], values["parallel.p"], values["parallel.v"]
    if p == 1:
        return {}
    per_stage = -(-sum(partition) // len(partition))
    if own_cut(sum(partition) - 2, p * v) == partition and -(-sum(partition) // per_stage) == p * v:
        return {PER_STAGE: per_stage}
    return {PARTS: modules(partition)}


def own_cut(layers: int, stages: int) -> tuple[int, ...]:
    """Units of each stage where none are given: the first stages have one more."""
    each, more = divmod(layers + 2, stages)
    return tuple(each + (k < more) for k in range(stages))


def modules(partition: Sequence[int]) -> list[list[str]]:
    """The modules of every stage, by torchtitan's names."""
    layers = sum(partition) - 2
    names = iter(["tok_embeddings", *(f"layers.{k}" for k in range(layers)), "output"])
    parts = [[next(names) for _ in range(units)] for units in partition]
    last = next(part for part in reversed(parts) if part)
    last.insert(len(last) - 1, "norm")
    return parts


def toml(content: Mapping[str, Any]) -> str:
    """Tables of plain values; JSON's numbers, texts and lists are TOML's."""
    return "".join(
        f"\n[{table}]\n" + "".join(f"{key} = {_list(value)}\n" for key, value in settings.items())
        for table, settings in content.items()
    )


def _list(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + "".join(f"    {json.dumps(each)},\n" for each in value) + "]"
    return json.dumps(value)
