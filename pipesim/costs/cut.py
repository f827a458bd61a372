"""What one rank works on: the degrees of parallelism and the tokens of a micro-batch, as columns of many points."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipesim.costs.columns import IntArray, Number
from pipesim.costs.topology import Axis
from pipesim.specs import Attention, ContextParallel, Precision, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Numbers are floats or arrays of one shape; what is a word is the same for all points of a batch."""

    t: Number
    d: Number
    c: Number
    e: Number
    p: Number = 1.0
    v: Number = 1.0
    micro_batch: Number
    seq_length: Number
    num_microbatches: Number = 1.0
    """Of a step, as far as prices depend on it, see ``estimate.points.priced_micro_batches``."""
    gpus: Number = math.inf
    """In use; the default is more than one node has."""
    shard: Number | None = None
    recomputed: Number = math.inf
    """Layers of each stage that run again backward, at most all of them."""
    zero: int
    sequence_parallel: bool
    context: ContextParallel = "ring"
    rank_order: str = "tcdp"
    recompute: Recompute
    attention: Attention
    precision: Precision
    dropout: bool

    @property
    def tokens(self) -> Number:
        """Tokens of one micro-batch on one rank: context parallelism divides the sequence."""
        return self.micro_batch * self.seq_length / self.c

    @property
    def norm_share(self) -> Number:
        """How many ranks share what lies between the matrix products; tensor parallelism alone repeats it on each.

        Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4.2.2.
        """
        return self.t if self.sequence_parallel else 1.0

    @property
    def replicas(self) -> Number:
        """Ranks that hold the same parameters."""
        return np.multiply(self.d, self.c)

    @property
    def gathers(self) -> Number:
        """How often a step gathers weights that ZeRO divides: once, but with ZeRO-3 for every micro-batch, unless in a
        pipeline, whose stages stay whole from their first use to the end of the step (``full._whole_bytes``).
        """
        return self._of_micro_batches if self.zero == 3 else 1.0

    @property
    def reductions(self) -> Number:
        """How often a step reduces gradients: once, but where ZeRO divides them (2 and 3) for every micro-batch, unless in a
        pipeline, where their sums stay whole as long.
        """
        return self._of_micro_batches if self.zero >= 2 else 1.0

    @property
    def gradient_shards(self) -> Number:
        """Ranks that share the sum of gradients while it grows."""
        return np.where(np.greater(self.p, 1), 1.0, self.shards) if self.zero >= 2 else 1.0

    @property
    def _of_micro_batches(self) -> Number:
        return np.where(np.greater(self.p, 1), 1.0, self.num_microbatches)

    @property
    def shards(self) -> Number:
        """Ranks that share what ZeRO divides."""
        return self.replicas if self.shard is None else self.shard

    @property
    def replica_axes(self) -> tuple[Axis, Axis]:
        """Where the ranks that hold the same parameters lie: over context and data, innermost first."""
        inner, outer = sorted("cd", key=self.rank_order.index)
        return (getattr(self, inner), self.stride(inner)), (getattr(self, outer), self.stride(outer))

    def taken(self, members: IntArray) -> Cut:
        """The same of some of the points."""
        changed: dict[str, Any] = {
            field.name: values[members]
            for field in dataclasses.fields(self)
            if isinstance(values := getattr(self, field.name), np.ndarray)
        }
        return dataclasses.replace(self, **changed)

    def stride(self, degree: str) -> Number:
        """How many global ranks apart the members of a group of ``t``, ``c``, ``d`` or ``p`` lie."""
        inner = self.rank_order[: self.rank_order.index(degree)]
        stride: Number = 1.0
        for each in inner:
            stride = stride * getattr(self, each)
        return stride
