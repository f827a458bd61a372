"""Megatron-LM: a point's values from arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipesim.checks import Invalid
from pipesim.launch import megatron_flags as table
from pipesim.launch import megatron_stages, shell
from pipesim.launch.megatron import FIXED
from pipesim.launch.rows import Read, Row, ours, whole
from pipesim.launch.script import pad_to
from pipesim.legality import megatron_split


def given_of(text: str, switches: set[str], read: Read) -> dict[str, Any]:
    """Flag -> its value (True where it is a switch); those that are not ours go to their lists, and the last one counts."""
    given: dict[str, Any] = {}
    for flag in shell.flags(text):
        name = flag.name
        if shell.unresolved(flag) and name not in switches and (name in table.BESIDE or name in KNOWN):
            read.unknown.append(f"{name} {' '.join(flag.values)}")
        elif name in switches or not flag.values:
            given[name] = True
        else:
            word = flag.values[0]
            given[name] = table.OTHER_WORDS.get(name, {}).get(word, word)
            if given[name] != word:
                read.assumed.append(f"{name} {word} is read as {given[name]}.")
    return given


def read(text: str) -> Read:
    """What Megatron-LM arguments say, with its own defaults where they say nothing."""
    read = Read(framework="megatron_lm")
    given = given_of(text, SWITCHES, read)
    read_gpus(given, read)
    _read_model(given, read)
    _read_training(given, read)
    ours(table.PARALLEL, given, read)
    if given.get("--use-megatron-fsdp") and "--data-parallel-sharding-strategy" not in given:
        read.values["parallel.zero"] = 0
    read_layout(given, read)
    instances = whole(given.get("--num-distributed-optimizer-instances", 1))
    degrees = [read.values.get(f"parallel.{key}") for key in ("d", "c")]
    if instances and instances > 1 and all(degrees):
        read.values["parallel.shard"] = degrees[0] * degrees[1] // instances  # type: ignore[operator]
    if str(given.get("--expert-tensor-parallel-size", read.values["parallel.t"])) != str(read.values["parallel.t"]):
        read.unknown.append(
            f"--expert-tensor-parallel-size {given['--expert-tensor-parallel-size']}: t divides experts too"
        )
    sort_rest(given, KNOWN, read)
    return read


def read_gpus(given: Mapping[str, Any], read: Read) -> None:
    """From torchrun's own flags, where they are numbers; d follows."""
    sizes = [whole(given.get(name)) for name in ("--nnodes", "--nproc-per-node")]
    if all(sizes):
        read.gpus = sizes[0] * sizes[1]  # type: ignore[operator]


def _read_model(given: dict[str, Any], read: Read) -> None:
    values = read.values
    if given.get("--use-rotary-position-embeddings"):
        values["model.positions"] = "rotary"
    ours(table.MODEL, given, read)
    heads, hidden = values.get("model.heads"), values.get("model.hidden")
    if heads and hidden:
        gated = values["model.gated"]
        told = {
            "model.kv_heads": heads, "model.head_dim": hidden // heads,
            "model.ffn": hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden,
        }  # fmt: skip
        values |= {key: value for key, value in told.items() if key not in values}
        if not given.get("--group-query-attention"):
            values["model.kv_heads"] = heads
    if given.get("--multi-latent-attention"):
        ours(table.MLA, given, read)
        if "model.mla.query_rank" in values:
            values["model.head_dim"] = values["model.mla.nope_head_dim"] + values["model.mla.rope_head_dim"]
    if whole(given.get("--num-experts", 0)):
        _read_experts(given, read)
    values |= FIXED
    read_vocabulary(given, read)
    read.untold = [key for key in read.untold if key not in values]


def _read_experts(given: dict[str, Any], read: Read) -> None:
    ours(table.MOE, given, read)
    values = read.values
    values.setdefault("model.moe.ffn", values.get("model.ffn", 1))
    width = int(values["model.moe.ffn"])
    shared = whole(given.get("--moe-shared-expert-intermediate-size", 0)) or 0
    if shared % width:
        read.problems.append(
            f"--moe-shared-expert-intermediate-size={shared} is no multiple of --moe-ffn-hidden-size={width}."
        )
    values["model.moe.shared_experts"] = shared // width
    values["model.moe.dense_layers"] = _dense_layers(
        str(given.get("--moe-layer-freq", 1)), values.get("model.layers", 0), read
    )


def _dense_layers(pattern: str, layers: int, read: Read) -> int:
    """Of ``([0]*3+[1]*58)``: the first layers that keep a dense MLP, all others being experts."""
    if pattern == "1":
        return 0
    found = re.fullmatch(r"\(?\[0\](?:\*(\d{1,6}))?\+\[1\](?:\*(\d{1,6}))?\)?", pattern.replace(" ", ""))
    dense = int(found[1] or 1) if found else 0
    if not found or (layers and dense + int(found[2] or 1) != layers):
        read.problems.append(
            f"--moe-layer-freq={pattern} must name dense layers first and experts behind them, model.layers={layers} in all. "
            f"Nearest: ([0]*{dense}+[1]*{max(layers - dense, 0)})."
        )
    return dense


