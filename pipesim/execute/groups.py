"""How ranks talk: messages from one to another, and sums over a group. ``threads`` and ``distributed`` do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Pending(Protocol):
    """A message on its way."""

    def wait(self) -> Tensor:
        """Returns what was sent, once it is there (or, of a send, once it has left)."""

    def done(self) -> bool:
        """Whether ``wait`` would return at once."""


@dataclass(frozen=True, slots=True)
class There:
    """A message that nobody has to wait for."""

    x: Tensor

    def wait(self) -> Tensor:
        return self.x

    def done(self) -> bool:
        return True


class Shape(NamedTuple):
    """What a receiver knows of a message before it comes."""

    sizes: tuple[int, ...]
    dtype: torch.dtype


class Wire(Protocol):
    """Messages between ranks, by their numbers in the world. Neither ``send`` nor ``receive`` waits.

    Messages from one rank to another keep their order; ``tag`` says which one it is, for those who can use it.
    """

    def send(self, x: Tensor, to: int, tag: int) -> Pending: ...

    def receive(self, shape: Shape, sender: int, tag: int) -> Pending: ...

    def close(self) -> None:
        """Waits until everything has left."""


class Group(Protocol):
    """Ranks that call the same operations in the same order, with tensors of the same shapes. Each call waits."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum, the same bits on every rank."""

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Everyone's ``x``, by rank."""

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        """The sum of everyone's ``parts[rank]``."""

    def barrier(self) -> None:
        """Waits for everyone."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A group of one."""

    rank: int = 0
    size: int = 1

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return [x]

    def reduce_scatter(self, parts: Sequence[Tensor]) -> Tensor:
        return parts[0]

    def barrier(self) -> None:
        return
