"""Hugging Face's ``config.json`` as a model of ours: the shapes that fit, kind by kind.

Source: transformers 4.57, models/*/configuration_*.py (defaults) and modeling_*.py (which matrices have biases).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pipesim.checks import suggest
from pipesim.launch.rows import Read, Row, ours

SIZES = (
    Row("num_hidden_layers", "model.layers"),
    Row("hidden_size", "model.hidden"),
    Row("num_attention_heads", "model.heads"),
    Row("intermediate_size", "model.ffn"),
    Row("vocab_size", "model.vocab"),
    Row("max_position_embeddings", "model.context"),
)
GROUPED = (Row("num_key_value_heads", "model.kv_heads"), Row("head_dim", "model.head_dim"))
GPT2 = (
    Row("n_layer", "model.layers"), Row("n_embd", "model.hidden"), Row("n_head", "model.heads"), Row("n_inner", "model.ffn"),
    Row("vocab_size", "model.vocab"), Row("n_positions", "model.context"),
)  # fmt: skip
BLOOM = (
    Row("n_layer", "model.layers"), Row("num_hidden_layers", "model.layers"), Row("hidden_size", "model.hidden"),
    Row("n_embed", "model.hidden"), Row("n_head", "model.heads"), Row("num_attention_heads", "model.heads"),
    Row("vocab_size", "model.vocab"), Row("seq_length", "model.context"),
)  # fmt: skip
MIXTRAL = (Row("num_local_experts", "model.moe.experts"), Row("num_experts_per_tok", "model.moe.top_k"))
QWEN_MOE = (
    Row("num_experts", "model.moe.experts"), Row("num_experts_per_tok", "model.moe.top_k"),
    Row("moe_intermediate_size", "model.moe.ffn"),
)  # fmt: skip
DEEPSEEK = (
    Row("n_routed_experts", "model.moe.experts"), Row("num_experts_per_tok", "model.moe.top_k"),
    Row("moe_intermediate_size", "model.moe.ffn"), Row("n_shared_experts", "model.moe.shared_experts", absent=0),
    Row("first_k_dense_replace", "model.moe.dense_layers", absent=0), Row("q_lora_rank", "model.mla.query_rank"),
    Row("n_group", "model.moe.groups", absent=1), Row("topk_group", "model.moe.group_limit", absent=1),
    Row("kv_lora_rank", "model.mla.kv_rank"), Row("qk_nope_head_dim", "model.mla.nope_head_dim"),
    Row("qk_rope_head_dim", "model.mla.rope_head_dim"), Row("v_head_dim", "model.mla.value_head_dim"),
)  # fmt: skip

LLAMA = {
    "gated": True, "bias": False, "tied_embeddings": False, "embedding_norm": False, "final_norm": True,
    "positions": "rotary", "norm": "rmsnorm",
}  # fmt: skip
GPT = {
    "gated": False, "bias": True, "tied_embeddings": True, "embedding_norm": False, "final_norm": True,
    "positions": "learned", "norm": "layernorm",
}  # fmt: skip


class Kind(NamedTuple):
    """``fixed`` is the shape that the code has; ``odd`` says what of it ours leaves out."""

    rows: tuple[Row, ...]
    fixed: Mapping[str, Any]
    odd: str = ""
    needs: Mapping[str, Any] = {}
    """Settings that the shape is known for; another value is a problem."""


_NO_BIAS = {"attention_bias": False, "mlp_bias": False}
KINDS: dict[str, Kind] = {
    "llama": Kind((*SIZES, *GROUPED), LLAMA, needs=_NO_BIAS),
    "mistral": Kind((*SIZES, *GROUPED), LLAMA),
    "mixtral": Kind((*SIZES, *GROUPED, *MIXTRAL), LLAMA),
    "gemma": Kind((*SIZES, *GROUPED), LLAMA | {"tied_embeddings": True}, needs=_NO_BIAS),
    "qwen2": Kind((*SIZES, *GROUPED), LLAMA, "biases of queries, keys and values"),
    "qwen3": Kind((*SIZES, *GROUPED), LLAMA, "norms of queries and keys", _NO_BIAS),
    "qwen3_moe": Kind(
        (*SIZES, *GROUPED, *QWEN_MOE), LLAMA, "norms of queries and keys",
        _NO_BIAS | {"decoder_sparse_step": 1, "mlp_only_layers": []},
    ),
    "deepseek_v2": Kind((*SIZES, *DEEPSEEK), LLAMA, needs={"moe_layer_freq": 1, "attention_bias": False}),
    "deepseek_v3": Kind(
        (*SIZES, *DEEPSEEK), LLAMA | {"moe.router_bias": True}, needs={"moe_layer_freq": 1, "attention_bias": False}
    ),
    "gpt2": Kind(GPT2, GPT, needs={"add_cross_attention": False}),
    "gpt_neox": Kind(SIZES, GPT | {"tied_embeddings": False, "positions": "rotary"}, needs={"attention_bias": True}),
    "bloom": Kind(BLOOM, GPT | {"embedding_norm": True, "positions": "alibi"}),
}  # fmt: skip

NOT_OURS = (
    "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "initializer_range", "use_cache", "rope_",
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
    "auto_map", "pretraining_tp", "router_aux_loss_coef", "output_router_logits", "task_specific_params", "summary_",
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "classifier_dropout", "n_ctx",
    "hidden_act", "hidden_activation", "activation_function", "_name_or_path", "name_or_path", "return_dict", "rotary_emb_base",
    "aux_loss_alpha", "seq_aux", "scoring_func", "topk_method", "norm_topk_prob", "routed_scaling_factor",
    "ep_size", "use_parallel_residual", "apply_residual_connection_post_layernorm", "attention_softmax_in_fp32",
    "masked_softmax_fusion", "bias_dropout_fusion", "slow_but_exact", "skip_bias_add", "offset_alibi", "unk_", "ffn_hidden_size",
    "max_window_layers", "use_sliding_window", "num_nextn_predict_layers", "quantization_config", "router_jitter_noise",
    "reorder_and_upcast_attn", "scale_attn", "is_decoder", "_commit_hash", "partial_rotary_factor", "id2label", "label2id",
)  # fmt: skip
"""What changes neither matrices nor layers. Multi-token prediction is not priced, nor are training's dropouts told here."""


