"""SGD and Adam on one line of weights: the arithmetic of ``torch.optim``, whose import alone takes seconds a process."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8
"""Of Adam. Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1."""


@dataclass(slots=True, kw_only=True)
class Sgd:
    """Subtracts ``learning_rate`` times the gradient; has no state."""

    learning_rate: float

    def step(self, weights: Tensor, gradient: Tensor) -> None:
        """Changes ``weights`` in place."""
        weights.add_(gradient, alpha=-self.learning_rate)


@dataclass(slots=True, kw_only=True)
class Adam:
    """Two moments for every weight."""

    learning_rate: float
    mean: Tensor
    square: Tensor
    steps: int = 0

    def step(self, weights: Tensor, gradient: Tensor) -> None:
        """Changes ``weights`` in place."""
        self.steps += 1
        self.mean.lerp_(gradient, 1 - DECAY)
        self.square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
        deviation = self.square.sqrt().div_(math.sqrt(1 - SQUARE_DECAY**self.steps)).add_(EPSILON)
        weights.addcdiv_(self.mean, deviation, value=-self.learning_rate / (1 - DECAY**self.steps))


def make(name: str, learning_rate: float, weights: Tensor) -> Sgd | Adam:
    """The optimizer of ``weights``, by its name in a job."""
    if name == "sgd":
        return Sgd(learning_rate=learning_rate)
    return Adam(learning_rate=learning_rate, mean=torch.zeros_like(weights), square=torch.zeros_like(weights))
