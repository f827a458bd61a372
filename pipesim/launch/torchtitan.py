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

from pipesim.checks import Invalid, suggest
from pipesim.launch import rows
from pipesim.launch.megatron import fixed, nearest_words
from pipesim.launch.rows import Read, Row, ours, sort_settings, theirs, whole, without_words
from pipesim.launch.script import commented, name_of, nodes_of
from pipesim.launch.values import Values, values_of
from pipesim.specs import ModelSpec, Point

FLAVORS = {
    "llama3_8b": ("llama3", "8B"), "llama3_70b": ("llama3", "70B"), "llama3_405b": ("llama3", "405B"),
    "deepseek_v3": ("deepseek_v3", "671B"),
}  # fmt: skip
"""Our model -> torchtitan's name and flavor."""

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

NOT_OURS = (
    "job.", "profiling.", "metrics.", "optimizer.", "lr_scheduler.", "checkpoint.", "comm.", "fault_tolerance.", "experimental.",
    "validation.", "training.steps", "training.max_norm", "training.dataset", "training.gc_", "training.seed",
    "training.deterministic", "debug.", "model.tokenizer_path", "model.hf_assets_path", "model.print_after_conversion",
)  # fmt: skip
BY_STACK = (
    "compile.", "training.compile", "quantize.", "float8.", "mx.", "parallelism.enable_async_tensor_parallel",
    "parallelism.disable_loss_parallel", "training.mixed_precision_",
    "parallelism.enable_compiled_autograd", "training.enable_cpu_offload", "training.dtype", "activation_checkpoint.per_op",
    "activation_checkpoint.early_stop", "parallelism.expert_parallel_comm_backend",
)  # fmt: skip


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
    name, flavor = FLAVORS[own] if own else (model.name, "ours")
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


def read(content: Mapping[str, Any]) -> Read:
    """What a job's TOML says, with torchtitan's own defaults where it says nothing."""
    read, given = Read(framework="torchtitan"), rows.flat(content)
    if "training.batch_size" in given:  # its name until version 0.1
        given.setdefault(LOCAL, given.pop("training.batch_size"))
    values = read.values
    ours(PARALLEL, given, read)
    ours(TRAINING[:1], {"training.seq_len": 2048} | given, read)
    values |= {"training.precision": "fp8" if _has_float8(given) else "bf16"} | FIXED
    values |= {"parallel.sequence_parallel": values.get("parallel.t", 1) > 1, "parallel.rank_order": "tcdp"}
    _read_checkpointing(given, read)
    if values.get("parallel.c", 1) == 1:
        values["parallel.context"] = "ring"  # ours where nothing travels
    _read_degrees(given, read)
    _read_batch(given, read)
    _read_stages(given, read)
    known = {row.name for row in (*PARALLEL, *TRAINING, RESHARD, CHECKPOINTING)} | {
        SHARD, REPLICATE, LOCAL, MICRO, PARTS, PER_STAGE, OPERATORS, ETP, "model.name", "model.flavor", "model.converters", *LESS,
    }  # fmt: skip
    rest = {name: value for name, value in given.items() if name not in known}
    sort_settings(read, rest, NOT_OURS, BY_STACK)
    return read


def model_of(content: Mapping[str, Any]) -> ModelSpec:
    """Our model that the TOML's flavor is. Raises ``Invalid`` for one that is not among ours."""
    asked = content.get("model", {}) if isinstance(content.get("model"), dict) else {}
    pair = asked.get("name", "llama3"), asked.get("flavor", "debugmodel")
    for ours_, theirs_ in FLAVORS.items():
        if theirs_ == pair:
            return shapes()[ours_]
    known = [f"{name} {flavor}" for name, flavor in FLAVORS.values()]
    near = suggest(f"{pair[0]} {pair[1]}", known) or f" Nearest: {known[0]}."
    raise Invalid([f"model.name={pair[0]!r}, model.flavor={pair[1]!r} is no shape of ours.{near}"])


def _has_float8(given: Mapping[str, Any]) -> bool:
    return any("float8" in str(given.get(name, "")) for name in ("model.converters",))