def read_vocabulary(given: Mapping[str, Any], read: Read) -> None:
    """Rows of the embedding: Megatron pads the tokenizer's size to a multiple that t divides."""
    known = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000, "Llama3Tokenizer": 128256}
    tokenizer = str(given.get("--tokenizer-type"))
    size = whole(given.get("--vocab-size")) or known.get(tokenizer)
    size = size + 1 if size and tokenizer == "NullTokenizer" else size
    if padded := whole(given.get("--padded-vocab-size") or given.get("--pad-vocab-size-to")):
        read.values["model.vocab"] = padded
    elif size:
        multiple = whole(given.get("--make-vocab-size-divisible-by", 128)) or 128
        t = whole(given.get("--tensor-model-parallel-size", 1)) or 1
        read.values["model.vocab"] = pad_to(size, multiple * t)
        if read.values["model.vocab"] != size:
            read.assumed.append(
                f"model.vocab={read.values['model.vocab']}: {size} padded to a multiple of {multiple} x {t}."
            )
    else:
        read.untold.append("model.vocab")


def _read_training(given: dict[str, Any], read: Read) -> None:
    ours(table.TRAINING, given, read)
    values = read.values
    if values.get("training.precision") == "fp8" and given.get("--fp16"):
        read.problems.append("--fp8-format goes with --bf16 here. Nearest: --bf16.")
    if "training.attention" not in values:
        values["training.attention"] = "flash"
        read.untold.remove("training.attention")
        if not given.get("--use-flash-attn"):
            read.assumed.append("training.attention=flash: --attention-backend is auto unless given.")
    read_recompute(given, read)
    read_dropout(given, read)


def read_recompute(given: Mapping[str, Any], read: Read) -> None:
    kind = "selective" if given.get("--recompute-activations") else given.get("--recompute-granularity", "none")
    if kind not in ("none", "selective", "full"):
        read.problems.append(f"--recompute-granularity={kind} must be selective or full.")
        return
    read.values["training.recompute"] = kind
    method, layers = given.get("--recompute-method"), whole(given.get("--recompute-num-layers", 1))
    if kind == "full" and method == "block":
        read.values["training.recompute_layers"] = layers
    elif kind == "full" and (layers or 1) > 1:
        read.assumed.append(
            f"--recompute-num-layers={layers} of --recompute-method=uniform keeps fewer inputs; read as 1."
        )


def read_dropout(given: Mapping[str, Any], read: Read) -> None:
    shares = [str(given.get(name, "0.1")) for name in table.DROPOUT]
    read.values["training.dropout"] = not all(share.strip("0.") == "" for share in shares)
    if not any(name in given for name in table.DROPOUT):
        read.assumed.append("training.dropout=true: dropout is 0.1 unless given.")


def read_layout(given: Mapping[str, Any], read: Read) -> None:
    """Stages, v, the schedule and d from what is read already."""
    values = read.values
    words = {name: str(given[name]) for name in megatron_stages.FLAGS if name in given}
    if "model.layers" in values:
        try:
            values["parallel.partition"], values["parallel.v"] = megatron_stages.units(
                words, values["model.layers"], values["parallel.p"]
            )
        except Invalid as error:
            read.problems += error.problems
    values["schedule.name"] = "interleaved_1f1b" if values.get("parallel.v", 1) > 1 else "1f1b"
    cut = values["parallel.t"] * values["parallel.p"] * values["parallel.c"]
    if read.gpus is not None and read.gpus % cut:
        read.problems.append(f"{cut} = t x p x c does not divide the {read.gpus} GPUs of --nnodes x --nproc-per-node.")
    elif read.gpus is not None:
        values["parallel.d"] = read.gpus // cut


def sort_rest(given: Mapping[str, Any], known: set[str], read: Read) -> None:
    """Every flag that no table read: not about the layout, the stack's, or not understood."""
    for name, value in given.items():
        if name in known:
            continue
        said = name if value is True else f"{name} {value}"
        if table.NOT_OURS.fullmatch(name):
            read.ignored.append(name)
        elif table.BY_STACK.fullmatch(name):
            read.by_stack.append(name)
        else:
            read.unknown.append(said)


def switches_of(*rows: Row) -> set[str]:
    return {row.name for row in rows if row.words is not None and True in row.words.values()}


_ROWS = (*table.MODEL, *table.MLA, *table.MOE, *table.PARALLEL, *table.TRAINING)
SWITCHES = switches_of(*_ROWS) | {
    megatron_split.EMBEDDING, megatron_split.LOSS, "--group-query-attention", "--multi-latent-attention",
    "--use-megatron-fsdp", "--use-rotary-position-embeddings", "--use-flash-attn", "--recompute-activations",
}  # fmt: skip
KNOWN = {row.name for row in _ROWS} | table.BESIDE
