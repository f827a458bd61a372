"""What tokens send to their experts and get back: one copy for each expert, or one for each rank and node."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from pipesim.costs.collectives import Collective
from pipesim.costs.columns import Number
from pipesim.costs.cut import Cut
from pipesim.costs.memory import ELEMENT_BYTES, NARROW_BYTES
from pipesim.costs.topology import Group
from pipesim.specs import ModelSpec, Moe, StackSpec

SCALE_BYTES = 4 / 128
"""Of an fp32 scale for every 128 elements that travel in fp8. Source: DeepSeek-AI, "DeepSeek-V3", 2024, section 3.3.2."""


def exchange(model: ModelSpec, moe: Moe, group: Group, cut: Cut, stack: StackSpec) -> list[Collective]:
    """Tokens to their experts, and results back in 16 bits; backward the gradients of both, the other way round.

    A relayed token goes once to each node that holds one of its experts, to the rank that lies there as its own does on its
    node, and over NVLink from there, once to each rank; what comes back is added up on the same way.
    Source: DeepSeek-AI, "DeepSeek-V3", 2024, sections 3.2.2 and 3.3.3; DeepEP.
    """
    copies: Number = moe.top_k
    crossing: Number = 1.0
    kind = "all-to-all"
    if stack.relayed_dispatch:
        copies = reached(moe, group.ranks)
        kind, crossing = "relayed all-to-all", reached_nodes(moe, group.nodes) / copies
    tokens = cut.tokens / (cut.t if cut.sequence_parallel else 1.0)
    narrow = cut.precision == "fp8" and stack.fp8_dispatch
    there, back = NARROW_BYTES + SCALE_BYTES if narrow else ELEMENT_BYTES, ELEMENT_BYTES
    return [
        Collective("ep", kind, group, copies * tokens * model.hidden * each, 1.0, crossing=crossing)
        for each in (there, back)
    ]


def reached(moe: Moe, places: Number) -> Number:
    """Ranks or nodes, of ``places`` that share all experts evenly, that a token goes to on average.

        n (1 - C(E - E / n, k) / C(E, k))

    for k of E experts, any of them as likely as any other.
    """
    left, drawn = moe.experts - moe.experts / np.asarray(places), moe.top_k
    log_missed = (
        gammaln(left + 1) - gammaln(left - drawn + 1) + gammaln(moe.experts - drawn + 1) - gammaln(moe.experts + 1)
    )
    return np.asarray(places * (1 - np.exp(log_missed)))


def reached_nodes(moe: Moe, nodes: Number) -> Number:
    """Nodes that a token goes to: those of its ``group_limit`` groups of experts at most, each on one node or on several."""
    allowed = moe.group_limit * np.maximum(nodes / np.asarray(moe.groups), 1.0)
    return np.asarray(np.minimum(reached(moe, nodes), allowed))
