"""After the backwards: gradients are summed over all copies of a parameter, and every copy takes the same step.

Copies are the d replicas, the two stages of tied weights and the two ranks of a bidirectional schedule's stage alike.
With ZeRO-1 (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, P_os)
each copy gets the sum of one part, holds the optimizer's state of that part alone, and gathers the weights afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from pipesim.execute import optimizers
from pipesim.execute.groups import Group
from pipesim.execute.layers import gradient_of
from pipesim.execute.optimizers import Adam, Sgd


@dataclass(slots=True, kw_only=True)
class Share:
    """Parameters of one bucket, laid in one line and padded to ``parts`` equal parts, of which this copy steps one."""

    weights: list[Tensor]
    group: Group
    parts: int
    part: Tensor
    gradient: Tensor
    optimizer: Sgd | Adam


def share(weights: Sequence[Tensor], group: Group, zero: int, optimizer: str, learning_rate: float) -> Share:
    """``zero`` 0: one part, which every copy has; 1: a part for each copy."""
    parts = group.size if zero else 1
    part = _line(weights, parts)[group.rank if zero else 0].clone()
    return Share(
        weights=list(weights),
        group=group,
        parts=parts,
        part=part,
        gradient=torch.zeros_like(part),
        optimizer=optimizers.make(optimizer, learning_rate, part),
    )


def sum_gradients(shares: Sequence[Share]) -> None:
    """Gives each share's part the gradient of the whole batch."""
    for each in shares:
        lines = _line([gradient_of(weight) for weight in each.weights], each.parts)
        each.gradient = each.group.reduce_scatter(lines) if each.parts > 1 else each.group.all_reduce(lines[0])


def step(shares: Sequence[Share]) -> None:
    """The optimizer's step; every copy has all new weights afterwards, and no gradients."""
    for each in shares:
        each.optimizer.step(each.part, each.gradient)
        _write(each.weights, _whole(each, each.part))
        for weight in each.weights:
            weight.grad = None


def gradients(shares: Sequence[Share], names: Mapping[Tensor, str]) -> dict[str, Tensor]:
    """The summed gradients by name, whole on every copy."""
    found: dict[str, Tensor] = {}
    for each in shares:
        line = _whole(each, each.gradient)
        for weight, gradient in zip(each.weights, _cut(each.weights, line), strict=True):
            found[names[weight]] = gradient.clone()
    return found


def _line(tensors: Sequence[Tensor], parts: int) -> list[Tensor]:
    """All tensors in one line, zeros behind, in equal parts."""
    line = torch.cat([x.detach().flatten() for x in tensors])
    size = -(-len(line) // parts)
    return list(functional.pad(line, (0, parts * size - len(line))).view(parts, size))


def _whole(each: Share, part: Tensor) -> Tensor:
    return torch.cat(each.group.all_gather(part)) if each.parts > 1 else part


def _cut(weights: Sequence[Tensor], line: Tensor) -> list[Tensor]:
    ends = list(accumulate(weight.numel() for weight in weights))
    return [line[end - weight.numel() : end].view_as(weight) for weight, end in zip(weights, ends, strict=True)]


def _write(weights: Sequence[Tensor], line: Tensor) -> None:
    with torch.no_grad():
        for weight, piece in zip(weights, _cut(weights, line), strict=True):
            weight.copy_(piece)
