"""How many parameters a model has, exactly, and how tensor and expert parallelism hold them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pipesim.costs.columns import Number
from pipesim.costs.matrices import Matrix, dense_matrices, expert_matrices
from pipesim.specs import ModelSpec


class LayerParameters(NamedTuple):
    """The parameters of one layer, by who holds them.

    ``sharded``     attention, MLP and shared-expert matrices, column-parallel biases: divided by t
    ``replicated``  norms, row-parallel biases, router, latent down-projections: whole on every tensor rank
    ``expert``      all routed experts: divided by e, and inside an expert by t

    Source: Shoeybi et al., "Megatron-LM", 2019, section 3; Megatron Core keeps the latent down-projections whole
    (``TELinear`` without a parallel mode), as DeepSeek-V3's own code does.
    """

    sharded: int
    replicated: int
    expert: int

    @property
    def total(self) -> int:
        return self.sharded + self.replicated + self.expert

    def on_rank(self, t: Number, e: Number) -> tuple[Number, Number]:
        """Of one of t x e ranks: what all ranks of a data group hold alike, and its experts."""
        return self.sharded / t + self.replicated, self.expert / np.multiply(t, e)


def embedding_parameters(model: ModelSpec) -> int:
    """The token table, learned positions (rotary and ALiBi have no parameters) and the norm behind them, if any."""
    positions = model.context if model.positions == "learned" else 0
    return (model.vocab + positions) * model.hidden + model.embedding_norm * _norm(model, model.hidden)


def layer_parameters(model: ModelSpec, moe: bool) -> LayerParameters:
    """One pre-norm block: two norms, attention and an MLP; with ``moe`` routed and shared experts in the MLP's place.

    An expert's row-parallel bias is counted with the expert: no model here has one.
    """
    dense, replicated = dense_matrices(model, moe), 2 * _norm(model, model.hidden)
    if model.mla is not None:
        replicated += _norm(model, model.mla.query_rank) + _norm(model, model.mla.kv_rank)
    expert = 0
    if moe and model.moe is not None:
        replicated += model.moe.experts * model.moe.router_bias
        matrices = expert_matrices(model)
        expert = model.moe.experts * (_weights(matrices) + _biases(model, matrices))
    cut = [matrix for matrix in dense if matrix.split != "whole"]
    whole = [matrix for matrix in dense if matrix.split == "whole"]
    columns = [matrix for matrix in cut if matrix.split == "columns"]
    rows = [matrix for matrix in dense if matrix.split != "columns"]
    return LayerParameters(
        sharded=_weights(cut) + _biases(model, columns),
        replicated=replicated + _weights(whole) + _biases(model, rows),
        expert=expert,
    )


def final_norm_parameters(model: ModelSpec) -> int:
    """The norm before the head."""
    return model.final_norm * _norm(model, model.hidden)


def head_parameters(model: ModelSpec) -> int:
    """The output matrix. Tied or not, the last stage holds it; ``total_parameters`` counts a tied one once."""
    return model.vocab * model.hidden


def moe_layers(model: ModelSpec) -> int:
    """Layers with routed experts: all behind the first ``moe.dense_layers``."""
    return 0 if model.moe is None else model.layers - model.moe.dense_layers


def dense_layers(model: ModelSpec) -> int:
    """Layers with one dense MLP."""
    return model.layers - moe_layers(model)


def total_parameters(model: ModelSpec) -> int:
    """Every parameter once: a tied head is the token table."""
    layers = dense_layers(model) * layer_parameters(model, moe=False).total
    if moe_layers(model):
        layers += moe_layers(model) * layer_parameters(model, moe=True).total
    head = 0 if model.tied_embeddings else head_parameters(model)
    return embedding_parameters(model) + layers + final_norm_parameters(model) + head


def active_parameters(model: ModelSpec) -> int:
    """Parameters one token passes: of the routed experts only ``top_k``, of all else everything.

    Counts the whole token table, of which a token reads one row; some sources leave it out and say so
    (DeepSeek-V3's 36.6 billion).
    """
    if model.moe is None:
        return total_parameters(model)
    one_expert = layer_parameters(model, moe=True).expert // model.moe.experts
    return total_parameters(model) - moe_layers(model) * (model.moe.experts - model.moe.top_k) * one_expert


def _norm(model: ModelSpec, width: int) -> int:
    """LayerNorm has a weight and a bias, RMSNorm a weight."""
    return width * (2 if model.norm == "layernorm" else 1)


def _weights(matrices: Iterable[Matrix]) -> int:
    return sum(matrix.weights for matrix in matrices)


def _biases(model: ModelSpec, matrices: Iterable[Matrix]) -> int:
    """One bias for each output of every linear operator, if the model has biases; a router has none."""
    return model.bias * sum(matrix.outputs for matrix in matrices if matrix.name != "router")
