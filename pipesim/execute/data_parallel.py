"""After the backwards: gradients are summed over all copies of a parameter, and every copy takes the same step.

Copies are the d replicas, the two stages of tied weights and the two ranks of a bidirectional schedule's stage alike.
With ZeRO-1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, P_os)
each copy gets the sum of one part, holds the optimizer's state of that part alone, and gathers the weights afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipesim.execute.groups import Group
from pipesim.execute.layers import gradient_of


@dataclass(slots=True, kw_only=True)
class Share:
    """Parameters of one bucket, laid in one line and padded to ``parts`` equal parts, of which this copy steps one."""

    weights: list[Tensor]
    group: Group
    parts: int
    part: nn.Parameter
    optimizer: torch.optim.Optimizer


def share(weights: Sequence[Tensor], group: Group, zero: int, optimizer: str, learning_rate: float) -> Share:
    """``zero`` 0: one part, which every copy has; 1: a part for each copy."""
    parts = group.size if zero else 1
    part = nn.Parameter(_line(weights, parts)[group.rank if zero else 0].clone())
    make = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    return Share(weights=list(weights), group=group, parts=parts, part=part, optimizer=make([part], lr=learning_rate))


def sum_gradients(shares: Sequence[Share]) -> None:
    """Gives each share's part the gradient of the whole batch."""
    for each in shares:
        gradients = _line([gradient_of(weight) for weight in each.weights], each.parts)
        summed = each.group.reduce_scatter(gradients) if each.parts > 1 else each.group.all_reduce(gradients[0])
        each.part.grad = summed


def step(shares: Sequence[Share]) -> None:
    """The optimizer's step; every copy has all new weights afterwards, and no gradients."""
    for each in shares:
        each.optimizer.step()
        _write(each.weights, _whole(each, each.part.detach()))
        for weight in each.weights:
            weight.grad = None


def gradients(shares: Sequence[Share], names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """The summed gradients by name, whole on every copy."""
    found: dict[str, Tensor] = {}
    for each in shares:
        assert each.part.grad is not None, "call sum_gradients first"
        line = _whole(each, each.part.grad)
        for weight, gradient in zip(each.weights, _cut(each.weights, line), strict=True):
            found[names[weight]] = gradient.clone()
    return found


def _line(tensors: Sequence[Tensor], parts: int) -> list[Tensor]:
    """All tensors in one line, zeros behind, in equal parts."""
    line = torch.cat([x.detach().flatten() for x in tensors])
    size = -(-len(line) // parts)
    return list(nn.functional.pad(line, (0, parts * size - len(line))).split(size))


def _whole(each: Share, part: Tensor) -> Tensor:
    return torch.cat(each.group.all_gather(part)) if each.parts > 1 else part


def _cut(weights: Sequence[Tensor], line: Tensor) -> list[Tensor]:
    pieces = line[: sum(weight.numel() for weight in weights)].split([weight.numel() for weight in weights])
    return [piece.view_as(weight) for weight, piece in zip(weights, pieces, strict=True)]


def _write(weights: Sequence[Tensor], line: Tensor) -> None:
    with torch.no_grad():
        for weight, piece in zip(weights, _cut(weights, line), strict=True):
            weight.copy_(piece)
