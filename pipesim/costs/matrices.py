"""The weight matrices of one layer: the one list that parameters, FLOPs and matrix-product times are counted from."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from pipesim.costs.columns import Number
from pipesim.specs import ModelSpec

Split = Literal["columns", "rows", "whole"]


class Matrix(NamedTuple):
    """A linear operator from ``inputs`` to ``outputs``, and how tensor parallelism cuts it.

    ``columns`` divides the outputs (and their bias) by t, ``rows`` the inputs, ``whole`` is held by every tensor rank.
    Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
    """

    name: str
    inputs: int
    outputs: int
    split: Split

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs


def attention_matrices(model: ModelSpec) -> tuple[Matrix, ...]:
    """Query, key, value and output projections; with latents where the model has multi-head latent attention."""
    h, mla = model.hidden, model.mla
    if mla is not None:
        key_dim = mla.nope_head_dim + mla.rope_head_dim
        return (
            Matrix("query_down", h, mla.query_rank, "whole"),
            Matrix("query_up", mla.query_rank, model.heads * key_dim, "columns"),
            Matrix("key_value_down", h, mla.kv_rank + mla.rope_head_dim, "whole"),
            Matrix("key_value_up", mla.kv_rank, model.heads * (mla.nope_head_dim + mla.value_head_dim), "columns"),
            Matrix("output", model.heads * mla.value_head_dim, h, "rows"),
        )
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    return (Matrix("query_key_value", h, queries + 2 * keys, "columns"), Matrix("output", queries, h, "rows"))


def mlp_matrices(model: ModelSpec, ffn: int) -> tuple[Matrix, ...]:
    """Up (and gate, fused with it) and down of one MLP of width ``ffn``."""
    return (
        Matrix("up", model.hidden, ffn * (2 if model.gated else 1), "columns"),
        Matrix("down", ffn, model.hidden, "rows"),
    )


def dense_matrices(model: ModelSpec, moe: bool) -> tuple[Matrix, ...]:
    """Every matrix of a layer that each token passes: all but the routed experts."""
    if not moe or model.moe is None:
        return attention_matrices(model) + mlp_matrices(model, model.ffn)
    shared = mlp_matrices(model, model.moe.ffn * model.moe.shared_experts) if model.moe.shared_experts else ()
    return (*attention_matrices(model), Matrix("router", model.hidden, model.moe.experts, "whole"), *shared)


def expert_matrices(model: ModelSpec) -> tuple[Matrix, ...]:
    """The matrices of one routed expert."""
    return mlp_matrices(model, model.moe.ffn) if model.moe is not None else ()


def head_dims(model: ModelSpec) -> tuple[int, int]:
    """Sizes of one head's query-key product and of its value, in elements."""
    if model.mla is not None:
        return model.mla.nope_head_dim + model.mla.rope_head_dim, model.mla.value_head_dim
    return model.head_dim, model.head_dim


def key_value_heads(model: ModelSpec, t: Number) -> Number:
    """Heads of keys of one tensor rank, as attention takes them: latents are multiplied out first, and where there are more
    tensor ranks than heads each holds one.
    """
    return np.maximum((model.heads if model.mla else model.kv_heads) / t, 1.0)


def key_value_width(model: ModelSpec, t: Number) -> Number:
    """Elements of one token's keys and values on one tensor rank."""
    return key_value_heads(model, t) * sum(head_dims(model))