def _read_checkpointing(given: Mapping[str, Any], read: Read) -> None:
    mode, option = given.get("activation_checkpoint.mode", "selective"), str(given.get(OPERATORS, "2"))
    ours([CHECKPOINTING], {"activation_checkpoint.mode": mode}, read)
    if mode == "selective" and option != "op":
        read.unknown.append(f"{OPERATORS}={option}: every {option}th layer runs again; read as op")


def _read_degrees(given: Mapping[str, Any], read: Read) -> None:
    values = read.values
    sharded, copies = whole(given.get(SHARD, -1)), whole(given.get(REPLICATE, 1))
    if sharded is None or copies is None or copies < 1 or sharded == 0 or sharded < -1:
        read.problems.append(
            f"{SHARD}={given.get(SHARD)} x {REPLICATE}={given.get(REPLICATE)} must be whole numbers, or -1."
        )
        return
    reshard = given.get(RESHARD.name, "default")
    piped = values.get("parallel.p", 1) > 1
    ours([RESHARD], {RESHARD.name: ("never" if piped else "always") if reshard == "default" else reshard}, read)
    c = values.get("parallel.c", 1)
    if sharded == 1 and c == 1:
        values["parallel.zero"] = 0 if copies > 1 else values.get("parallel.zero", 3)
    if sharded > 0:
        values["parallel.d"] = sharded * copies
        if copies > 1 and values.get("parallel.zero"):
            values["parallel.shard"] = sharded * c
    elif copies > 1:
        read.unknown.append(f"{REPLICATE}={copies} with {SHARD}=-1: the number of GPUs decides how many share")


def _read_batch(given: Mapping[str, Any], read: Read) -> None:
    values = read.values
    local, d = whole(given.get(LOCAL, 8)), values.get("parallel.d")
    micro = whole(given.get(MICRO, 1)) if values.get("parallel.p", 1) > 1 else local
    if local is None or micro is None or micro < 1 or local % micro:
        read.problems.append(f"{LOCAL}={given.get(LOCAL)} must be a multiple of {MICRO}={given.get(MICRO, 1)}.")
        return
    values["training.micro_batch"] = micro
    batch = whole(given.get("training.global_batch_size", -1))
    if batch is not None and batch > 0:
        values["training.global_batch"] = batch
    elif d:
        values["training.global_batch"] = local * d
    else:
        read.untold.append("training.global_batch")
        read.assumed.append(f"training.global_batch is {LOCAL}={local} x d, and the file does not say d.")


def _read_stages(given: Mapping[str, Any], read: Read) -> None:
    values = read.values
    p = values.get("parallel.p", 1)
    parts = given.get(PARTS)
    if p == 1:
        values |= {"parallel.v": 1, "schedule.name": "1f1b"}
    elif isinstance(parts, list) and all(isinstance(part, list) for part in parts) and len(parts) % p == 0:
        placed = [name for part in parts for name in part]
        if placed != [name for part in modules([len(part) - ("norm" in part) for part in parts]) for name in part]:
            read.problems.append(f"{PARTS} must place tok_embeddings, every layer once in order, norm and output.")
        values["parallel.partition"] = tuple(len(part) - ("norm" in part) for part in parts)
        values["parallel.v"] = len(parts) // p
    elif parts is not None:
        read.problems.append(f"{PARTS} must be lists of names, so many that parallel.p={p} divides them.")
    else:
        read.values["parallel.v"] = 1 if values.get("schedule.name") in SINGLE else 2
        less = {name: given[name] for name in LESS if given.get(name, 1) != 1}
        read.unknown += [f"{name}={value}: read as 1" for name, value in less.items()]


def finish_stages(given: Mapping[str, Any], layers: int, values: Values) -> None:
    """v and the partition from torchtitan's own cut, once the model's layers are known."""
    p = values.get("parallel.p", 1)
    if p == 1 or "parallel.partition" in values:
        return
    per_stage = whole(rows.flat(given).get(PER_STAGE, ""))
    stages = -(-(layers + 2) // per_stage) if per_stage else p * values["parallel.v"]
    if stages % p:
        raise Invalid(
            [f"{PER_STAGE}={per_stage} makes {stages} stages of {layers} layers, which parallel.p={p} does not divide. "
             f"Nearest: {PER_STAGE}={-(-(layers + 2) // p)}."]
        )  # fmt: skip
    values |= {"parallel.v": stages // p, "parallel.partition": own_cut(layers, stages)}