def read(content: Mapping[str, Any]) -> Read:
    """The model of a ``config.json``; kinds that do not fit are a problem."""
    read = Read(framework=None)
    name = content.get("model_type")
    kind = KINDS.get(str(name))
    if kind is None:
        near = suggest(str(name), KINDS) or f" There are {', '.join(KINDS)}."
        read.problems.append(f"model_type={name!r} is no shape of ours.{near}")
        return read
    given = {key: value for key, value in content.items() if value is not None}
    ours(kind.rows, given, read)
    read.values |= {f"model.{key}": value for key, value in kind.fixed.items() if f"model.{key}" not in read.values}
    if isinstance(given.get("tie_word_embeddings"), bool):
        read.values["model.tied_embeddings"] = given["tie_word_embeddings"]
    _derived(str(name), read)
    read.untold = [key for key in read.untold if key not in read.values]
    read.problems += [
        f"{key}={given[key]} is no shape of ours. Nearest: {key}={value}."
        for key, value in kind.needs.items() if given.get(key, value) != value
    ]  # fmt: skip
    if kind.odd:
        read.assumed.append(f"{name}'s {kind.odd} are not counted.")
    if given.get("num_nextn_predict_layers"):
        read.assumed.append("the layers of multi-token prediction are not counted.")
    known = {row.name for row in kind.rows} | set(kind.needs) | {"tie_word_embeddings", "num_key_value_heads"}
    for key, value in given.items():
        if key in known:
            continue
        ignored = key.startswith(NOT_OURS) or (key == "sliding_window" and not given.get("use_sliding_window", True))
        (read.ignored if ignored else read.unknown).append(key if ignored else f"{key}={value}")
    return read


def context_name(content: Mapping[str, Any]) -> str:
    """What says the longest sequence that a model of a known kind takes."""
    names = [row.name for row in KINDS[str(content["model_type"])].rows if row.key == "model.context"]
    return next((f"the file's {name}" for name in names if content.get(name) is not None), "the kind's own context")


def _derived(name: str, read: Read) -> None:
    """What the kind's own code takes where the file says nothing."""
    values = read.values
    hidden, heads = values.get("model.hidden"), values.get("model.heads")
    if name == "bloom":
        values.setdefault("model.context", 2048)
    if not hidden or not heads:
        return
    if "model.mla.nope_head_dim" in values:
        values["model.head_dim"] = values["model.mla.nope_head_dim"] + values.get("model.mla.rope_head_dim", 0)
    values |= {"model.kv_heads": heads} if "model.mla.kv_rank" in values else {}
    told = {"model.kv_heads": heads, "model.head_dim": hidden // heads}
    if name in ("gpt2", "bloom"):
        told["model.ffn"] = 4 * hidden
    if name == "mixtral" and "model.ffn" in values:
        told["model.moe.ffn"] = values["model.ffn"]
    values |= {key: value for key, value in told.items() if key not in values}
