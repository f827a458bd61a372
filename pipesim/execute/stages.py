"""The units of a GPT as they run inside a stage: embedding, blocks, head; the same arithmetic as ``toy.gpt.Gpt``.

Another model needs ``partition`` to name its units and parameters, and a function for each unit here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pipesim.execute import layers
from pipesim.execute.dropout import Dropout, dropped
from pipesim.execute.live import Activation
from pipesim.execute.partition import EMBEDDING, HEAD
from pipesim.execute.tensor_parallel import Team, into, summed_linear
from pipesim.toy.gpt import GptSpec


class KeyValue(NamedTuple):
    """Keys and values of one block and segment, (batch, heads, length, features).

    ``key`` and ``value`` are part of their segment's graph. Later segments read the leaves, which collect the gradient
    that the segment's own backward starts from.
    """

    key: Tensor
    value: Tensor
    key_leaf: Tensor
    value_leaf: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one forward of a stage needs besides its input."""

    model: GptSpec
    weights: Mapping[str, Tensor]
    activation: Activation
    team: Team
    start: int
    """Position of the first token: that of the segment."""
    targets: Tensor | None
    """Of the last stage: (batch, length) of this segment."""
    batch_tokens: int
    """Tokens of the whole batch, what every loss is divided by."""
    masks: Dropout | None = None
    earlier: Sequence[Mapping[str, KeyValue]] = ()
    """Keys and values of the segments before this one, by block."""
    keeps: bool = False
    """Whether segments after this one will read its keys and values."""
    kept: dict[str, KeyValue] = field(default_factory=dict)

    def weight(self, name: str) -> Tensor:
        return self.weights[name]


def forward(units: Sequence[str], x: Tensor, call: Call) -> Tensor:
    """Runs ``x`` through the units: tokens (batch, length) for the embedding, else (batch, length, width).

    Gives the same, or, behind the head, this segment's part of the loss of the whole batch.
    """
    for unit in units:
        if unit == EMBEDDING:
            x = embed(x, call)
        elif unit == HEAD:
            x = loss(x, call)
        else:
            x = block(x, unit, call)
    return x


def embed(tokens: Tensor, call: Call) -> Tensor:
    """The sum of a token's and its position's row."""
    own = call.team.own(tokens)
    first = call.start + call.team.first(tokens.shape[1])
    positions = torch.arange(first, first + own.shape[1], device=own.device)
    rows = layers.embedding(own, call.weight("tokens.weight"), call.activation)
    return rows + layers.embedding(positions, call.weight("positions.weight"), call.activation)


def block(x: Tensor, unit: str, call: Call) -> Tensor:
    """Attention and MLP, each behind a LayerNorm and added to what came in."""
    first = call.start + call.team.first(x.shape[1] * call.team.parts)
    added = attention(norm(x, f"{unit}.attention_norm", call), unit, call)
    x = x + dropped(call.masks, f"{unit}.projection", added, first)
    added = mlp(norm(x, f"{unit}.mlp_norm", call), unit, call)
    return x + dropped(call.masks, f"{unit}.down", added, first)


def attention(x: Tensor, unit: str, call: Call) -> Tensor:
    """Causal self-attention; each of the t ranks has some of the heads."""
    qkv = layers.linear(into(x, call.team), *_pair(f"{unit}.qkv", call), call.activation)
    batch, length, _ = qkv.shape
    heads = call.model.heads // call.team.group.size
    query, key, value = qkv.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    mixed = _attend(query, key, value, unit, call).transpose(1, 2).reshape(batch, length, -1)
    return summed_linear(mixed, *_pair(f"{unit}.projection", call), call.activation, call.team)


def mlp(x: Tensor, unit: str, call: Call) -> Tensor:
    """Two linear layers and a GELU; each of the t ranks has some of the hidden features."""
    hidden = functional.gelu(layers.linear(into(x, call.team), *_pair(f"{unit}.up", call), call.activation))
    return summed_linear(hidden, *_pair(f"{unit}.down", call), call.activation, call.team)


def norm(x: Tensor, name: str, call: Call) -> Tensor:
    """A LayerNorm."""
    return layers.layer_norm(x, *_pair(name, call), call.activation)


def loss(x: Tensor, call: Call) -> Tensor:
    """The sum of these tokens' cross-entropies over the number of tokens of the whole batch."""
    assert call.targets is not None, "the head needs targets"
    table = "tokens.weight" if call.model.tied else "head.weight"
    logits = layers.linear(norm(x, "norm", call), call.weight(table), None, call.activation)
    targets = call.team.own(call.targets)
    total = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return total / call.batch_tokens


def _attend(query: Tensor, key: Tensor, value: Tensor, unit: str, call: Call) -> Tensor:
    """Of a segment, also over the keys and values of those before it."""
    if call.keeps:
        leaves = (each.detach().requires_grad_() for each in (key, value))
        call.kept[unit] = KeyValue(key, value, *leaves)
    if not call.earlier:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    before = [each[unit] for each in call.earlier]
    keys = torch.cat([*(each.key_leaf for each in before), key], 2)
    values = torch.cat([*(each.value_leaf for each in before), value], 2)
    length, seen = query.shape[2], keys.shape[2]
    mask = torch.ones(length, seen, dtype=torch.bool, device=query.device).tril(seen - length)
    return functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)


def _pair(name: str, call: Call) -> tuple[Tensor, Tensor]:
    return call.weight(f"{name}.weight"), call.weight(f"{name}.bias")
