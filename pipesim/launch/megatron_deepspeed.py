"""Megatron-DeepSpeed: arguments with DeepSpeed's JSON, and back.

Microsoft's fork has the words of today's models, BigScience's alone those of BLOOM (ALiBi, a norm behind the embedding).
Its bf16 optimizer divides its states over data ranks at any ZeRO stage, so that ZeRO-1 in bf16 is written as stage 0, as
BLOOM's was. Sources: both forks' megatron/arguments.py, bigscience/train/tr11-176B-ml/tr11-176B-ml.slurm, DeepSpeed's
docs/_pages/config-json.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid, divisors
from pipesim.launch import megatron, megatron_reader, rows
from pipesim.launch import megatron_flags as table
from pipesim.launch.rows import Read, Row, ours, sort_settings, theirs, whole, without_words
from pipesim.launch.script import Script, vocabulary_flags
from pipesim.launch.values import Values, values_of
from pipesim.specs import Point

CONFIG = "ds_config.json"
FIXED = {"model.final_norm": True, "model.embedding_norm": False}
BIGSCIENCE_FIXED = {
    "model.final_norm": True, "model.gated": False, "model.bias": True, "model.tied_embeddings": True,
    "model.norm": "layernorm",
}  # fmt: skip
SPLITS = {"type:transformer": 0, "type:transformer|embedding": 1}
"""DeepSpeed's partition methods -> units that each end counts besides its layers."""

JSON = (
    Row("train_micro_batch_size_per_gpu", "training.micro_batch"),
    Row("train_batch_size", "training.global_batch"),
    Row("bf16.enabled", "training.precision", {"bf16": True}),
    Row("fp16.enabled", "training.precision", {"fp16": True}),
)
JSON_BESIDE = ("zero_optimization.stage", "gradient_accumulation_steps")
JSON_NOT_OURS = (
    "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "optimizer.", "scheduler.", "tensorboard.", "wandb.",
    "fp16.", "data_types.", "flops_profiler.", "csv_monitor.", "comms_logger.", "dump_state", "prescale_gradients",
)  # fmt: skip
JSON_BY_STACK = (
    "zero_optimization.",
    "activation_checkpointing.",
    "communication_data_type",
    "bf16.",
    "aio.",
    "pipeline.",
)


