"""Megatron-LM: arguments from a point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid
from pipesim.launch import megatron_flags as table
from pipesim.launch import megatron_stages
from pipesim.launch.rows import theirs, without_words
from pipesim.launch.script import Script, vocabulary_flags
from pipesim.launch.values import Values, values_of
from pipesim.specs import Point

NEAREST = {"training.attention": {"flash1": "flash", "flash3": "flash", "torch": "unfused"}}
"""Kernels that the flags cannot tell apart -> the one whose word is written."""
FIXED = {"model.embedding_norm": False, "model.final_norm": True}
"""What the model always has."""


def write(point: Point) -> Script:
    """Raises ``Invalid`` with everything that Megatron-LM has no word for."""
    values, layout = values_of(point), point.layout
    spoken, notes = nearest_words(values)
    rows = [*table.MODEL, *table.PARALLEL, *table.TRAINING]
    problems = without_words(rows, spoken) + fixed(FIXED, values)
    try:
        stages = megatron_stages.flags(layout.partition, layout.p, layout.v or 1)  # type: ignore[arg-type]
    except Invalid as error:
        stages, problems = {}, problems + error.problems
    if values["training.seq_length"] > values["model.context"]:
        problems.append(
            f"training.seq_length={values['training.seq_length']} exceeds --max-position-embeddings, model.context="
            f"{values['model.context']}. Nearest: model.context={values['training.seq_length']}, or training.seq_length="
            f"{values['model.context']}."
        )
    if problems:
        raise Invalid([f"Megatron-LM: {problem}" for problem in problems])
    training = theirs(table.TRAINING, spoken) | _recompute(values) | dropout(values)
    training |= {"--bf16": True} if values["training.precision"] == "fp8" else {}
    return Script(
        title="Megatron-LM", program="pretrain_gpt.py", home="MEGATRON", point=point,
        notes=[*notes, *_left_to_you(values), *_dispatched(point)],
        groups={
            "MODEL_ARGS": _model(values) | _dispatcher(point), "VOCABULARY_ARGS": vocabulary_flags(values),
            "PARALLEL_ARGS": theirs(table.PARALLEL, spoken) | stages | _sharing(values) | _overlap(point),
            "TRAINING_ARGS": training,
        },
        exports={} if layout.zero > 1 or layout.t * layout.c == 1 else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    )  # fmt: skip


def nearest_words(values: Values) -> tuple[Values, list[str]]:
    """The values with words that flags have, and a sentence for each that was another."""
    spoken, notes = dict(values), []
    for key, words in NEAREST.items():
        if values[key] in words:
            spoken[key] = words[values[key]]
            notes.append(f"{key}={values[key]} has no word of its own: which kernel runs is what is installed.")
    if values["training.optimizer_barrier"] is False:
        notes.append("training.optimizer_barrier=false has no flag: every rank waits before the weights change.")
    return spoken, notes


def fixed(known: Mapping[str, Any], values: Values) -> list[str]:
    return [
        f"{key}={_word(values[key])} is not there. Nearest: {key}={_word(value)}."
        for key, value in known.items()
        if key in values and values[key] != value
    ]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model(values: Values) -> dict[str, Any]:
    alike = values["model.kv_heads"] == values["model.heads"]
    settings = theirs(table.MODEL, values)
    if alike:
        del settings["--num-query-groups"]
    else:
        settings = {"--group-query-attention": True} | settings
    if "model.mla.kv_rank" in values:
        settings |= {"--multi-latent-attention": True} | theirs(table.MLA, values)
        del settings["--kv-channels"]
    if "model.moe.experts" in values:
        settings |= theirs(table.MOE, values)
        settings["--moe-router-topk"] = values["model.moe.top_k"]
        if values["model.moe.groups"] > 1:
            settings["--moe-router-group-topk"] = values["model.moe.group_limit"]
        if values["model.moe.router_bias"]:
            settings["--moe-router-score-function"] = "sigmoid"  # the only one that takes a bias
        shared, dense = values["model.moe.shared_experts"], values["model.moe.dense_layers"]
        if shared:
            settings["--moe-shared-expert-intermediate-size"] = shared * values["model.moe.ffn"]
        if dense:
            settings["--moe-layer-freq"] = f"([0]*{dense}+[1]*{values['model.layers'] - dense})"
    return settings


def _dispatcher(point: Point) -> dict[str, Any]:
    if point.model.moe is None:
        return {}
    relayed = {"--moe-token-dispatcher-type": "flex", "--moe-enable-deepep": True}
    return relayed if point.stack.relayed_dispatch else {"--moe-token-dispatcher-type": "alltoall"}


def _dispatched(point: Point) -> list[str]:
    """Source: Megatron-LM ``moe/fused_a2a.py``: what it hands to DeepEP is the 16-bit tensor."""
    if point.model.moe is None or not point.stack.fp8_dispatch:
        return []
    return ["stack.fp8_dispatch=true has no flag: tokens go to their experts in 16 bits."]


def _sharing(values: Values) -> dict[str, Any]:
    ranks, shard = values["parallel.d"] * values["parallel.c"], values["parallel.shard"]
    settings: dict[str, Any] = {}
    if values["parallel.zero"] > 1:
        settings = {"--use-megatron-fsdp": True, "--ckpt-format": "fsdp_dtensor"}
    if shard is not None:
        settings["--num-distributed-optimizer-instances"] = ranks // shard
    return settings


def _overlap(point: Point) -> dict[str, Any]:
    """What the stack's ``dp_overlap`` stands for; gathering weights needs an optimizer that is divided over data ranks."""
    layout = point.layout
    if not point.stack.dp_overlap or (layout.d or 1) * layout.c == 1:
        return {}
    return {"--overlap-grad-reduce": True} | ({"--overlap-param-gather": True} if layout.zero else {})


def _left_to_you(values: Values) -> list[str]:
    """What decides neither time nor memory but must be right in a real run. Source: Llama 3, 2024, section 3.2."""
    rotary = "no key says the rotary base, so that the framework's --rotary-base 10000 stands; Llama 3 needs --rotary-base 500000."
    vocab = values["model.vocab"]
    return [
        *([rotary] if values["model.positions"] == "rotary" else []),
        f"--vocab-size {vocab - 1} is one less than model.vocab={vocab}, for NullTokenizer adds one; with a tokenizer of your "
        "own leave both out.",
        "it ends after --train-iters 20 and saves nothing: give --train-iters, --save and --load behind the script's name, where "
        "the last of equal flags counts.",
    ]


def _recompute(values: Values) -> dict[str, Any]:
    kind, layers = values["training.recompute"], values["training.recompute_layers"]
    if kind == "none":
        return {}
    if kind == "selective":
        return {"--recompute-granularity": "selective"}
    again = layers[0] if isinstance(layers, tuple) else layers
    method = {"--recompute-method": "uniform", "--recompute-num-layers": 1}
    if again is not None:
        method = {"--recompute-method": "block", "--recompute-num-layers": again}
    return {"--recompute-granularity": "full"} | method


def dropout(values: Values) -> dict[str, str]:
    return dict.fromkeys(table.DROPOUT, "0.1" if values["training.dropout"] else "0.0")
