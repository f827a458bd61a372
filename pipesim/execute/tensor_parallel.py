"""Tensor parallelism: linear layers and attention heads divided over t ranks, with Megatron's operators around them.

Sources: Shoeybi et al., "Megatron-LM", 2019, section 3 (the operators f and g); Korthikanti et al., "Reducing Activation
Recomputation in Large Transformer Models", 2022, section 4.2.2 (sequence parallel: g-bar gathers, its reverse scatters).
Embedding, positions, norms, head and the biases behind a sum are whole on every rank. With sequence parallelism a rank
applies them to its part of the sequence, so their gradients are summed over t; else every rank has them whole already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pipesim.execute import layers
from pipesim.execute.groups import Alone, Group
from pipesim.execute.live import Activation

ROWS = ("qkv.weight", "qkv.bias", "up.weight", "up.bias")
"""Parameters divided along their first dimension: the layers in front of a nonlinearity (column-parallel, of X A)."""

COLUMNS = ("projection.weight", "down.weight")
"""Parameters divided along their second: the layers whose outputs are summed (row-parallel)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The t ranks that share every layer."""

    group: Group = field(default_factory=Alone)
    sequence_parallel: bool = False

    @property
    def parts(self) -> int:
        """Into how many parts the sequence is divided outside of attention and MLP."""
        return self.group.size if self.sequence_parallel else 1

    def own(self, tokens: Tensor) -> Tensor:
        """The rank's part of ``tokens`` (batch, length), and the whole without sequence parallelism."""
        return tokens.chunk(self.parts, 1)[self.group.rank if self.parts > 1 else 0]

    def first(self, length: int) -> int:
        """Where the rank's part of ``length`` tokens starts."""
        return self.group.rank * (length // self.parts) if self.parts > 1 else 0


def into(x: Tensor, team: Team) -> Tensor:
    """f: in front of a divided layer. The sequence is gathered, or as it was; the gradient is summed over the ranks."""
    return x if team.group.size == 1 else _apply(_Into, x, team)


def out_of(x: Tensor, team: Team) -> Tensor:
    """g: the sum over the ranks of what their parts of a layer gave, and of it the rank's part of the sequence."""
    return x if team.group.size == 1 else _apply(_OutOf, x, team)


def summed_linear(x: Tensor, weight: Tensor, bias: Tensor, activation: Activation, team: Team) -> Tensor:
    """A row-parallel linear layer: each rank has some of the inputs, the sum has the bias added once."""
    if team.group.size == 1:
        return layers.linear(x, weight, bias, activation)
    return layers.add_bias(out_of(layers.linear(x, weight, None, activation), team), bias, activation)


def is_divided(name: str) -> bool:
    """Whether each of the t ranks has a part of its own of this parameter."""
    return name.endswith(ROWS + COLUMNS)


def divide(name: str, whole: Tensor, t: int, rank: int) -> Tensor:
    """The rank's part of a parameter; qkv is divided by heads, so each of query, key and value is cut."""
    if t == 1 or not is_divided(name):
        return whole
    if name.endswith(COLUMNS):
        return whole.chunk(t, 1)[rank]
    if "qkv" in name:
        return torch.cat([each.chunk(t)[rank] for each in whole.chunk(3)])
    return whole.chunk(t)[rank]


def unite(name: str, parts: Sequence[Tensor]) -> Tensor:
    """The parameter from the parts of all ranks; the inverse of ``divide``."""
    if len(parts) == 1 or not is_divided(name):
        return parts[0]
    if name.endswith(COLUMNS):
        return torch.cat(list(parts), 1)
    if "qkv" in name:
        return torch.cat([part.chunk(3)[k] for k in range(3) for part in parts])
    return torch.cat(list(parts))


def sum_whole_gradients(weights: Mapping[str, Tensor], team: Team) -> None:
    """Sums the gradients of what every rank has whole, where each has seen a part of the sequence only."""
    if team.parts == 1:
        return
    for name in sorted(weights):
        if not is_divided(name):
            weights[name].grad = team.group.all_reduce(layers.gradient_of(weights[name]))


class _Into(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, team: Team) -> Tensor:
        ctx.team = team
        return torch.cat(team.group.all_gather(x), 1) if team.sequence_parallel else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _reduced(gradient, ctx.team), None


class _OutOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, team: Team) -> Tensor:
        ctx.team = team
        return _reduced(x, team)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        team: Team = ctx.team
        return torch.cat(team.group.all_gather(gradient), 1) if team.sequence_parallel else gradient, None


def _reduced(x: Tensor, team: Team) -> Tensor:
    """The sum over the ranks, and with sequence parallelism the rank's part of it."""
    if not team.sequence_parallel:
        return team.group.all_reduce(x)
    return team.group.reduce_scatter([part.contiguous() for part in x.chunk(team.group.size, 1)])


def _apply(function: type[torch.autograd.Function], *given: Any) -> Tensor:
    result: Tensor = function.apply(*given)  # type: ignore[no-untyped-call]
    return result
