"""What one rank works on: the degrees of parallelism and the tokens of a micro-batch, as columns of many points."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipesim.costs.collectives import Number
from pipesim.specs import Attention, Precision, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Numbers are floats or arrays of one shape; what is a word is the same for all points of a batch."""

    t: Number
    d: Number
    c: Number
    e: Number
    micro_batch: Number
    seq_length: Number
    gpus: Number = math.inf
    """In use; the default is more than one node has."""
    zero: int
    sequence_parallel: bool
    recompute: Recompute
    attention: Attention
    precision: Precision
    dropout: bool
    gradient_bytes: int
    reduce_bytes: int

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
