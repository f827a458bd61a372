"""What a forward leaves behind for its backward, counted from the moment it is made until it is really freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True, eq=False, weakref_slot=True)
class Activation:
    """Weight gradients that one forward's backward owes: computed at once (``now``, in a B) or kept for the W.

    Everything that the forward saved refers to it, so it lives as long as anything of that is in memory.
    """

    now: bool = True
    owed: list[Callable[[], None]] = field(default_factory=list)

    def owe(self, work: Callable[[], None]) -> None:
        """``work`` adds to the gradient of a weight; it holds what it needs until it has run."""
        if self.now:
            work()
        else:
            self.owed.append(work)

    def pay(self) -> None:
        """Computes every weight gradient that is owed and frees what it was computed from."""
        while self.owed:
            self.owed.pop(0)()


@dataclass(slots=True, kw_only=True)
class Live:
    """How many activations are in memory, and the most there were at once."""

    now: int = 0
    peak: int = 0

    def new(self) -> Activation:
        activation = Activation()
        self.now += 1
        self.peak = max(self.peak, self.now)
        weakref.finalize(activation, self._gone).atexit = False
        return activation

    def _gone(self) -> None:
        self.now -= 1


class _Saved(NamedTuple):
    """A tensor that a graph saved, and the activation it is part of."""

    tensor: Tensor
    activation: Activation


@contextmanager
def saving_for(activation: Activation) -> Iterator[None]:
    """Inside, whatever autograd saves for the backward keeps ``activation`` alive."""
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: _Saved(tensor, activation), lambda saved: saved.tensor
    ):
        yield
