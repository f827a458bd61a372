"""torchtitan: a point's values from a job's TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid, suggest
from pipesim.launch import rows
from pipesim.launch.rows import Read, ours, sort_settings, whole
from pipesim.launch.torchtitan import (
    CHECKPOINTING,
    ETP,
    FIXED,
    FLAVORS,
    LESS,
    LOCAL,
    MICRO,
    OPERATORS,
    OWN,
    PARALLEL,
    PARTS,
    PER_STAGE,
    REPLICATE,
    RESHARD,
    SHARD,
    SINGLE,
    TRAINING,
    modules,
    own_cut,
    shapes,
)
from pipesim.launch.values import Values
from pipesim.specs import ModelSpec

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
    """Our model that the TOML's flavor is, or whose name a flavor of one's own has, as ``write`` says it. Raises ``Invalid``
    for one that is not among ours.
    """
    from pipesim import config

    asked = content.get("model", {}) if isinstance(content.get("model"), dict) else {}
    pair = asked.get("name", "llama3"), asked.get("flavor", "debugmodel")
    for ours_, theirs_ in FLAVORS.items():
        if theirs_ == pair:
            return shapes()[ours_]
    if pair[1] == OWN and pair[0] in (mine := config.library("model")):
        return config.build_model(mine[pair[0]])
    known = [f"{name} {flavor}" for name, flavor in FLAVORS.values()]
    near = suggest(f"{pair[0]} {pair[1]}", known) or f" Nearest: {known[0]}."
    raise Invalid(
        [
            f"model.name={pair[0]!r}, model.flavor={pair[1]!r} is no shape of ours, and the file does not hold it.{near} Of a "
            f"flavor of your own give model.flavor={OWN!r} and as model.name a file of conf/model/."
        ]
    )


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