def write(point: Point) -> tuple[Script, str]:
    """The script and DeepSpeed's config. Raises ``Invalid`` with everything that has no word."""
    values, layout = values_of(point), point.layout
    spoken, notes = _spoken(values)
    bigscience = _is_bigscience(values)
    model = table.BIGSCIENCE_MODEL if bigscience else table.DEEPSPEED_MODEL
    problems = without_words([*model, *table.DEEPSPEED_TRAINING], spoken)
    problems += megatron.fixed(BIGSCIENCE_FIXED if bigscience else FIXED, values)
    problems += [
        f"model.{name} is not there. Nearest: a model without it." for name, key in (("mla", "kv_rank"), ("moe", "experts"))
        if f"model.{name}.{key}" in values
    ]  # fmt: skip
    if bigscience and values["model.kv_heads"] != values["model.heads"]:
        problems.append(f"model.kv_heads={values['model.kv_heads']} is not there. Nearest: {values['model.heads']}.")
    split = _split(layout.partition, layout.p, problems)  # type: ignore[arg-type]
    if problems:
        raise Invalid([f"Megatron-DeepSpeed: {problem}" for problem in problems])
    if bigscience:
        notes.append("this fork has no random data: give --data-path and a tokenizer behind the script's name.")
    notes.insert(
        0, f"the flags are those of {'bigscience-workshop' if bigscience else 'microsoft'}/Megatron-DeepSpeed."
    )
    parallel = theirs(table.ALIKE[:2], values) | {"--pp-partition-method": split, "--zero-stage": _stage(values)}
    parallel |= {"--no-pipeline-parallel": True} if layout.p == 1 and layout.zero > 1 else {}
    deepspeed = {"--deepspeed": True, "--deepspeed_config": CONFIG}
    if values["training.recompute"] == "full":
        deepspeed["--deepspeed-activation-checkpointing"] = True
    vocabulary = {} if bigscience else vocabulary_flags(values)
    script = Script(
        title="Megatron-DeepSpeed", program="pretrain_gpt.py", home="MEGATRON_DEEPSPEED", point=point, notes=notes,
        groups={
            "MODEL_ARGS": _model(values, model), **({"VOCABULARY_ARGS": vocabulary} if vocabulary else {}),
            "PARALLEL_ARGS": parallel,
            "TRAINING_ARGS": theirs(table.DEEPSPEED_TRAINING, spoken) | megatron.dropout(values),
            "DEEPSPEED_ARGS": deepspeed,
        },
        exports={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )  # fmt: skip
    return script, config_text(values)


def config_text(values: Values) -> str:
    """DeepSpeed's JSON: the global batch is micro-batch x accumulation x d, which it checks itself."""
    micro, batch, d = (values[key] for key in ("training.micro_batch", "training.global_batch", "parallel.d"))
    assert batch % (micro * d) == 0
    content = theirs(JSON, values) | {
        "gradient_accumulation_steps": batch // (micro * d),
        "gradient_clipping": 1.0,
        "zero_optimization.stage": _stage(values),
        "steps_per_print": 100,
    }
    return json.dumps(rows.nested(content), indent=2) + "\n"


def _spoken(values: Values) -> tuple[Values, list[str]]:
    spoken, notes = megatron.nearest_words(values)
    return spoken, notes


def _is_bigscience(values: Mapping[str, Any]) -> bool:
    return values["model.positions"] == "alibi" or bool(values["model.embedding_norm"])


def _stage(values: Mapping[str, Any]) -> int:
    own = values["training.precision"] == "bf16" and values["parallel.zero"] == 1
    return 0 if own else int(values["parallel.zero"])


def _model(values: Values, model: tuple[Row, ...]) -> dict[str, Any]:
    settings = theirs(model, values)
    if values["model.kv_heads"] == values["model.heads"]:
        settings.pop("--num-key-value-heads", None)
    return settings


def _split(partition: tuple[int, ...], p: int, problems: list[str]) -> str:
    layers = sum(partition) - 2
    for method in SPLITS:
        if _units(method, layers, p) == partition:
            return method
    works = [each for each in divisors(layers) if each <= 2 * p] + [
        each for each in divisors(layers + 2) if each <= 2 * p
    ]
    near = sorted(
        {max((each for each in works if each <= p), default=1), min((each for each in works if each > p), default=1)}
    )
    problems.append(
        f"parallel.partition={list(partition)} is not one of DeepSpeed's own cuts into equal stages: layers alone, or with both "
        f"embeddings. Nearest: parallel.p={' or '.join(map(str, near))} with parallel.partition=even or [n + 1, n, …, n + 1]."
    )
    return ""


def _units(method: str, layers: int, p: int) -> tuple[int, ...] | None:
    """Units of each stage where DeepSpeed's method makes equal ones."""
    ends = SPLITS[method]
    if (layers + 2 * ends) % p:
        return None
    stages = [(layers + 2 * ends) // p] * p
    stages[0] += 1 - ends
    stages[-1] += 1 - ends
    return tuple(stages)


def read(text: str) -> Read:
    """What Megatron-DeepSpeed arguments say, of either fork."""
    read = Read(framework="megatron_deepspeed")
    given = megatron_reader.given_of(text, SWITCHES, read)
    megatron_reader.read_gpus(given, read)
    ours(table.DEEPSPEED_TRAINING, given, read)
    megatron_reader.read_dropout(given, read)
    _read_model(given, read)
    ours(table.ALIKE[:2], given, read)
    _read_partition(given, read)
    stage = whole(given.get("--zero-stage", 0))
    if stage is None or not 0 <= stage <= 3:
        read.problems.append(f"--zero-stage={given['--zero-stage']} must be 0, 1, 2 or 3.")
    else:
        _read_stage(stage, read)
    megatron_reader.sort_rest(given, KNOWN, read)
    return read


def _read_stage(stage: int, read: Read) -> None:
    own = stage == 0 and read.values.get("training.precision") == "bf16"
    read.values["parallel.zero"] = 1 if own else stage
    if own:
        read.assumed.append("parallel.zero=1: DeepSpeed's bf16 optimizer divides its states over d at stage 0 too.")


def _read_model(given: dict[str, Any], read: Read) -> None:
    values = read.values
    words = {"--normalization": str(given.get("--normalization", "layernorm")).lower()}
    positions = str(given.get("--position-embedding-type", ""))
    bigscience = bool(given.get("--embed-layernorm")) or positions in ("alibi", "absolute")
    ours(table.BIGSCIENCE_MODEL if bigscience else table.DEEPSPEED_MODEL, given | words, read)
    values |= {key: value for key, value in (BIGSCIENCE_FIXED if bigscience else FIXED).items() if key not in values}
    heads, hidden = values.get("model.heads"), values.get("model.hidden")
    if heads and hidden:
        told = {"model.kv_heads": heads, "model.head_dim": hidden // heads, "model.ffn": 4 * hidden}
        values |= {key: value for key, value in told.items() if key not in values}
    if "model.vocab" not in values:
        megatron_reader.read_vocabulary(given, read)
    if not bigscience and positions:
        read.unknown.append(f"--position-embedding-type {positions}")
    read.untold = [key for key in read.untold if key not in values]


def _read_partition(given: Mapping[str, Any], read: Read) -> None:
    values = read.values
    values |= {"schedule.name": "1f1b", "parallel.v": 1, "parallel.sequence_parallel": False}
    method, p = str(given.get("--pp-partition-method", "type:transformer")), values["parallel.p"]
    if method not in SPLITS:
        read.unknown.append(f"--pp-partition-method {method}")
    elif (layers := values.get("model.layers")) and (units := _units(method, layers, p)):
        values["parallel.partition"] = units
    elif layers:
        read.assumed.append(
            f"--pp-partition-method {method} cuts {layers} layers unevenly over {p} stages; read as balanced."
        )
    cut = values["parallel.t"] * p
    if read.gpus is not None and read.gpus % cut:
        read.problems.append(f"{cut} = t x p does not divide the {read.gpus} GPUs of --nnodes x --nproc-per-node.")
    elif read.gpus is not None:
        values["parallel.d"] = read.gpus // cut


def read_json(content: Mapping[str, Any]) -> Read:
    """What DeepSpeed's JSON says: batch, precision and ZeRO stage; d where micro-batch, accumulation and batch are numbers."""
    read = Read(framework="megatron_deepspeed")
    given = rows.flat(content)
    ours(JSON, {name: value for name, value in given.items() if value is not False}, read)
    stage = whole(given.get("zero_optimization.stage", 0))
    if stage is None or not 0 <= stage <= 3:
        read.problems.append(f"zero_optimization.stage={given['zero_optimization.stage']} must be 0, 1, 2 or 3.")
    else:
        _read_stage(stage, read)
    micro, batch = (read.values.get(f"training.{key}") for key in ("micro_batch", "global_batch"))
    steps = whole(given.get("gradient_accumulation_steps", ""))
    if micro and batch and steps:
        if batch % (micro * steps):
            read.problems.append(
                f"train_batch_size={batch} is not train_micro_batch_size_per_gpu={micro} x "
                f"gradient_accumulation_steps={steps} x d. "
                f"Nearest: train_batch_size={max(batch // (micro * steps), 1) * micro * steps}."
            )
        else:
            read.values["parallel.d"] = batch // (micro * steps)
    known = {row.name for row in JSON} | set(JSON_BESIDE)
    rest = {name: value for name, value in given.items() if name not in known}
    sort_settings(read, rest, JSON_NOT_OURS, JSON_BY_STACK)
    return read


_ROWS = (*table.DEEPSPEED_MODEL, *table.BIGSCIENCE_MODEL, *table.ALIKE, *table.DEEPSPEED_TRAINING)
SWITCHES = megatron_reader.switches_of(*_ROWS) | {
    "--no-pipeline-parallel",
    "--use-flash-attn",
    "--use-flash-attn-v1",
    "--deepspeed",
}
KNOWN = {row.name for row in _ROWS} | table.BESIDE
