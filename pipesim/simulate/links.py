"""What lies between two ranks: latency, bandwidth, and who waits for whom while a message travels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipesim.simulate.kernel import FloatArray


class Link(NamedTuple):
    """One kind of link, one direction: seconds until the first byte is there, and achievable bytes per second."""

    latency_s: float = 0.0
    bytes_per_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links:
    """One link per ordered pair of ranks, so one in each direction; a message takes latency + bytes / bandwidth.

    ``latency_s`` and ``bytes_per_s`` are one number, or shape (p, p), sender by receiver. ``message_bytes`` is one
    number, or one for each of the stages - 1 boundaries: what a forward carries over it and a backward carries back.
    A link carries one message at a time, in the order in which they were sent, and is taken for bytes / bandwidth.

    ``rendezvous``: a message leaves when the reader is free and asks for it, not as soon as it is made (eager).
    ``blocking_sends``: the sender stands still until its messages have left.

    Leaves out: links that share one network card or switch.
    """

    latency_s: ArrayLike = 0.0
    bytes_per_s: ArrayLike = math.inf
    message_bytes: ArrayLike = 0.0
    rendezvous: bool = False
    blocking_sends: bool = False

    def hop_s(self, p: int) -> FloatArray:
        """Seconds of latency, shape (1, 1) or (p, p)."""
        latency_s = _table("latency_s", self.latency_s, p)
        if not np.all(np.isfinite(latency_s) & (latency_s >= 0)):
            raise ValueError(f"latency_s={self.latency_s!r} must be a finite number of at least 0. Nearest: 0.")
        return latency_s

    def s_per_byte(self, p: int) -> FloatArray:
        """Seconds per byte, shape (1, 1) or (p, p)."""
        bytes_per_s = _table("bytes_per_s", self.bytes_per_s, p)
        if not np.all(bytes_per_s > 0):
            raise ValueError(f"bytes_per_s={self.bytes_per_s!r} must be above 0; inf takes no time.")
        return 1 / bytes_per_s

    def result_bytes(self, stages: int) -> FloatArray:
        """Bytes of each result (see ``rules.results``), shape (2 * stages,); gradients go back over boundary s - 1."""
        given = np.asarray(self.message_bytes, np.float64)
        if given.shape not in ((), (stages - 1,)):
            raise ValueError(
                f"message_bytes has shape {given.shape}; give one number or one for each of {stages - 1} boundaries."
            )
        if not np.all(np.isfinite(given) & (given >= 0)):
            raise ValueError(f"message_bytes={self.message_bytes!r} must be finite and at least 0.")
        boundaries = np.broadcast_to(given, (stages - 1,))
        return np.concatenate([boundaries, [0.0], [0.0], boundaries])


def placed(
    node_of_rank: Sequence[int],
    *,
    inside: Link,
    between: Link,
    message_bytes: ArrayLike = 0.0,
    rendezvous: bool = False,
    blocking_sends: bool = False,
) -> Links:
    """Links of ranks that are placed on nodes: two ranks of one node talk over ``inside``, others over ``between``."""
    node = np.asarray(node_of_rank)
    same = node[:, None] == node[None, :]
    return Links(
        latency_s=np.where(same, inside.latency_s, between.latency_s),
        bytes_per_s=np.where(same, inside.bytes_per_s, between.bytes_per_s),
        message_bytes=message_bytes,
        rendezvous=rendezvous,
        blocking_sends=blocking_sends,
    )


def _table(name: str, given: ArrayLike, p: int) -> FloatArray:
    table = np.array(given, np.float64, ndmin=2)
    if table.shape not in ((1, 1), (p, p)):
        raise ValueError(f"{name} has shape {np.shape(given)}; give one number or {p} x {p}, sender by receiver.")
    return table
