"""nanotron: a run's YAML from a point, and back.

nanotron cuts the model itself, by the matrix products of layers and head. Source: nanotron main, src/nanotron/config/*.py,
models/base.py (block_cumulative_costs), models/llama.py (get_block_compute_costs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from pipesim.checks import Invalid
from pipesim.launch import rows
from pipesim.launch.megatron import fixed, nearest_words
from pipesim.launch.rows import Read, Row, ours, sort_settings, theirs, whole, without_words
from pipesim.launch.script import commented, name_of, nodes_of
from pipesim.launch.values import values_of
from pipesim.specs import Point

_MODEL = "model.model_config."
MODEL = (
    Row(f"{_MODEL}num_hidden_layers", "model.layers"),
    Row(f"{_MODEL}hidden_size", "model.hidden"),
    Row(f"{_MODEL}intermediate_size", "model.ffn"),
    Row(f"{_MODEL}num_attention_heads", "model.heads"),
    Row(f"{_MODEL}num_key_value_heads", "model.kv_heads"),
    Row(f"{_MODEL}vocab_size", "model.vocab"),
    Row(f"{_MODEL}max_position_embeddings", "model.context"),
    Row(f"{_MODEL}tie_word_embeddings", "model.tied_embeddings", {True: True, False: False}),
)
FIXED = {
    "model.gated": True, "model.bias": False, "model.embedding_norm": False, "model.final_norm": True,
    "model.positions": "rotary", "model.norm": "rmsnorm",
}  # fmt: skip
PARALLEL = (
    Row("parallelism.tp", "parallel.t"),
    Row("parallelism.pp", "parallel.p"),
    Row("parallelism.dp", "parallel.d"),
    Row("parallelism.context_parallel_size", "parallel.c", absent=1),
    Row("parallelism.expert_parallel_size", "parallel.e", absent=1),
    Row("parallelism.pp_engine", "schedule.name", {"1f1b": "1f1b", "gpipe": "afab"}),
    Row("parallelism.tp_mode", "parallel.sequence_parallel", {True: "REDUCE_SCATTER", False: "ALL_REDUCE"}),
    Row("optimizer.zero_stage", "parallel.zero"),
)
TRAINING = (
    Row("tokens.micro_batch_size", "training.micro_batch"),
    Row("tokens.sequence_length", "training.seq_length"),
    Row("model.dtype", "training.precision", {"bf16": "bfloat16"}),
    Row("parallelism.recompute_layer", "training.recompute", {"full": True, "none": False}),
)
STEPS = "tokens.batch_accumulation_per_replica"
RUN = {
    "general.project": "pipesim", "general.run": "layout", "general.seed": 42, "general.ignore_sanity_checks": True,
    "tokenizer.tokenizer_name_or_path": "gpt2", "tokens.train_steps": 20, "model.make_vocab_size_divisible_by": 1,
    "model.init_method.std": 0.02, "model.ddp_bucket_cap_mb": 25,
    "optimizer.accumulate_grad_in_fp32": True, "optimizer.clip_grad": 1.0, "optimizer.weight_decay": 0.01,
    "optimizer.optimizer_factory.name": "adamW", "optimizer.optimizer_factory.adam_beta1": 0.9,
    "optimizer.optimizer_factory.adam_beta2": 0.95, "optimizer.optimizer_factory.adam_eps": 1.0e-8,
    "optimizer.optimizer_factory.torch_adam_is_fused": True,
    "optimizer.learning_rate_scheduler.learning_rate": 1.0e-4, "optimizer.learning_rate_scheduler.lr_warmup_steps": 2,
    "optimizer.learning_rate_scheduler.lr_warmup_style": "linear", "optimizer.learning_rate_scheduler.lr_decay_style": "cosine",
    "optimizer.learning_rate_scheduler.min_decay_lr": 1.0e-5,
    "checkpoints.checkpoints_path": "checkpoints", "checkpoints.checkpoint_interval": 1000,
}  # fmt: skip
"""What every run needs and no layout says: yours to change."""

NOT_OURS = (
    "general.", "tokenizer.", "checkpoints.", "data_stages", "data.", "logging.", "lighteval", "profiler", "s3_upload", "metrics",
    "optimizer.weight_decay", "optimizer.clip_grad", "optimizer.learning_rate_scheduler.", "optimizer.optimizer_factory.",
    "optimizer.adam_", "optimizer.torch_adam", "model.init_method.", "tokens.train_steps", "tokens.val_check_interval",
    "tokens.limit_",
    *(f"{_MODEL}{key}" for key in (
        "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "rms_norm_eps", "rope_", "pretraining_tp",
        "use_cache", "z_loss", "is_llama_config", "is_qwen2_config", "interleaved_rotary",
    )),
)  # fmt: skip
BY_STACK = (
    "model.ddp_bucket_cap_mb", "optimizer.accumulate_grad_in_fp32", "parallelism.tp_linear_async_communication",
    "parallelism.tp_recompute_allgather",
)  # fmt: skip
BESIDE = (
    STEPS,
    f"{_MODEL}hidden_act",
    f"{_MODEL}attention_bias",
    f"{_MODEL}_attn_implementation",
    "model.make_vocab_size_divisible_by",
)


def write(point: Point) -> str:
    """Raises ``Invalid`` with everything that nanotron has no word for."""
    values, layout, model = values_of(point), point.layout, point.model
    spoken, notes = nearest_words(values)
    problems = without_words([*MODEL, *PARALLEL, *TRAINING], spoken)
    problems += fixed(FIXED | {"model.head_dim": model.hidden // model.heads, "training.dropout": False}, values)
    problems += [
        f"model.{name} is not there. Nearest: a model without it." for name in ("mla", "moe") if getattr(model, name)
    ]
    if problems:
        raise Invalid([f"nanotron: {problem}" for problem in problems])
    if spoken["training.attention"] != "flash":
        notes.append(f"training.attention={values['training.attention']} has no key: attention is a flash kernel.")
    cut = own_cut(values, layout.p)
    if cut != layout.partition:
        notes.append(
            f"nanotron cuts the model itself, by cost: {list(cut)} units a stage, and {list(layout.partition or ())} "
            "were asked."
        )
    nodes, per_node, left = nodes_of(point)
    notes += [left] if left else []
    settings = RUN | theirs([*MODEL, *PARALLEL, *TRAINING], spoken)
    settings[STEPS] = point.training.global_batch // (point.training.micro_batch * (layout.d or 1))
    settings |= {f"{_MODEL}hidden_act": "silu", f"{_MODEL}{_kind(layout.c)}": True}
    settings |= (
        {f"{_MODEL}attention_bias": False, f"{_MODEL}_attn_implementation": "llama3_ring_attention"}
        if layout.c > 1
        else {}
    )
    content = rows.nested(settings) | {"data_stages": [_data(point)]}
    run = f"torchrun --nnodes {nodes} --nproc-per-node {per_node} run_train.py --config-file nanotron.yaml"
    head = [f"nanotron: {name_of(point)}", run, *(f"Note: {note}" for note in notes)]
    return commented(head) + str(yaml.safe_dump(content, sort_keys=True))


def _kind(c: int) -> str:
    """Only its Qwen2 has ring attention; without biases that is a Llama."""
    return "is_qwen2_config" if c > 1 else "is_llama_config"


def _data(point: Point) -> dict[str, Any]:
    """Random tokens: nanotron takes them where no dataset is named."""
    return {"name": "random", "start_training_step": 1, "data": {"dataset": None, "num_loading_workers": 1, "seed": 42}}


def own_cut(values: Mapping[str, Any], p: int) -> tuple[int, ...]:
    """Units on each stage: the next stage begins behind the block with which the products pass its share."""
    hidden, heads = values["model.hidden"], values["model.heads"]
    layer = 4 * heads * (hidden // heads) * hidden + 3 * values["model.ffn"] * hidden
    costs = [0, *[layer] * values["model.layers"], values["model.vocab"] * hidden]
    total, done, stage, units = sum(costs), 0, 0, [0] * p
    for cost in costs:
        units[stage] += 1
        done += cost
        if done * p > total * (stage + 1) and stage < p - 1:
            stage += 1
    return tuple(units)


def read(content: Mapping[str, Any]) -> Read:
    """What a run's YAML says, with nanotron's own defaults where it says nothing."""
    read, given = Read(framework="nanotron"), rows.flat(content)
    given = {name: value for name, value in given.items() if value is not None}
    defaults = {
        "parallelism.pp_engine": "afab",
        "parallelism.tp_mode": "ALL_REDUCE",
        "model.dtype": "bfloat16",
        "parallelism.recompute_layer": False,
    }
    given = defaults | given | {"parallelism.tp_mode": str(given.get("parallelism.tp_mode", "ALL_REDUCE")).upper()}
    values = read.values
    ours([*MODEL, *PARALLEL, *TRAINING], {f"{_MODEL}tie_word_embeddings": False} | given, read)
    values |= FIXED | {
        "parallel.v": 1,
        "training.attention": "flash",
        "training.dropout": False,
        "parallel.rank_order": "tcdp",
    }
    heads, hidden = values.get("model.heads"), values.get("model.hidden")
    if heads and hidden:
        values |= {"model.head_dim": hidden // heads, "model.kv_heads": values.get("model.kv_heads", heads)}
    steps, micro, d = whole(given.get(STEPS, 1)), values.get("training.micro_batch"), values.get("parallel.d")
    if steps and micro and d:
        values["training.global_batch"] = steps * micro * d
        read.gpus = d * values.get("parallel.t", 1) * values.get("parallel.p", 1) * values.get("parallel.c", 1)
    if (
        all(f"model.{key}" in values for key in ("layers", "hidden", "heads", "ffn", "vocab"))
        and "parallel.p" in values
    ):
        values["parallel.partition"] = own_cut(values, values["parallel.p"])
    if (multiple := whole(given.get("model.make_vocab_size_divisible_by", 1))) and "model.vocab" in values:
        whole_rows = multiple * values.get("parallel.t", 1)
        values["model.vocab"] = -(-values["model.vocab"] // whole_rows) * whole_rows
    read.untold = [key for key in read.untold if key not in values]
    known = {row.name for row in (*MODEL, *PARALLEL, *TRAINING)} | set(BESIDE)
    rest = {name: value for name, value in given.items() if name not in known}
    sort_settings(read, rest, NOT_OURS, BY_STACK)
    return read
